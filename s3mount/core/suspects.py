"""Which calls of the kernel may have killed the daemon, and which is not handled a third time.

The kernel sends every unanswered call again to the next daemon, also the one that killed the last.  So a daemon
that died by its own fault leaves behind which calls it was handling:

    in flight at a death            suspect; the next daemon handles each of them while it handles nothing else
    answered, well or not           not a suspect any more
    alone in flight at a death,     guilty: it killed two daemons.  It is answered with an error for `GUILTY_S`,
    and a suspect                   and so is everything of the same kind on the same inode

A call that was not alone is never found guilty: any of the others may have been it.  They all become
suspects, and the next daemon tells.  Both lists are bounded in number and in time, because a record
that never ends would deny a file for ever over a fault that an upgrade has mended.

INVARIANT: no call is suspect and guilty; neither list is longer than its bound.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

#: Seconds a call stays a suspect without being seen again: a program that was killed does not ask again.
SUSPECT_S = 60.0
#: Seconds a guilty call is answered with an error: a program that tries again each minute gives up, or is noticed.
GUILTY_S = 600.0
#: One call for each handler task that pyfuse3 may run, and as many from the daemon before.
MAX_SUSPECTS = 4096
MAX_GUILTY = 64


class Call(NamedTuple):
    """What tells one call from another; a call that is sent again is equal to itself.

    Attributes:
        operation: the number of a handler.
        subject: the inode; or the handle, as long as nobody has said which inode it is on.
        name: a hash of the name in it, or 0.
        offset: bytes or entries, or 0.
    """

    operation: int
    subject: int
    name: int = 0
    offset: int = 0

    @property
    def kind(self) -> "Call":
        """What is denied when this is guilty: at whatever offset, since the next one is likely to be as bad."""
        return self._replace(offset=0)


@dataclass(frozen=True)
class SuspectStatistics:
    """Attributes: calls that are handled alone, and calls that are denied."""

    suspects: int
    guilty: int


class Suspects:
    """The two lists; times are of a clock that the daemons of one mount share.

    Args:
        suspects, guilty: what a daemon before knew, with the times until when.
    """

    def __init__(self, suspects: Iterable[tuple[Call, float]] = (), guilty: Iterable[tuple[Call, float]] = ()) -> None:
        self._suspects = dict(suspects)
        self._guilty = dict(guilty)

    def died(self, in_flight: Iterable[Call], now: float) -> Call | None:
        """The daemon died by its own fault while it handled these; returns the one that is guilty, if one is."""
        self.expire(now)
        calls = set(in_flight)
        if len(calls) == 1 and (alone := next(iter(calls))) in self._suspects:
            del self._suspects[alone]
            _put(self._guilty, alone.kind, now + GUILTY_S, MAX_GUILTY)
            for call in [call for call in self._suspects if call.kind in self._guilty]:
                del self._suspects[call]
            return alone
        for call in sorted(calls):
            if call.kind not in self._guilty:
                _put(self._suspects, call, now + SUSPECT_S, MAX_SUSPECTS)
        return None

    def answered(self, call: Call) -> None:
        """The daemon lived to answer it."""
        self._suspects.pop(call, None)

    def is_suspect(self, call: Call) -> bool:
        """Whether it must be handled alone."""
        return call in self._suspects

    def is_guilty(self, call: Call) -> bool:
        """Whether it must not be handled."""
        return call.kind in self._guilty

    def expire(self, now: float) -> None:
        """Forget what is too old."""
        for calls in (self._suspects, self._guilty):
            for call in [call for call, until in calls.items() if until <= now]:
                del calls[call]

    def __bool__(self) -> bool:
        return bool(self._suspects or self._guilty)

    def suspects(self) -> Iterator[tuple[Call, float]]:
        """Calls that are handled alone, and until when."""
        yield from self._suspects.items()

    def guilty(self) -> Iterator[tuple[Call, float]]:
        """Calls that are denied, and until when."""
        yield from self._guilty.items()

    def statistics(self) -> SuspectStatistics:
        """A snapshot of the counters."""
        return SuspectStatistics(len(self._suspects), len(self._guilty))

    def check_invariants(self) -> None:
        """Raises ValueError when a call is on both lists, or a list is too long."""
        if any(call.kind in self._guilty for call in self._suspects):
            raise ValueError("a call is suspect and guilty")
        if len(self._suspects) > MAX_SUSPECTS or len(self._guilty) > MAX_GUILTY:
            raise ValueError("too many calls are remembered")


def _put(calls: dict[Call, float], call: Call, until: float, most: int) -> None:
    """The newest stay."""
    calls.pop(call, None)
    calls[call] = until
    if len(calls) > most:
        del calls[next(iter(calls))]
