"""Byte ranges against sets of ints."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3mount.core.ranges import ByteRange, Coverage, aligned, gaps, split
from tests.core.strategies import spans

SIZE = 48

small_spans = spans(SIZE)


def points(*ranges: ByteRange) -> set[int]:
    """The bytes of some ranges."""
    return {each for span in ranges for each in range(span.start, span.stop)}


def cut_at(bounds: set[int], chosen: list[bool]) -> list[ByteRange]:
    """Some of the ranges between neighbouring bounds: in order, some touch, none overlaps or is empty."""
    neighbours = [ByteRange(left, right) for left, right in pairwise(sorted(bounds))]
    return [span for span, keep in zip(neighbours, chosen, strict=False) if keep]


disjoint = st.builds(
    cut_at, st.sets(st.integers(0, SIZE), max_size=12), st.lists(st.booleans(), min_size=12, max_size=12)
)


@given(small_spans, small_spans)
def test_overlap_and_intersection_are_of_sets(one: ByteRange, other: ByteRange) -> None:
    """Two ranges overlap when they share a byte, and the intersection has exactly the shared bytes."""
    common = points(one) & points(other)
    assert one.length == len(points(one))
    assert one.overlaps(other) == bool(common)
    assert points(one.intersection(other)) == common
    assert one.intersection(other).length == len(common)


@given(small_spans, disjoint)
def test_gaps_are_what_is_not_covered(wanted: ByteRange, covered: list[ByteRange]) -> None:
    """The gaps have exactly the bytes nobody has, in order, none empty, none touching the next."""
    found = gaps(wanted, covered)
    assert points(*found) == points(wanted) - points(*covered)
    assert all(span.length > 0 for span in found)
    assert all(left.stop < right.start for left, right in pairwise(found))


@given(small_spans, st.integers(1, 20), st.integers(0, SIZE))
def test_alignment_grows_to_units_but_not_past_the_size(wanted: ByteRange, unit: int, size: int) -> None:
    """The aligned range contains the wanted one, starts and stops at a multiple, or stops at the object's end."""
    grown = aligned(wanted, unit, size)
    assert grown.start <= wanted.start
    assert grown.stop >= wanted.stop
    assert grown.start % unit == 0
    assert wanted.start - grown.start < unit
    assert grown.stop - wanted.stop < unit
    assert grown.stop % unit == 0 or grown.stop == max(size, wanted.stop)
    assert grown.stop <= max(size, wanted.stop)


@given(small_spans, st.integers(1, 20))
def test_split_cuts_at_multiples_only(wanted: ByteRange, unit: int) -> None:
    """The pieces are the range again, in order, each within one unit and none empty."""
    pieces = list(split(wanted, unit))
    assert points(*pieces) == points(wanted)
    assert sum(piece.length for piece in pieces) == wanted.length
    assert all(left.stop == right.start for left, right in pairwise(pieces))
    for piece in pieces:
        assert piece.length > 0
        assert piece.start // unit == (piece.stop - 1) // unit


@given(st.lists(small_spans, max_size=12), small_spans)
def test_coverage_is_a_set_of_bytes(added: list[ByteRange], asked: ByteRange) -> None:
    """Whatever was added in whatever order, coverage holds exactly those bytes and counts each once."""
    coverage = Coverage()
    model: set[int] = set()
    for span in added:
        coverage.add(span)
        model |= points(span)
        coverage.check_invariants()
        assert coverage.length == len(model)
        assert coverage.holds(asked) == (points(asked) <= model)


def test_touching_ranges_become_one() -> None:
    """A file read piece by piece is one range, however the pieces arrived: memory stays constant."""
    coverage = Coverage()
    for start in [0, 2, 4, 3, 1]:
        coverage.add(ByteRange(start, start + 1))
    assert coverage.holds(ByteRange(0, 5))
    coverage.check_invariants()


def test_a_broken_coverage_is_found() -> None:
    """check_invariants raises when ranges overlap, as an empty or backward range would make them."""
    coverage = Coverage()
    coverage.add(ByteRange(4, 2))
    with pytest.raises(ValueError, match="not merged and ordered"):
        coverage.check_invariants()
