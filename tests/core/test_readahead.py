"""The planner against its state table, and properties of every sequence of reads."""

from collections.abc import Iterable, Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s3mount.core.ranges import ByteRange, Coverage, aligned
from s3mount.core.readahead import AHEAD_PARTS, HEAD, MAX_STREAMS, RANDOM_UNIT, SLACK, SMALL_FILE, Plan, Planner
from s3mount.units import GIB, KIB, MIB
from tests.core.strategies import spans

PART = 8 * MIB
NO_LIMIT = 64 * GIB

part_sizes = st.sampled_from([5 * MIB, PART, 16 * MIB, 5 * MIB + 4097])
limits = st.one_of(st.just(NO_LIMIT), st.integers(0, 20 * PART))


def at(offset: int, length: int = RANDOM_UNIT) -> ByteRange:
    """A read, as the kernel's read-ahead makes them."""
    return ByteRange(offset, offset + length)


def plan_all(planner: Planner, reads: Iterable[ByteRange], limit: int = NO_LIMIT) -> Iterator[Plan]:
    """The plan of each read, with the invariants checked after it."""
    for wanted in reads:
        plan = planner.on_read(wanted, limit)
        planner.check_invariants()
        yield plan


def reach_of(plan: Plan) -> int:
    """The end of what a plan has in flight."""
    return plan.ahead[-1].stop if plan.ahead else plan.fetch.stop


