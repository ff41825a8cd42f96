"""Half-open byte ranges: gaps, alignment, coverage.

INVARIANT: 0 <= start <= stop; a range with start == stop is empty and is never in a list.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple


class ByteRange(NamedTuple):
    """Bytes start, start + 1, …, stop - 1."""

    start: int
    stop: int

    @property
    def length(self) -> int:
        """Number of bytes."""
        return self.stop - self.start

    def overlaps(self, other: "ByteRange") -> bool:
        """Whether the two share a byte."""
        return max(self.start, other.start) < min(self.stop, other.stop)

    def intersection(self, other: "ByteRange") -> "ByteRange":
        """The common bytes; empty when there are none."""
        start = max(self.start, other.start)
        return ByteRange(start, max(start, min(self.stop, other.stop)))


def gaps(wanted: ByteRange, covered: Iterable[ByteRange]) -> list[ByteRange]:
    """The parts of `wanted` that no range of `covered` holds, in order.

    Args:
        covered: in order of start; they may touch but not overlap.
    """
    missing = []
    at = wanted.start
    for have in covered:
        if have.stop <= at:
            continue
        if have.start >= wanted.stop:
            break
        if have.start > at:
            missing.append(ByteRange(at, have.start))
        at = have.stop
    if at < wanted.stop:
        missing.append(ByteRange(at, wanted.stop))
    return missing


def aligned(wanted: ByteRange, unit: int, size: int) -> ByteRange:
    """`wanted` grown outward to multiples of `unit`, but not past `size`."""
    start = wanted.start // unit * unit
    stop = -(-wanted.stop // unit) * unit
    return ByteRange(start, min(stop, max(size, wanted.stop)))


def split(wanted: ByteRange, unit: int) -> Iterator[ByteRange]:
    """`wanted` cut at multiples of `unit`, in order."""
    at = wanted.start
    while at < wanted.stop:
        stop = min((at // unit + 1) * unit, wanted.stop)
        yield ByteRange(at, stop)
        at = stop


class Coverage:
    """A set of bytes, kept as few merged ranges: how much of a file has been delivered.

    INVARIANT: the ranges are in order, not empty, and neither overlap nor touch.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []

    def add(self, new: ByteRange) -> None:
        """Put it where it belongs."""
        if new.length == 0:
            return
        first = bisect_left(self._stops, new.start)
        last = bisect_right(self._starts, new.stop)
        if first == last:  # touches none: the first read of a file, most often
            self._starts.insert(first, new.start)
            self._stops.insert(first, new.stop)
            return
        start = min([new.start, *self._starts[first:last]])
        stop = max([new.stop, *self._stops[first:last]])
        self._starts[first:last] = [start]
        self._stops[first:last] = [stop]

    def discard(self, gone: ByteRange) -> None:
        """Take out what of it is there."""
        if gone.length == 0:
            return
        first = bisect_right(self._stops, gone.start)
        last = bisect_left(self._starts, gone.stop)
        if first == last:
            return
        kept = [(self._starts[first], gone.start), (gone.stop, self._stops[last - 1])]
        kept = [(start, stop) for start, stop in kept if start < stop]
        self._starts[first:last] = [start for start, _ in kept]
        self._stops[first:last] = [stop for _, stop in kept]

    def holds(self, wanted: ByteRange) -> bool:
        """Whether every byte of `wanted` was added."""
        if wanted.length == 0:
            return True
        at = bisect_right(self._starts, wanted.start) - 1
        return at >= 0 and self._stops[at] >= wanted.stop

    def missing(self, wanted: ByteRange) -> list[ByteRange]:
        """The parts of `wanted` that were not added, in order."""
        first = bisect_right(self._stops, wanted.start)
        last = bisect_left(self._starts, wanted.stop)
        return gaps(wanted, map(ByteRange, self._starts[first:last], self._stops[first:last]))

    def __iter__(self) -> Iterator[ByteRange]:
        """The ranges, in order."""
        return map(ByteRange, self._starts, self._stops)

    def __len__(self) -> int:
        """Number of ranges."""
        return len(self._starts)

    @property
    def length(self) -> int:
        """Number of bytes."""
        return sum(self._stops) - sum(self._starts)

    def check_invariants(self) -> None:
        """Raises ValueError when an invariant of the class does not hold."""
        bounds = [bound for pair in zip(self._starts, self._stops, strict=True) for bound in pair]
        if any(left >= right for left, right in pairwise(bounds)):
            raise ValueError(f"coverage is not merged and ordered: {bounds}")
