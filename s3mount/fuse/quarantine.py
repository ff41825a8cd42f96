"""Calls that may have killed the daemon before are handled alone, and one that killed two is not handled.

Nothing of this is in the way of a call in a daemon whose predecessor did not die by its own fault: only where there
are suspects (core.suspects) are the handlers of `Operations` replaced by `_handle`, and put back when the
lists are empty.

A suspect waits until every other call has ended, and every call that comes later waits for it: so a death says which
it was.  All of that waiting is bounded, because a suspect may itself wait for an S3 that does not answer; a
death that comes then finds nobody guilty, and the next daemon tries again.

FORGET has no answer and is never sent again, so it passes.
"""

import errno
import logging
import time
import zlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

import pyfuse3
import trio

from s3mount.core.suspects import GUILTY_S, Call, SuspectStatistics
from s3mount.fuse.marks import CODES, OPERATIONS, CallMarks
from s3mount.fuse.operations import Operations
from s3mount.units import counted

log = logging.getLogger(__name__)

Handler = Callable[..., Awaitable[object]]

#: Seconds, ten times what a GET takes: a call waits no longer for suspects before it, nor a suspect for others to end.
_ALONE_S = 2.0
#: Seconds that a suspect waits for those before it.
_TURN_S = 30.0
#: Seconds between two looks for what is too old.
_EXPIRY_S = 1.0


def _clock() -> float:
    """Trio's own begins at another number in each process."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


class _Place(NamedTuple):
    """Which argument of a handler says what the `Call` is about: its subject is the first one."""

    is_handle: bool = False
    name: int | None = None
    offset: int | None = None


_PLACES = {
    "lookup": _Place(name=1),
    "getattr": _Place(),
    "access": _Place(),
    "opendir": _Place(),
    "readdir": _Place(is_handle=True, offset=1),
    "releasedir": _Place(is_handle=True),
    "open": _Place(),
    "read": _Place(is_handle=True, offset=1),
    "release": _Place(is_handle=True),
    "create": _Place(name=1),
    "write": _Place(is_handle=True, offset=1),
    "flush": _Place(is_handle=True),
    "fsync": _Place(is_handle=True),
    "setattr": _Place(),
    "mkdir": _Place(name=1),
    "rmdir": _Place(name=1),
    "unlink": _Place(name=1),
    "rename": _Place(name=1),
    "link": _Place(),
    "symlink": _Place(name=1),
    "readlink": _Place(),
}


class Subjects(Protocol):
    """Who knows what calls are about."""

    def inode_of(self, handle: int) -> int:
        """The inode that a handle is on."""
        ...

    def name_of(self, ino: int) -> str:
        """What people call an inode."""
        ...


class Quarantine:
    """Stands before the handlers while there is anything to suspect.

    Args:
        subjects: makes one call of all that read a file, by whatever handle.
        clock: seconds, the same for all daemons of a mount.
    """

    def __init__(
        self, operations: Operations, marks: CallMarks, subjects: Subjects, clock: Callable[[], float] = _clock
    ) -> None:
        self._operations = operations
        self._marks = marks
        self._subjects = subjects
        self._clock = clock
        self._suspects = marks.suspects()
        self._denied: set[Call] = set()
        self._next_expiry = 0.0
        self._running = 0
        self._ended = trio.Event()
        self._turn = trio.Lock()  # taken in the order of asking

    def take_over(self, *, by_own_fault: bool) -> None:
        """Learn from what the predecessor left; call it before anything is served.

        Args:
            by_own_fault: it died of something that a call may have done: a signal of the processor's, an abort, an
                exception, a loop without an end; not of a signal that somebody sent, nor by its own will.
        """
        if by_own_fault:
            in_flight = {self._known(call) for call in self._marks.in_flight()}
            if self._suspects.died(in_flight, self._clock()) is None and in_flight:
                log.warning(
                    "the daemon before died in one of %s; they are tried one at a time", counted(len(in_flight), "call")
                )
            self._marks.write(self._suspects)
        self._marks.clear()
        self._suspects.expire(self._clock())
        if self._suspects:
            for operation in filter(partial(hasattr, self._operations), _PLACES):
                handler = partial(self._handle, operation, getattr(self._operations, operation))
                setattr(self._operations, operation, handler)

    def call(self, operation: str, *arguments: Any) -> Call:
        """What a handler is called for with these arguments."""
        place = _PLACES[operation]
        name = 0 if place.name is None else zlib.crc32(arguments[place.name])
        return self._known(
            Call(CODES[operation], arguments[0], name, 0 if place.offset is None else arguments[place.offset])
        )

    def _known(self, call: Call) -> Call:
        place = _PLACES.get(OPERATIONS[call.operation - 1])
        is_handle = place is not None and place.is_handle
        return call._replace(subject=self._subjects.inode_of(call.subject)) if is_handle else call

    def _deny(self, operation: str, call: Call) -> pyfuse3.FUSEError:
        if call.kind not in self._denied:
            self._denied.add(call.kind)
            log.error(
                "%s of %s killed two daemons: it is answered EIO for %d minutes; please report it with this log",
                operation, self._subjects.name_of(call.subject), GUILTY_S // 60,
            )  # fmt: skip
        return pyfuse3.FUSEError(errno.EIO)

    async def _handle(self, operation: str, handler: Handler, *arguments: Any) -> object:
        call = self.call(operation, *arguments)
        self._expire()
        if self._suspects.is_guilty(call):
            raise self._deny(operation, call)
        if self._suspects.is_suspect(call):
            return await self._handle_alone(call, handler, *arguments)
        with trio.move_on_after(_ALONE_S):
            async with self._turn:
                pass
        return await self._run(handler, *arguments)

    async def _handle_alone(self, call: Call, handler: Handler, *arguments: Any) -> object:
        has_turn = False
        try:
            with trio.move_on_after(_TURN_S):
                await self._turn.acquire()
                has_turn = True
            with trio.move_on_after(_ALONE_S):
                while self._running:
                    await self._ended.wait()
            return await self._run(handler, *arguments)
        finally:
            if has_turn:
                self._turn.release()
            self._suspects.answered(call)
            self._settle()

    async def _run(self, handler: Handler, *arguments: Any) -> object:
        self._running += 1
        try:
            return await handler(*arguments)
        finally:
            self._running -= 1
            if not self._running:
                self._ended.set()
                self._ended = trio.Event()

    def _expire(self) -> None:
        now = self._clock()
        if now >= self._next_expiry:
            self._next_expiry = now + _EXPIRY_S
            self._suspects.expire(now)
            self._settle()

    def _settle(self) -> None:
        """Keep the lists for the next daemon; when nothing is left, stand no longer in the way."""
        self._marks.write(self._suspects)
        if not self._suspects:
            for operation in _PLACES:
                vars(self._operations).pop(operation, None)

    def statistics(self) -> SuspectStatistics:
        """A snapshot of the counters."""
        return self._suspects.statistics()

    def check_invariants(self) -> None:
        """Raises ValueError when the lists are inconsistent, or more calls ended than began."""
        self._suspects.check_invariants()
        if self._running < 0:
            raise ValueError("more calls ended than began")
