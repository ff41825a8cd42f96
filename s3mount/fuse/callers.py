"""Who has what open, and how much they were given: for people who ask which job reads, and what it waits for.

The kernel says with an open which thread calls.  Its process group stands for the job: what a shell, a scheduler or a
launcher started together.  Its name is looked up once, when it is first seen; that of a thread when somebody asks.
With reads the kernel says of whom they are, too, but pyfuse3 does not hand that on, so bytes count for the opener.

A file that was closed without a read was in the kernel's page cache, as far as can be seen from here: or it was empty,
or the program wanted to know only that it can be opened.

A thread of another pid name space has no number here: it is reader 0 of group 0.

INVARIANT: what is open was opened and not closed; everything else is bounded (core.tops, core.readers).
"""

import os
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from s3mount.core.readers import ReaderSeconds, ReaderTime
from s3mount.core.tops import Share, Tops
from s3mount.fs.waits import CALLER

C = TypeVar("C", bytes, memoryview)
K = TypeVar("K", bound=Hashable)

#: Of these a wait is a reader's; others are of who writes.
_READING = frozenset({"lookup", "getattr", "access", "opendir", "readdir", "open", "read", "readlink"})
#: Of files and openers that were closed.
_MAX_NOTED = 1024
_MAX_NAMES = 256


@dataclass(frozen=True)
class CallerStatistics:
    """Since the start.

    Attributes:
        opens, opens_without_reads: of files only to be read, and of these closed without a read.
        bytes_delivered, bytes_taken: content handed to the kernel, and got from it.
    """

    opens: int
    opens_without_reads: int
    bytes_delivered: int
    bytes_taken: int


class Opener(NamedTuple):
    """Attributes: a thread, 0 where it cannot be seen from here, and its process group, 0 where it has none."""

    pid: int
    group: int


class Use(NamedTuple):
    """Attributes: bytes delivered and taken, and opens, since the start; and how many are open now."""

    n_bytes: int
    opens: int
    is_open: int


class OpenFile:
    """One handle on a file or directory."""

    __slots__ = ("inode", "is_file", "is_read", "n_bytes", "opener")

    def __init__(self, inode: int, opener: Opener, is_file: bool, is_read: bool) -> None:  # noqa: FBT001  each open pays
        self.inode = inode
        self.opener = opener
        self.is_file = is_file
        self.is_read = is_read
        self.n_bytes = 0


def group_of(pid: int) -> int:
    """The process group of a thread, by the number that the kernel gives."""
    try:
        return os.getpgid(pid) if pid else 0
    except ProcessLookupError:
        return 0


