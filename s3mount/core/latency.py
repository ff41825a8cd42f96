"""How long things took: counts in buckets that double, so that any duration is known within a factor of two.

Bucket i counts durations below 1.024 µs times 2^i and not below half of that: a shift and the length of the number in
bits say which, and nothing is allocated.  64 buckets hold every duration there is, the useful ones end at two minutes.

INVARIANT: the buckets add up to the count.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import add

#: The unit is 2^10 ns: of the powers of two the one next to a microsecond.
_SHIFT = 10
_BUCKETS = 64
UNIT_S = 1.024e-6
#: Buckets that are shown: the last one ends at 137 s, later than any deadline.
SHOWN = 28


@dataclass(frozen=True)
class Latencies:
    """A snapshot.

    Attributes:
        count, seconds: how many, and all of them together.
        buckets: how many of each; the last one has all that were longer.
    """

    count: int
    seconds: float
    buckets: tuple[int, ...]


class LatencyHistogram:
    """Counts durations."""

    __slots__ = ("_buckets", "_total_ns")

    def __init__(self) -> None:
        self._buckets = [0] * _BUCKETS
        self._total_ns = 0

    def note(self, duration_ns: int) -> None:
        """One more; not negative."""
        self._buckets[(duration_ns >> _SHIFT).bit_length()] += 1
        self._total_ns += duration_ns

    def statistics(self) -> Latencies:
        """What was counted so far."""
        shown = (*self._buckets[: SHOWN - 1], sum(self._buckets[SHOWN - 1 :]))
        return Latencies(sum(shown), self._total_ns / 1e9, shown)

    def check_invariants(self) -> None:
        """Raises ValueError when a count or the time is negative."""
        if min(self._buckets) < 0 or self._total_ns < 0:
            raise ValueError("a negative number of durations, or a negative duration")


def added(found: Iterable[Latencies]) -> Latencies:
    """The same of several sources, counted together."""
    total = Latencies(0, 0.0, (0,) * SHOWN)
    for each in found:
        buckets = tuple(map(add, total.buckets, each.buckets))
        total = Latencies(total.count + each.count, total.seconds + each.seconds, buckets)
    return total


def upper_bound_s(bucket: int) -> float:
    """Where a bucket ends, in seconds."""
    return UNIT_S * float(1 << bucket)


def quantile(buckets: Sequence[int], share: float) -> float:
    """Seconds within which a share of what was counted ended, as if it lay evenly in its bucket; 0 of nothing."""
    wanted = share * sum(buckets)
    below = 0
    for bucket, count in enumerate(buckets):
        if count and below + count >= wanted:
            start = upper_bound_s(bucket - 1) if bucket else 0.0
            return start + (upper_bound_s(bucket) - start) * (wanted - below) / count
        below += count
    return 0.0
