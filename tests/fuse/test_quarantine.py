"""Calls that killed a daemon: what is marked, who is handled alone, who is denied."""

import errno
import functools
import logging
import os
from collections.abc import Iterator
from typing import Any

import pyfuse3
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from s3mount.core.suspects import GUILTY_S, Call
from s3mount.fuse.boundary import Boundary
from s3mount.fuse.marks import CODES, OPERATIONS, SIZE, CallMarks, new_memory
from s3mount.fuse.operations import Operations
from s3mount.fuse.quarantine import Quarantine
from tests.fs.harness import ROOT, file_system
from tests.fuse.test_operations import HANDLERS, WRITERS
from tests.support.fake_store import FakeStore

READ = Call(CODES["read"], 100, 0, 4096)


HANDLES = {100: 5, 101: 5, 102: 6, 103: 7, 104: 8}


class Subjects:
    """Handles from 100 on, on inodes."""

    def inode_of(self, handle: int) -> int:
        return HANDLES.get(handle, handle)

    def name_of(self, ino: int) -> str:
        return f"number {ino}"


@pytest.fixture
def memory() -> Iterator[int]:
    """What the mounter holds."""
    descriptor = new_memory()
    yield descriptor
    os.close(descriptor)


def call_of(operation: str, *arguments: Any) -> Call:
    operations: Any = None
    return Quarantine(operations, CallMarks(), Subjects(), lambda: 0.0).call(operation, *arguments)


class Handlers:
    """Stands for `Operations`: each call waits until it is let go."""

    def __init__(self) -> None:
        self.running: list[Call] = []
        self.go = trio.Event()

    async def handle(self, operation: str, *arguments: Any) -> None:
        self.running.append(call_of(operation, *arguments))
        await self.go.wait()
        self.running.remove(call_of(operation, *arguments))


for _name in HANDLERS - {"forget", "statfs"}:
    setattr(Handlers, _name, functools.partialmethod(Handlers.handle, _name))


class Failing(Handlers):
    """Answers each read with an error."""

    async def read(self, *_: Any) -> None:
        raise pyfuse3.FUSEError(errno.ENOENT)


def after(memory: int, *deaths: list[Call], kind: type[Handlers] = Handlers) -> tuple[Any, Quarantine]:
    """Handlers in a daemon whose predecessors died with these calls in flight."""
    for in_flight in deaths:
        marks = CallMarks(memory)
        for call in in_flight:
            marks.begin(call.operation, call.subject, call.name, call.offset)
            marks.keep()
        operations: Any = kind()
        quarantine = Quarantine(operations, CallMarks(memory), Subjects(), trio.current_time)
        quarantine.take_over(by_own_fault=True)
        quarantine.check_invariants()
    return operations, quarantine


# -- marks ------------------------------------------------------------------------------------


def test_what_is_in_flight_is_seen_by_the_next_daemon(memory: int) -> None:
    """Calls that wait and the one that is being handled are in the memory; those that ended are not."""
    marks = CallMarks(memory)
    waiting = [Call(CODES["open"], number) for number in (2**64 - 1, 7, 8)]
    slots = []
    for call in waiting:
        marks.begin(call.operation, call.subject, call.name, call.offset)
        slots.append(marks.keep())
    marks.leave(slots[1])
    marks.begin(READ.operation, READ.subject, READ.name, READ.offset)
    marks.check_invariants()
    assert sorted(CallMarks(memory).in_flight()) == sorted([waiting[0], waiting[2], READ])
    marks.end()
    marks.leave(slots[0])
    marks.leave(slots[2])
    marks.check_invariants()
    assert CallMarks(memory).in_flight() == []


def test_more_calls_than_slots(memory: int) -> None:
    """A call for which no slot is left is handled all the same, without a mark."""
    marks = CallMarks(memory)
    slots = []
    for number in range(2049):
        marks.begin(1, number, 0, 0)
        slots.append(marks.keep())
    assert slots[-1] is None
    marks.leave(None)
    assert len(marks.in_flight()) == 2048


def test_another_version_is_empty(memory: int) -> None:
    """A table that another version wrote says nothing; neither do random bytes."""
    os.pwrite(memory, os.urandom(SIZE), 0)
    marks = CallMarks(memory)
    assert marks.in_flight() == []
    assert not marks.suspects()


async def test_a_handler_marks_what_the_quarantine_compares(memory: int) -> None:
    """For each handler the mark of a call, and what the quarantine takes it for, are the same."""
    store = FakeStore()
    store.put("d/a", b"x")
    async with file_system(store) as mounted:
        marks = CallMarks(memory)
        seen: list[Call] = []
        begin = marks.begin
        marks.begin = lambda *mark: (begin(*mark), seen.extend(marks.in_flight()))  # type: ignore[method-assign, func-returns-value, assignment]
        operations: Any = Operations(mounted.fs, Boundary(60.0, marks))

        async def call(operation: str, *arguments: Any) -> Any:
            seen.clear()
            answer = await getattr(operations, operation)(*arguments)
            assert seen == [call_of(operation, *arguments)]
            checked.add(operation)
            return answer

        checked: set[str] = set()
        directory = (await call("lookup", ROOT, b"d", None)).st_ino
        file = (await call("lookup", directory, b"a", None)).st_ino
        await call("getattr", file, None)
        await call("access", file, os.R_OK, pyfuse3.RequestContext())
        handle = (await call("open", file, os.O_RDONLY, None)).fh
        await call("read", handle, 0, 1)
        await call("release", handle)
        handle = await call("opendir", directory, None)
        await mounted.names(directory)  # so that readdir has nothing to hand to pyfuse3
        await call("releasedir", handle)
        assert checked == HANDLERS - {"forget", "statfs", "readdir"}
        assert call_of("readdir", 3, 70, None) == Call(CODES["readdir"], 3, 0, 70)
        assert set(OPERATIONS) == HANDLERS | WRITERS
        assert marks.in_flight() == []


