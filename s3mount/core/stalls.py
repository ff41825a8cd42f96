"""When a GET stalls, and how many of those a second one may race.

A GET stalls when it takes much longer than GETs of its length do.  How long it is waited for:

    seen of its length                      patience
    --------------------------------------  -----------------------------------------------------
    `_ENOUGH` answers or more               `_MULTIPLE` times their p99
    fewer, but enough of other lengths      `_MULTIPLE` times the least of what those lengths say
    not enough of anything                  `_START_S`, and a second for each `_START_RATE` bytes
    whatever was seen                       never less than `FLOOR_S`

Lengths are put together by powers of two, so the longest of a class may take twice the time of the shortest, which
the multiple covers.  Time grows with the length, and at most in proportion to it: so larger answers say their
own p99 of a smaller one, and smaller answers theirs times the ratio.

How many may be raced: `_BURST`, and one more for each `_GETS_PER_RACE` answers.  A server that became slow
gets 5 % more requests and not twice as many; and because the other 95 % are waited for, their times soon tell
that this is how long a GET takes now.  For the same reason the time of a GET that lost a race is not noted: it
says nothing of how long an answer takes, and where 2 % stall it would make the p99 that of stalls.

No clock is here: times are what the caller measured, in seconds.
"""

from collections import defaultdict, deque
from collections.abc import Iterator
from typing import NamedTuple

from s3mount.units import MIB

#: Seconds.  S3 answers within 0.1 to 0.2 s as a rule (S3 User Guide, "Performance design patterns"), and advises a
#: second attempt for small requests after about 2 s; below 1 s this host's own hiccups would be raced.
FLOOR_S = 1.0
#: Twice for the width of a class, and half as much again for chance.
_MULTIPLE = 3
#: Answers; the largest time of so few stands for the p99.
_ENOUGH = 20
#: Of each class: the p99 is the third largest, and a change is followed after as many GETs.
_REMEMBERED = 200
#: Before anything is known: a third of the 32 s after which the CRT notices by itself (measured), and a slow
#: connection's rate.
_START_S = 10.0
_START_RATE = 8 * MIB
_GETS_PER_RACE = 20
_BURST = 8


class StallStatistics(NamedTuple):
    """GETs whose time was noted, and races that were granted."""

    noted: int
    granted: int


class Stalls:
    """What GETs of one mount took lately, and the races that are left."""

    def __init__(self) -> None:
        self._took: defaultdict[int, deque[float]] = defaultdict(lambda: deque(maxlen=_REMEMBERED))
        self._credit = _BURST * _GETS_PER_RACE
        self._noted = 0
        self._granted = 0

    def note(self, n_bytes: int, took_s: float) -> None:
        """A GET of so many bytes, one at least, was answered well, and lost no race."""
        self._took[n_bytes.bit_length()].append(took_s)
        self._noted += 1
        if self._credit < _BURST * _GETS_PER_RACE:
            self._credit += 1

    def patience_s(self, n_bytes: int) -> float:
        """Seconds after which a GET of so many bytes, one at least, has stalled."""
        p99 = self._p99(n_bytes.bit_length())
        if p99 is None:
            p99 = min(self._bounds(n_bytes), default=None)
        if p99 is None:
            return _START_S + n_bytes / _START_RATE
        return max(FLOOR_S, _MULTIPLE * p99)

    def _bounds(self, n_bytes: int) -> Iterator[float]:
        """What each class says of the p99 of a length that is not its own."""
        for size in self._took:
            p99 = self._p99(size)
            if p99 is not None:
                shortest = 2 ** (size - 1)
                yield p99 * max(1.0, n_bytes / shortest)

    def _p99(self, size: int) -> float | None:
        took = self._took.get(size, ())
        if len(took) < _ENOUGH:
            return None
        return sorted(took)[-1 - len(took) // 100]

    def grant(self) -> bool:
        """Whether one more GET may be raced; it counts as raced then."""
        if self._credit < _GETS_PER_RACE:
            return False
        self._credit -= _GETS_PER_RACE
        self._granted += 1
        return True

    def statistics(self) -> StallStatistics:
        """A snapshot of the counters."""
        return StallStatistics(self._noted, self._granted)

    def check_invariants(self) -> None:
        """Raises ValueError when more races were granted than there may be, or a time is impossible."""
        if not 0 <= self._credit <= _BURST * _GETS_PER_RACE:
            raise ValueError(f"{self._credit} is no credit for races")
        if self._granted > _BURST + self._noted / _GETS_PER_RACE:
            raise ValueError(f"{self._granted} races were granted for {self._noted} answers")
        if any(took_s < 0 for took in self._took.values() for took_s in took):
            raise ValueError("a GET took less than no time")
