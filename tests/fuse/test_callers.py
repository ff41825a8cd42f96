"""How long calls take and of whom they are: the clock at the boundary, and the table of openers."""

import os
import subprocess

import pyfuse3
import pytest
import trio

from s3mount import errors
from s3mount.core.readers import ReaderSeconds
from s3mount.fs.waits import CALLER, ReaderWaits
from s3mount.fuse.boundary import Boundary
from s3mount.fuse.call_clock import CallClock
from s3mount.fuse.callers import Callers, Opener, Use, group_of

MS = 1_000_000


class Clock:
    """A clock that a test sets, in seconds or nanoseconds."""

    now = 0

    def __call__(self) -> int:
        return self.now


def test_calls_side_by_side_are_timed_each() -> None:
    """A call that waits is timed from its own beginning, whatever other calls were answered meanwhile."""
    now = Clock()
    clock = CallClock(now)
    read, lookup = clock.operation("read"), clock.operation("lookup")
    clock.begin("read", 5, 0)
    waiting = clock.wait()
    now.now = 1000 * MS
    clock.begin("lookup", 1, 77)
    now.now = 1001 * MS
    clock.end(lookup)
    assert [(call.operation, call.subject, age_s) for call, age_s in clock.waiting()] == [("read", 5, 1.001)]
    now.now = 2000 * MS
    clock.resume(waiting)
    clock.end(read)
    found = clock.statistics()
    assert (found["read"].latencies.seconds, found["read"].waited) == (2.0, 1)
    assert (found["lookup"].latencies.seconds, found["lookup"].waited) == (0.001, 0)
    assert clock.waiting() == []
    clock.check_invariants()


def test_a_wait_too_many_is_noticed() -> None:
    """The clock's invariant fails when a call waited that was never begun."""
    clock = CallClock()
    for _ in range(2):
        clock.resume(clock.wait())
    with pytest.raises(ValueError, match="more often"):
        clock.check_invariants()


async def test_errors_are_counted_by_operation() -> None:
    """An answer with an error counts for its operation and errno, and is timed as any other."""
    boundary = Boundary(60.0)
    for operation in ("lookup", "lookup", "read"):
        with pytest.raises(pyfuse3.FUSEError), boundary.guard(operation):
            raise errors.NameNotFound("gone")
    found = boundary.operations()
    assert {name: each.errors for name, each in found.items()} == {"lookup": {"ENOENT": 2}, "read": {"ENOENT": 1}}
    assert found["lookup"].latencies.count == 2
    boundary.check_invariants()


async def test_waits_are_told_by_group() -> None:
    """What a call waits for counts for the process group of its thread, or of whoever opened its handle."""
    waits = ReaderWaits()
    boundary = Boundary(60.0)
    boundary.callers.opened(9, 1, os.getpid())

    async def answer() -> None:
        assert CALLER.get() == os.getpgrp()
        await trio.lowlevel.checkpoint()

    for operation, subject, pid in (("lookup", 1, os.getpid()), ("read", 9, 0)):
        with boundary.guard(operation, subject, pid=pid), boundary.deadline():
            await waits.of_names(answer())
        assert CALLER.get() == 0
    with boundary.guard("read", 12345), boundary.deadline():
        assert CALLER.get() == 0
    found = waits.by_group()
    assert found[os.getpgrp()].total == waits.statistics().total > 0
    assert CALLER.get() == 0
    boundary.callers.closed(9)
    seconds = boundary.callers.reader_seconds()[os.getpgrp()]
    assert 0 < seconds.waiting <= seconds.total
    waits.check_invariants()


def test_groups_are_bounded() -> None:
    """More groups than are told apart are added up, and no second of waiting is lost."""
    waits = ReaderWaits()

    async def nothing() -> None:
        await trio.lowlevel.checkpoint()

    async def main() -> None:
        for group in range(1, 1001):
            CALLER.set(group)
            await waits.of_names(nothing())

    trio.run(main)
    assert len(waits.by_group()) <= 258
    assert sum(each.total for each in waits.by_group().values()) == pytest.approx(waits.statistics().total)


def test_files_and_openers_by_bytes() -> None:
    """Bytes and opens count for the file and for its opener, while it is open and afterwards; no read is told, too."""
    now = Clock()
    callers = Callers({1: "a", 2: "b\x1b"}.get, now)
    me = Opener(os.getpid(), os.getpgrp())
    for handle, inode in ((10, 1), (11, 1), (12, 2)):
        assert callers.opened(handle, inode, os.getpid()) == handle
    callers.opened(13, 3, os.getpid(), is_file=False)
    assert callers.delivered(10, memoryview(b"12345")) == b"12345"
    now.now = 4
    assert callers.closed(10) == 10
    assert callers.files() == {"a": Use(5, 2, 1), "b\x1b": Use(0, 1, 1)}
    assert callers.openers() == {me: Use(5, 3, 2)}
    for handle in (11, 12, 13):
        callers.closed(handle)
    assert callers.files() == {"a": Use(5, 1, 0)}
    found = callers.statistics()
    assert (found.opens, found.opens_without_reads, found.bytes_delivered) == (3, 2, 5)
    assert callers.reader_seconds() == {os.getpgrp(): ReaderSeconds(4.0, 0.0)}
    assert callers.group_name(os.getpgrp()) != ""
    callers.check_invariants()


def test_handles_of_an_earlier_daemon() -> None:
    """A read or release of a handle that an earlier daemon gave out counts bytes and harms nothing."""
    callers = Callers()
    callers.delivered(99, b"123")
    assert callers.closed(99) == 99
    assert callers.statistics().bytes_delivered == 3
    callers.check_invariants()


def test_who_cannot_be_seen() -> None:
    """A thread of another name space is number 0; one that has ended has no group."""
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    assert group_of(0) == 0
    assert group_of(ended.pid) == 0