def in_parts(start: int, stop: int, part: int = PART) -> tuple[ByteRange, ...]:
    """What lies ahead, cut at multiples of the part size."""
    bounds = [start, *range((start // part + 1) * part, stop, part), stop]
    return tuple(ByteRange(left, right) for left, right in pairwise(bounds))


@st.composite
def readings(draw: st.DrawFn) -> tuple[int, list[ByteRange]]:
    """An object, and reads of it that go on, step around the frontier, or jump."""
    size = draw(st.one_of(st.integers(1, 4 * MIB), st.integers(1, 200 * MIB), st.integers(GIB, 2 * GIB)))
    reads: list[ByteRange] = []
    for _ in range(draw(st.integers(1, 25))):
        if reads and draw(st.integers(0, 3)):
            step = draw(st.sampled_from([0, 0, 0, RANDOM_UNIT, -RANDOM_UNIT, SLACK, -SLACK, SLACK + 1, PART]))
            start = min(max(0, reads[-1].stop + step), size - 1)
            length = draw(st.sampled_from([1, 4 * KIB, RANDOM_UNIT, RANDOM_UNIT + 1, MIB]))
            reads.append(ByteRange(start, min(start + length, size)))
        else:
            reads.append(draw(spans(size, MIB, min_length=1)))
    return size, reads


# -- the state table ------------------------------------------------------------------------


def test_a_stream_from_the_start_follows_the_table() -> None:
    """First the head, then the head and two parts, then the part and a window that doubles up to its bound."""
    plans = list(plan_all(Planner(GIB, PART), [at(number * RANDOM_UNIT) for number in range(6)]))
    assert plans[0] == Plan(ByteRange(0, HEAD), ())
    assert plans[1] == Plan(ByteRange(0, HEAD), in_parts(HEAD, 2 * PART))
    assert plans[2] == Plan(ByteRange(0, PART), in_parts(PART, 4 * PART))
    assert plans[3] == Plan(ByteRange(0, PART), in_parts(PART, AHEAD_PARTS * PART))
    assert plans[4] == plans[5] == plans[3]


def test_a_stream_from_elsewhere_follows_the_table() -> None:
    """First one unit, since it may be random; the second read that advances makes it a stream."""
    start = 10 * PART + 3 * MIB
    plans = list(plan_all(Planner(GIB, PART), [at(start + number * RANDOM_UNIT) for number in range(4)]))
    assert plans[0] == Plan(at(start), ())
    assert plans[1] == Plan(ByteRange(start, start + HEAD), in_parts(start + HEAD, 12 * PART))
    assert plans[2] == Plan(ByteRange(start, 11 * PART), in_parts(11 * PART, 14 * PART))
    assert plans[3] == Plan(ByteRange(start, 11 * PART), in_parts(11 * PART, 18 * PART))


def test_a_read_that_does_not_advance_keeps_the_window() -> None:
    """A read behind the frontier fetches one unit on demand, and the stream's window stays as it was."""
    planner = Planner(GIB, PART)
    *_, last = plan_all(planner, [at(number * MIB, MIB) for number in range(4)])
    (plan,) = plan_all(planner, [at(4 * MIB - 2 * RANDOM_UNIT)])
    assert plan.fetch == at(4 * MIB - 2 * RANDOM_UNIT)
    assert reach_of(plan) == reach_of(last) == AHEAD_PARTS * PART


def test_a_single_read_twice_is_not_a_stream() -> None:
    """The same bytes again do not advance, so nothing is fetched ahead however often they are read."""
    for offset in (0, 50 * MIB):
        assert all(plan.ahead == () for plan in plan_all(Planner(GIB, PART), [at(offset)] * 10))


@pytest.mark.parametrize(("gap", "is_stream"), [(SLACK, True), (SLACK + 1, False), (-SLACK, True), (-SLACK - 1, False)])
def test_a_stream_ends_at_the_slack(gap: int, *, is_stream: bool) -> None:
    """A read that starts up to SLACK before or behind the frontier belongs to the stream, a further one does not."""
    planner = Planner(GIB, PART)
    frontier = 100 * MIB
    list(plan_all(planner, [at(frontier - RANDOM_UNIT)]))
    (plan,) = plan_all(planner, [ByteRange(frontier + gap, frontier + 2 * MIB)])
    assert bool(plan.ahead) == is_stream


def test_the_window_is_cut_to_the_limit_in_whole_parts() -> None:
    """With room for three and a half parts, three are planned; with room for none, none is."""
    start = 4 * PART
    reads = [at(start + number * RANDOM_UNIT) for number in range(4)]
    (*_, plan) = plan_all(Planner(GIB, PART), reads, 7 * PART // 2)
    assert plan.ahead == in_parts(5 * PART, 7 * PART)
    (*_, plan) = plan_all(Planner(GIB, PART), reads, 0)
    assert plan == Plan(ByteRange(start, start + PART), ())


# -- every sequence of reads ----------------------------------------------------------------


@settings(max_examples=200)
@given(readings(), part_sizes, limits)
def test_a_plan_has_the_right_shape(drawn: tuple[int, list[ByteRange]], part: int, limit: int) -> None:
    """Demand holds the read and little before it, ahead goes on from there in parts, all within the object."""
    size, reads = drawn
    for wanted, (fetch, ahead) in zip(reads, plan_all(Planner(size, part), reads, limit), strict=True):
        assert fetch.intersection(wanted) == wanted
        assert fetch.start >= 0
        assert fetch.start % RANDOM_UNIT == 0 or fetch.start % part == 0
        assert fetch.stop == size or fetch.stop % RANDOM_UNIT == 0 or fetch.stop % part == 0
        assert wanted.start - fetch.start < HEAD
        assert fetch.stop <= aligned(wanted, max(part, HEAD), size).stop
        stops = [fetch.stop, *(piece.stop for piece in ahead)]
        assert [piece.start for piece in ahead] == stops[:-1]
        assert all(0 < piece.length <= part for piece in ahead)
        assert all(stop % part == 0 or stop == size for stop in stops[1:])
        assert stops[-1] <= size


@settings(max_examples=200)
@given(readings(), part_sizes, limits)
def test_what_is_ahead_stays_within_its_limit(drawn: tuple[int, list[ByteRange]], part: int, limit: int) -> None:
    """Ahead of any read at most the limit and the window are planned; behind a frontier also the way up to it."""
    size, reads = drawn
    furthest = 0
    for wanted, plan in zip(reads, plan_all(Planner(size, part), reads, limit), strict=True):
        n_ahead = sum(piece.length for piece in plan.ahead)
        slack = 0 if wanted.stop > furthest else SLACK
        assert n_ahead <= min(limit, AHEAD_PARTS * part) + slack
        furthest = max(furthest, wanted.stop)


@given(spans(SMALL_FILE, min_length=1), part_sizes, limits, st.data())
def test_a_small_file_is_fetched_whole(span: ByteRange, part: int, limit: int, data: st.DataObject) -> None:
    """Up to 1 MiB, open and every read fetch the whole file and nothing ahead, and a hit needs no plan."""
    size = data.draw(st.integers(span.stop, SMALL_FILE))
    planner = Planner(size, part)
    whole = ByteRange(0, size)
    assert planner.on_open() == whole
    assert planner.on_hit(span)
    assert planner.on_read(span, limit) == Plan(whole, ())


@given(st.integers(0, 2 * GIB), part_sizes)
def test_open_starts_within_the_object(size: int, part: int) -> None:
    """Of any file open begins with the first MiB, or with all of it."""
    assert Planner(size, part).on_open() == ByteRange(0, min(size, MIB))


# -- sequential readers ---------------------------------------------------------------------


@st.composite
def shuffled_streams(draw: st.DrawFn) -> list[ByteRange]:
    """128 KiB reads of 24 MiB in order of MiB, but in any order within each, as read-ahead arrives."""
    start = draw(st.integers(0, 400)) * RANDOM_UNIT
    shuffles = draw(st.lists(st.permutations(range(8)), min_size=24, max_size=24))
    return [
        at(start + window * MIB + place * RANDOM_UNIT) for window, places in enumerate(shuffles) for place in places
    ]


@settings(max_examples=60)
@given(shuffled_streams(), part_sizes, st.sampled_from([GIB, 80 * MIB]))
def test_a_sequential_reader_has_eight_parts_ahead(reads: list[ByteRange], part: int, size: int) -> None:
    """After four MiB at most, out of order or not, eight parts from the one being read are planned."""
    frontier = 0
    reads = [wanted for wanted in reads if wanted.stop <= size]
    for number, (wanted, plan) in enumerate(zip(reads, plan_all(Planner(size, part), reads), strict=True)):
        frontier = max(frontier, wanted.stop)
        if number >= 32:
            assert reach_of(plan) >= min(size, (frontier // part + AHEAD_PARTS) * part)


@settings(max_examples=60)
@given(shuffled_streams(), part_sizes)
def test_a_sequential_reader_fetches_nothing_it_passed(reads: list[ByteRange], part: int) -> None:
    """What a stream plans starts less than one MiB before the stream does, also inside a part."""
    start = reads[0].start // MIB * MIB - MIB
    assert all(plan.fetch.start >= start for plan in plan_all(Planner(GIB, part), reads))


@settings(max_examples=60)
@given(st.integers(2, MAX_STREAMS), st.data())
def test_interleaved_streams_are_all_read_ahead(n_streams: int, data: st.DataObject) -> None:
    """Up to MAX_STREAMS readers of one object, in any interleaving, each get their own window."""
    planner = Planner(16 * GIB, PART)
    n_reads = dict.fromkeys(range(n_streams), 0)
    turns = data.draw(st.permutations([*range(n_streams)] * 5))
    for stream in turns:
        base = stream * 512 * MIB
        (plan,) = plan_all(planner, [at(base + n_reads[stream] * RANDOM_UNIT)])
        n_reads[stream] += 1
        expected = {1: 0, 2: 2, 3: 4}.get(n_reads[stream], AHEAD_PARTS)
        assert reach_of(plan) == (base + expected * PART if expected else plan.fetch.stop)


def test_one_stream_too_many_evicts_the_least_recent() -> None:
    """State is bounded: taking turns, MAX_STREAMS + 1 readers are never told from random ones."""
    planner = Planner(32 * GIB, PART)
    for turn in range(4):
        reads = [at((1 + stream) * 512 * MIB + turn * RANDOM_UNIT) for stream in range(MAX_STREAMS + 1)]
        assert all(plan.ahead == () for plan in plan_all(planner, reads))


def test_random_reads_do_not_evict_a_busy_stream() -> None:
    """A stream that goes on between the jumps of another reader keeps its window, and its hits."""
    planner = Planner(32 * GIB, PART)
    list(plan_all(planner, [at(number * RANDOM_UNIT) for number in range(4)]))
    for turn in range(4, 4 + 3 * MAX_STREAMS):
        jump, going_on = plan_all(planner, [at(turn * 512 * MIB), at(turn * RANDOM_UNIT)])
        assert jump.ahead == ()
        assert reach_of(going_on) == AHEAD_PARTS * PART
        assert planner.on_hit(at(turn * RANDOM_UNIT))


# -- random readers -------------------------------------------------------------------------


@given(st.lists(st.integers(1, 2000), unique=True, max_size=60), st.data(), part_sizes)
def test_a_random_reader_gets_what_it_asks_for(cells: list[int], data: st.DataObject, part: int) -> None:
    """Reads that jump are rounded to 128 KiB and never read ahead, however many they are."""
    offsets = st.integers(0, 2 * MIB)
    lengths = st.integers(1, RANDOM_UNIT)
    reads = [at(cell * 4 * MIB + data.draw(offsets), data.draw(lengths)) for cell in cells]
    for wanted, plan in zip(reads, plan_all(Planner(16 * GIB, part), reads), strict=True):
        assert plan == Plan(aligned(wanted, RANDOM_UNIT, 16 * GIB), ())


# -- the hot path ---------------------------------------------------------------------------


@settings(max_examples=200)
@given(readings(), part_sizes, limits)
def test_hits_do_not_change_later_plans(drawn: tuple[int, list[ByteRange]], part: int, limit: int) -> None:
    """A planner that is told of hits plans every other read as one that plans them all, at most a part later."""
    size, reads = drawn
    always = plan_all(Planner(size, part), reads, limit)
    planner = Planner(size, part)
    held = Coverage()
    furthest = 0
    for wanted, expected in zip(reads, always, strict=True):
        if held.holds(wanted) and planner.on_hit(wanted):
            assert size <= SMALL_FILE or reach_of(expected) <= furthest + part
        else:
            plan = planner.on_read(wanted, limit)
            assert plan == expected
            for span in (plan.fetch, *plan.ahead):
                held.add(span)
            furthest = max(furthest, reach_of(plan))
        planner.check_invariants()


@given(part_sizes, st.sampled_from([RANDOM_UNIT, 100_003, MIB]), st.integers(0, 60 * MIB), limits)
def test_a_stream_of_hits_is_planned_at_each_part(part: int, length: int, start: int, limit: int) -> None:
    """Once the window is wide, exactly the reads that reach the end of a part are planned again."""
    planner = Planner(GIB, part)
    reads = [at(start + number * length, length) for number in range(80 * MIB // length)]
    list(plan_all(planner, reads[:4], limit))
    for wanted, following in pairwise(reads[3:]):
        is_hit = planner.on_hit(following)
        assert is_hit == (following.stop // part == wanted.stop // part)
        if not is_hit:
            planner.on_read(following, limit)
        planner.check_invariants()


def test_a_hit_needs_a_wide_stream() -> None:
    """Before the window is wide, and for a read of no stream or of another one, the planner wants to plan."""
    planner = Planner(GIB, PART)
    assert not planner.on_hit(at(0))
    for number in range(AHEAD_PARTS.bit_length()):
        assert not planner.on_hit(at(number * RANDOM_UNIT))
        planner.on_read(at(number * RANDOM_UNIT), NO_LIMIT)
    assert planner.on_hit(at(4 * RANDOM_UNIT))
    assert planner.on_hit(at(3 * RANDOM_UNIT))
    assert not planner.on_hit(at(100 * MIB))
    planner.on_read(at(100 * MIB), NO_LIMIT)
    assert not planner.on_hit(at(5 * RANDOM_UNIT))


def test_a_broken_planner_is_found() -> None:
    """check_invariants raises when a read beyond the object moved a frontier out of it."""
    planner = Planner(10 * MIB, PART)
    planner.on_read(ByteRange(10 * MIB, 11 * MIB), NO_LIMIT)
    with pytest.raises(ValueError, match="outside its object"):
        planner.check_invariants()