async def test_a_call_that_waits_keeps_its_mark(memory: int, autojump_clock: MockClock) -> None:
    """Two look-ups that wait for S3 are both marked, beside what is handled meanwhile; afterwards nothing is."""
    store = FakeStore(latency_s=1.0)
    store.put("a", b"x")
    store.put("b", b"x")
    async with file_system(store) as mounted, trio.open_nursery() as nursery:
        marks = CallMarks(memory)
        operations: Any = Operations(mounted.fs, Boundary(60.0, marks))
        for name in (b"a", b"b"):
            nursery.start_soon(operations.lookup, ROOT, name, None)
        await wait_all_tasks_blocked()
        await operations.getattr(ROOT, None)
        assert sorted(marks.in_flight()) == sorted(call_of("lookup", ROOT, name, None) for name in (b"a", b"b"))
    assert marks.in_flight() == []
    marks.check_invariants()


# -- quarantine -------------------------------------------------------------------------------


async def test_a_call_that_killed_two_daemons(memory: int, caplog: pytest.LogCaptureFixture) -> None:
    """A call that killed two daemons is answered EIO by the third, with one ERROR line; everything else is handled."""
    operations, _ = after(memory, [READ], [READ])
    operations.go.set()
    for handle, offset in ((100, 4096), (101, 0)):
        with pytest.raises(pyfuse3.FUSEError) as raised:
            await operations.read(handle, offset, 10)
        assert raised.value.errno == errno.EIO
    await operations.read(102, 4096, 10)
    await operations.getattr(5)
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "read of number 5 killed two daemons" in record.message


async def test_a_death_that_nobody_asked_for_says_nothing(memory: int) -> None:
    """After a kill by hand the handlers are untouched, whatever was in flight."""
    marks = CallMarks(memory)
    marks.begin(READ.operation, READ.subject, 0, READ.offset)
    operations: Any = Handlers()
    Quarantine(operations, CallMarks(memory), Subjects(), trio.current_time).take_over(by_own_fault=False)
    assert vars(operations).keys() == {"running", "go"}
    assert marks.in_flight() == []


async def test_suspects_are_alone(memory: int, autojump_clock: MockClock) -> None:
    """Calls in flight at a death are handled one after the other and with nothing beside them, in their order."""
    others = [READ._replace(subject=number) for number in (102, 103)]
    operations, quarantine = after(memory, [READ, others[0]])
    seen = []
    async with trio.open_nursery() as nursery:
        for handle in (103, 100, 102, 104):
            nursery.start_soon(operations.read, handle, 4096, 10)
            await wait_all_tasks_blocked()
        for _ in range(4):
            seen.append([call.subject for call in operations.running])
            go, operations.go = operations.go, trio.Event()
            go.set()
            with trio.move_on_after(0.1):
                await trio.sleep_forever()
    assert seen == [[7], [5], [6], [8]]
    assert quarantine.statistics().suspects == 0
    assert vars(operations).keys() == {"running", "go"}, "the handlers are free again"


async def test_nobody_waits_long(memory: int, autojump_clock: MockClock) -> None:
    """A suspect that S3 does not answer holds others up for two seconds; then they go on beside it."""
    operations, _ = after(memory, [READ])
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(operations.read, 100, 4096, 10)
        await wait_all_tasks_blocked()
        nursery.start_soon(operations.getattr, 9)
        with trio.move_on_after(3):
            await trio.sleep_forever()
        assert len(operations.running) == 2
        operations.go.set()
    assert trio.current_time() - began == pytest.approx(3)


async def test_an_error_is_an_answer(memory: int) -> None:
    """A suspect that is answered with an error did not kill: it is not tried alone again."""
    operations, quarantine = after(memory, [READ], kind=Failing)
    assert quarantine.statistics().suspects == 1
    with pytest.raises(pyfuse3.FUSEError):
        await operations.read(100, 4096, 10)
    assert quarantine.statistics().suspects == 0


async def test_the_denial_ends(memory: int, autojump_clock: MockClock) -> None:
    """Ten minutes after the second death the call is handled again."""
    operations, quarantine = after(memory, [READ], [READ])
    operations.go.set()
    await trio.sleep(GUILTY_S + 1)
    await operations.read(100, 4096, 10)
    assert quarantine.statistics().guilty == 0
    assert "read" not in vars(operations)