class Callers:
    """Of one mount.

    Args:
        key_of: the key of an inode; None when it is not known any more.
        clock: seconds.
    """

    def __init__(
        self, key_of: Callable[[int], str | None] = lambda _: None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._key_of = key_of
        self._clock = clock
        self._open: dict[int, OpenFile] = {}
        self._time = ReaderTime()
        self._files: Tops[str] = Tops(_MAX_NOTED)
        self._openers: Tops[Opener] = Tops(_MAX_NOTED)
        self._known: dict[int, Opener] = {}
        self._names: dict[int, str] = {}
        self._opens = 0
        self._opens_without_reads = 0
        self._bytes_delivered = 0
        self._bytes_taken = 0

    def opened(self, handle: int, inode: int, pid: int, *, is_file: bool = True, is_read: bool = True) -> int:
        """A handle is given out; returns it.

        Args:
            is_read: nothing can be written to it.
        """
        opener = self._opener(pid)
        self._open[handle] = OpenFile(inode, opener, is_file, is_read)
        self._time.opened(pid, opener.group, self._clock())
        self._opens += is_file and is_read
        return handle

    def _opener(self, pid: int) -> Opener:
        """The same object for as long as a thread stays in its group."""
        group = group_of(pid)
        known = self._known.get(pid)
        if known is None or known.group != group:
            if group not in self._names:
                self._note_name(group)
            if len(self._known) >= _MAX_NOTED:
                self._known.clear()
            known = self._known[pid] = Opener(pid, group)
        return known

    def delivered(self, handle: int, content: C) -> C:
        """Content of a file goes to the kernel; returns it."""
        n_bytes = len(content)
        self._bytes_delivered += n_bytes
        known = self._open.get(handle)
        if known is not None:  # else an earlier daemon gave the handle out
            known.n_bytes += n_bytes
        return content

    def taken(self, handle: int, n_bytes: int) -> int:
        """Content of a file came from the kernel; returns how much."""
        self._bytes_taken += n_bytes
        known = self._open.get(handle)
        if known is not None:
            known.n_bytes += n_bytes
        return n_bytes

    def closed(self, handle: int) -> int:
        """A handle goes; returns it.  Call it while its inode is still known."""
        known = self._open.pop(handle, None)
        if known is not None:
            self._time.closed(known.opener.pid, self._clock())
            if known.is_file:
                if known.n_bytes:
                    self._files.add(self._key_of(known.inode) or "", known.n_bytes)
                    self._openers.add(known.opener, known.n_bytes)
                else:
                    self._opens_without_reads += known.is_read
        return handle

    @contextmanager
    def waiting(self, operation: str, subject: int, pid: int) -> Iterator[None]:
        """A call waits inside the block, of the thread that makes it, or else of the one that opened the handle."""
        known = None if pid else self._open.get(subject)
        opener = self._opener(pid) if known is None else known.opener
        token = CALLER.set(opener.group)
        is_reading = operation in _READING
        if is_reading:
            self._time.waits(opener.pid, opener.group, self._clock())
        try:
            yield
        finally:
            if is_reading:
                self._time.goes_on(opener.pid, self._clock())
            CALLER.reset(token)

    def key_of(self, subject: int) -> str | None:
        """The key of what a call is about, by its inode or handle; None when it is not known."""
        known = self._open.get(subject)
        return self._key_of(subject if known is None else known.inode)

    def _note_name(self, group: int) -> None:
        if len(self._names) >= _MAX_NAMES:
            del self._names[next(iter(self._names))]
        self._names[group] = name_of(group)

    # -- for people -------------------------------------------------------------------------

    def group_name(self, group: int) -> str:
        """What the process that leads a group called itself when it was first seen; empty where that is not known."""
        return self._names.get(group, "")

    def reader_seconds(self) -> dict[int, ReaderSeconds]:
        """See `ReaderTime.seconds`, by process group."""
        return self._time.seconds(self._clock())

    def files(self) -> dict[str, Use]:
        """By key; of files that nobody has open, those with most bytes, and no open without any."""
        return self._uses(self._files.largest(_MAX_NOTED), lambda known: self._key_of(known.inode) or "")

    def openers(self) -> dict[Opener, Use]:
        """By opener; the same holds for them."""
        return self._uses(self._openers.largest(_MAX_NOTED), lambda known: known.opener)

    def _uses(self, closed: list[tuple[K, Share]], name: Callable[[OpenFile], K]) -> dict[K, Use]:
        found = {each: Use(share.n_bytes, share.uses, 0) for each, share in closed}
        for known in self._open.values():
            if known.is_file:
                use = found.get(name(known), Use(0, 0, 0))
                found[name(known)] = Use(use.n_bytes + known.n_bytes, use.opens + 1, use.is_open + 1)
        return found

    def statistics(self) -> CallerStatistics:
        """A snapshot of the counters."""
        return CallerStatistics(self._opens, self._opens_without_reads, self._bytes_delivered, self._bytes_taken)

    def check_invariants(self) -> None:
        """Raises ValueError when more was closed without a read than opened, or a part contradicts itself."""
        if self._opens_without_reads > self._opens:
            raise ValueError("more files were closed without a read than opened")
        for part in (self._time, self._files, self._openers):
            part.check_invariants()


def name_of(pid: int) -> str:
    """What a process or thread calls itself (proc(5), comm); empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").removesuffix("\n") if pid else ""
    except OSError:
        return ""
