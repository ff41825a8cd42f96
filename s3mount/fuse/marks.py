"""What is being handled right now, in memory that outlives the daemon.

A process that dies in C code says nothing.  So before a handler does anything it is marked here, in memory that the
mounter holds too, and the next daemon reads which calls its predecessor was handling (core.suspects).

Most calls are answered without waiting, one after the other: for those there is one mark, `begin` and `end`, half a
microsecond together (measured).  A call that waits moves its mark to a slot of its own (`keep`), so that the next call
can use the first.  Between `begin` and `keep` nothing awaits.

Behind the slots lie the two lists of `core.suspects`, so that no daemon need trust another's words.
All of it is plain numbers of a fixed layout with a version in front; a table of another version is empty.

INVARIANT: a slot is free, or marks one call that waits.
"""

import os
import struct
from collections.abc import Iterator
from mmap import mmap

from s3mount.core.suspects import MAX_GUILTY, MAX_SUSPECTS, Call, Suspects
from s3mount.fs.interrupted import InterruptedCall

#: The handlers; a call's number is its place here, from 1 on, so names are only ever added at the end.
OPERATIONS = (
    "lookup", "forget", "getattr", "access", "opendir", "readdir", "releasedir", "open", "read", "release", "statfs",
    "create", "write", "flush", "fsync", "setattr", "mknod", "mkdir", "rmdir", "unlink", "rename", "link", "symlink",
    "readlink", "fsyncdir",
)  # fmt: skip
CODES = {name: code for code, name in enumerate(OPERATIONS, 1)}

_VERSION = 1
_HEADER = struct.Struct("<II")
#: Operation (0 for no call), hash of the name, subject, offset.
_MARK = struct.Struct("<BxxxIQQ")
#: The same, and until when.
_ENTRY = struct.Struct("<BxxxIQQd")
#: As many as there are handler tasks (fuse.session); a call beyond them is not marked.
_SLOTS = 2048
_CURRENT = 64
_FIRST_SLOT = 128
_SUSPECTS = _FIRST_SLOT + _SLOTS * _MARK.size
_GUILTY = _SUSPECTS + MAX_SUSPECTS * _ENTRY.size
#: Bytes of the memory that the mounter makes; pages that nobody wrote take none.
SIZE = _GUILTY + MAX_GUILTY * _ENTRY.size


def new_memory() -> int:
    """The descriptor of a new memory file for `CallMarks`."""
    descriptor = os.memfd_create("s3mount-marks")
    os.ftruncate(descriptor, SIZE)
    return descriptor


class CallMarks:
    """The table.

    Args:
        descriptor: of a memory file that outlives the process; None where nothing does.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self._memory = bytearray(SIZE) if descriptor is None else mmap(descriptor, SIZE)
        self._write = _MARK.pack_into
        self._free = list(range(_SUSPECTS - _MARK.size, _FIRST_SLOT - 1, -_MARK.size))
        if _HEADER.unpack_from(self._memory) != (_VERSION, len(self._memory)):
            self._memory[:] = bytes(len(self._memory))
            _HEADER.pack_into(self._memory, 0, _VERSION, len(self._memory))

    # -- this daemon's calls ----------------------------------------------------------------

    def begin(self, operation: int, subject: int, name: int, offset: int) -> None:
        """A call is being handled, and nothing else is."""
        self._write(self._memory, _CURRENT, operation, name, subject, offset)

    def end(self) -> None:
        """Nothing is being handled, but what waits."""
        self._memory[_CURRENT] = 0

    def keep(self) -> int | None:
        """The call that was begun will wait; returns its slot for `leave`, None when all are taken."""
        slot = self._free.pop() if self._free else None
        if slot is not None:
            self._memory[slot : slot + _MARK.size] = self._memory[_CURRENT : _CURRENT + _MARK.size]
        self._memory[_CURRENT] = 0
        return slot

    def leave(self, slot: int | None) -> None:
        """The call that waited has ended."""
        if slot is not None:
            self._memory[slot] = 0
            self._free.append(slot)

    # -- what is left behind ----------------------------------------------------------------

    def in_flight(self) -> list[Call]:
        """Calls that are marked: those of the daemon before, as long as this one has begun none."""
        places = (_CURRENT, *range(_FIRST_SLOT, _SUSPECTS, _MARK.size))
        found = (_MARK.unpack_from(self._memory, place) for place in places if self._memory[place])
        return [Call(operation, subject, name, offset) for operation, name, subject, offset in found]

    def interrupted(self) -> list[InterruptedCall]:
        """What is `in_flight`, as the file system calls it."""
        return [InterruptedCall(OPERATIONS[call.operation - 1], call.subject, call.name) for call in self.in_flight()]

    def clear(self) -> None:
        """Forget the calls that are marked."""
        self._memory[_CURRENT:_SUSPECTS] = bytes(_SUSPECTS - _CURRENT)

    def suspects(self) -> Suspects:
        """The lists as the last daemon wrote them."""
        return Suspects(self._entries(_SUSPECTS, MAX_SUSPECTS), self._entries(_GUILTY, MAX_GUILTY))

    def write(self, suspects: Suspects) -> None:
        """Keep the lists for the next daemon."""
        for start, most, entries in (
            (_SUSPECTS, MAX_SUSPECTS, suspects.suspects()),
            (_GUILTY, MAX_GUILTY, suspects.guilty()),
        ):
            content = b"".join(
                _ENTRY.pack(call.operation, call.name, call.subject, call.offset, until) for call, until in entries
            )
            self._memory[start : start + len(content)] = content
            if len(content) < most * _ENTRY.size:
                self._memory[start + len(content)] = 0

    def _entries(self, start: int, most: int) -> Iterator[tuple[Call, float]]:
        for place in range(start, start + most * _ENTRY.size, _ENTRY.size):
            operation, name, subject, offset, until = _ENTRY.unpack_from(self._memory, place)
            if not operation:
                return
            yield Call(operation, subject, name, offset), until

    def check_invariants(self) -> None:
        """Raises ValueError when a free slot marks a call."""
        if any(self._memory[slot] for slot in self._free):
            raise ValueError("a free slot marks a call")
