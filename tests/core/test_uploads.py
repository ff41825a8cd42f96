"""Parts of uploads: S3's limits hold for every size, and what did not change is copied."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3mount.core.ranges import ByteRange
from s3mount.core.uploads import (
    MAX_OBJECT,
    MAX_PART,
    MAX_PARTS,
    MIN_PART,
    PlannedPart,
    next_part_size,
    plan_parts,
    uniform_part_size,
)
from s3mount.units import GIB, KIB, MIB, TIB

PART = 8 * MIB


def check_limits(plan: list[PlannedPart], size: int) -> None:
    """No gap, no overlap, S3's limits."""
    assert all(left.span.stop == right.span.start for left, right in pairwise(plan))
    assert sum(part.span.length for part in plan) == size
    assert len(plan) <= MAX_PARTS
    assert all(part.span.length >= MIN_PART for part in plan[:-1])
    assert all(0 < part.span.length <= MAX_PART for part in plan)
    assert not plan or (plan[0].span.start, plan[-1].span.stop) == (0, size)


@pytest.mark.parametrize("part_size", [5 * MIB, PART, 64 * MIB, GIB])
def test_a_stream_of_unknown_length_fits(part_size: int) -> None:
    """10,000 parts reach 5 TiB, whatever the first one's size, and none is larger than S3 takes."""
    written = count = 0
    while written < MAX_OBJECT:
        size = next_part_size(written, part_size)
        assert part_size <= size <= MAX_PART
        written += size
        count += 1
    assert count <= MAX_PARTS


def test_parts_of_a_stream_stay_small() -> None:
    """The first ten GiB go in parts of 8 MiB; at 100 GiB a part is 80 MiB."""
    assert next_part_size(0, PART) == next_part_size(10 * GIB, PART) == PART
    assert next_part_size(100 * GIB, PART) == 80 * MIB


@given(st.integers(0, MAX_OBJECT), st.integers(MIN_PART, GIB))
def test_one_size_fits_all_parts(size: int, part_size: int) -> None:
    """The size asked for where it fits, else the smallest whole MiB that does."""
    chosen = uniform_part_size(size, part_size)
    assert chosen * MAX_PARTS >= size
    assert part_size <= chosen <= MAX_PART
    assert chosen == part_size or (chosen - MIB) * MAX_PARTS < size


def test_no_object_is_larger_than_s3_allows() -> None:
    """More than 5 TiB is refused before anything is sent."""
    for plan in (lambda: uniform_part_size(MAX_OBJECT + 1, PART), lambda: plan_parts(MAX_OBJECT + 1, 0, [], PART)):
        with pytest.raises(ValueError, match="larger than S3 allows"):
            plan()


def test_a_whole_copy_is_parts_beside_each_other() -> None:
    """Nothing changed: all is copied, a GiB in 16 parts and 5 TiB in at most 10,000."""
    assert plan_parts(GIB, GIB, [], PART) == [
        PlannedPart(ByteRange(number * 64 * MIB, (number + 1) * 64 * MIB), is_copy=True) for number in range(16)
    ]
    check_limits(plan_parts(5 * TIB, 5 * TIB, [], PART), 5 * TIB)


def test_an_append_sends_the_tail() -> None:
    """The old object is copied, what is new is sent; a small old object is sent, too."""
    plan = plan_parts(GIB + 5, GIB, [], PART)
    assert [part.span for part in plan if not part.is_copy] == [ByteRange(GIB, GIB + 5)]
    assert plan_parts(MIB + 5, MIB, [], PART) == [PlannedPart(ByteRange(0, MIB + 5), is_copy=False)]


def test_a_patch_sends_one_smallest_part() -> None:
    """One byte in the middle of a GiB costs 5 MiB; in the last one, nothing but itself and what follows."""
    plan = plan_parts(GIB, GIB, [ByteRange(GIB // 2, GIB // 2 + 1)], PART)
    assert [part.span for part in plan if not part.is_copy] == [ByteRange(GIB // 2, GIB // 2 + MIN_PART)]
    plan = plan_parts(GIB, GIB, [ByteRange(GIB - 10, GIB - 9)], PART)
    assert [part.span for part in plan if not part.is_copy] == [ByteRange(GIB - 10, GIB)]


def test_what_is_too_small_to_be_copied_is_sent() -> None:
    """Of 8 MiB between two changes 5 go with the first one, and 3 are no part that S3 would take."""
    changed = [ByteRange(0, 1), ByteRange(8 * MIB, 8 * MIB + 1)]
    plan = plan_parts(GIB, GIB, changed, PART)
    check_limits(plan, GIB)
    assert min(part.span.start for part in plan if part.is_copy) > 8 * MIB


def test_a_truncated_object_is_copied() -> None:
    """Cut off at any byte, nothing is sent; an empty one has no parts."""
    assert all(part.is_copy for part in plan_parts(100 * MIB + 1, GIB, [], PART))
    assert plan_parts(0, GIB, [], PART) == []


def test_changes_all_over_a_large_object_fit() -> None:
    """A byte in each 400 MiB of 5 TiB: 10,000 parts are kept to, by sending more."""
    changed = [ByteRange(at, at + 1) for at in range(0, 5 * TIB, 400 * MIB)]
    plan = plan_parts(5 * TIB, 5 * TIB, changed, PART)
    check_limits(plan, 5 * TIB)


SIZES = st.one_of(st.integers(0, 64 * MIB), st.integers(0, 4 * GIB), st.integers(0, MAX_OBJECT))


@st.composite
def edits(draw: st.DrawFn) -> tuple[int, int, list[ByteRange]]:
    """A new size, an old one, and what changed."""
    size, old_size = draw(SIZES), draw(SIZES)
    near = draw(st.sampled_from([64 * MIB, 4 * GIB, MAX_OBJECT]))
    cuts = sorted(draw(st.sets(st.integers(0, max(0, min(near, size))), max_size=12)))
    return size, old_size, [ByteRange(left, right) for left, right in zip(cuts[::2], cuts[1::2], strict=False)]


@given(edits(), st.sampled_from([5 * MIB, PART, 33 * MIB + 1, 512 * MIB]))
def test_every_plan_keeps_the_limits(edit: tuple[int, int, list[ByteRange]], part_size: int) -> None:
    """Whatever changed: S3's limits, no changed or new byte is copied, and little more is sent than changed."""
    size, old_size, changed = edit
    plan = plan_parts(size, old_size, changed, part_size)
    check_limits(plan, size)
    for part in plan:
        if part.is_copy:
            assert part.span.stop <= old_size
            assert not any(part.span.overlaps(each) for each in changed)
        else:
            assert part.span.length <= max(uniform_part_size(size, part_size), 2 * MIN_PART)
    sent = sum(part.span.length for part in plan if not part.is_copy)
    fresh = sum(each.length for each in changed) + max(0, size - old_size)
    # At either side of a change at most what is too small to be copied, twice where that made a rest too small.
    assert sent <= fresh + (len(changed) + 2) * (2 * MIN_PART + KIB)


def test_a_plan_does_not_depend_on_how_changes_are_named() -> None:
    """Touching ranges are one, empty ones none, and those beyond the end are nothing."""
    plain = plan_parts(GIB, GIB, [ByteRange(MIB, 3 * MIB)], PART)
    named = [ByteRange(0, 0), ByteRange(MIB, 2 * MIB), ByteRange(2 * MIB, 3 * MIB), ByteRange(2 * GIB, 3 * GIB)]
    assert plan_parts(GIB, GIB, named, PART) == plain
