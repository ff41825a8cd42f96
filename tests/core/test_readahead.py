"""The planner against its state table, and properties of every sequence of reads."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s3mount.core.plans import Plan
from s3mount.core.ranges import ByteRange
from s3mount.core.readahead import MEDIUM_FILE, SMALL_FILE, Planner
from s3mount.core.siblings import Siblings
from s3mount.core.stream import AHEAD_PARTS, DISORDER
from s3mount.core.streams import MAX_STREAMS
from s3mount.core.windows import HEAD, part_within
from s3mount.units import GIB, KIB, MIB
from tests.core.replays import NO_LIMIT, PART, READAHEAD, Replay, at, run
from tests.core.strategies import spans

CELL = 128 * KIB
part_sizes = st.sampled_from([5 * MIB, PART, 16 * MIB, 5 * MIB + 4097])
limits = st.one_of(st.just(NO_LIMIT), st.integers(0, 20 * PART))


def plan_of(replay: Replay, wanted: ByteRange) -> Plan:
    """The plan of a read that is not a hit."""
    plan = replay.read(wanted)
    assert plan is not None
    return plan


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
    for _ in range(draw(st.integers(1, 40))):
        if reads and draw(st.integers(0, 3)):
            step = draw(st.sampled_from([0, 0, 0, CELL, -CELL, MIB, -MIB, MIB + 1, PART]))
            start = min(max(0, reads[-1].stop + step), size - 1)
            length = draw(st.sampled_from([1, 4 * KIB, CELL, CELL + 1, MIB]))
            reads.append(ByteRange(start, min(start + length, size)))
        else:
            reads.append(draw(spans(size, MIB, min_length=1)))
    return size, reads


# -- the state table ------------------------------------------------------------------------


def test_a_stream_from_the_start_follows_the_table() -> None:
    """First the head, then the head and two parts, then the part and a window that doubles up to its bound."""
    replay = Replay(GIB)
    plans = [plan_of(replay, wanted) for wanted in run(0, 4 * READAHEAD)]
    assert plans[0] == Plan(ByteRange(0, HEAD))
    assert plans[1].ahead == in_parts(HEAD, 2 * PART)
    assert plans[2].ahead == in_parts(2 * PART, 4 * PART)
    assert plans[3].ahead == in_parts(4 * PART, AHEAD_PARTS * PART)
    assert replay.gets == 1 + AHEAD_PARTS


def test_a_stream_from_elsewhere_follows_the_table() -> None:
    """First a cell, since it may be random; then as much as was read twice, and four times that ahead."""
    start = 10 * PART
    replay = Replay(GIB)
    reads = run(start, start + 2 * PART, MIB)
    assert plan_of(replay, reads[0]) == Plan(ByteRange(start, start + MIB))
    assert plan_of(replay, reads[1]) == Plan(
        ByteRange(start + MIB, start + 4 * MIB), in_parts(start + 4 * MIB, 11 * PART)
    )
    for wanted in reads[2:]:
        plan_of(replay, wanted)
        read = wanted.stop - start
        assert replay.held.missing(ByteRange(start, GIB)) == [ByteRange((start + 5 * read) // PART * PART, GIB)]
    assert 5 * read // PART == AHEAD_PARTS + 2


def test_where_readers_jump_a_stream_has_ahead_what_it_read() -> None:
    """After three jumps a run that advanced n bytes has at most n ahead, in whole parts from one part on."""
    replay = Replay(64 * GIB).play([at(30 * GIB), at(20 * GIB), at(40 * GIB)])
    start = 10 * GIB
    for wanted in run(start, start + 80 * MIB, MIB):
        plan = replay.read(wanted)
        read = wanted.stop - start
        if plan is not None and plan.ahead:
            assert reach_of(plan) <= wanted.stop + min(read, AHEAD_PARTS * PART)
    assert replay.held.holds(ByteRange(start, start + 80 * MIB + 7 * PART))


def test_small_reads_earn_a_window_by_their_bytes() -> None:
    """Sequential reads of 4 KiB from elsewhere fetch five times what they have read at most, in whole MiB."""
    replay = Replay(4 * GIB)
    for wanted in run(GIB, GIB + 3 * MIB, 4 * KIB):
        replay.read(wanted)
        assert replay.fetched <= HEAD + 5 * (wanted.stop - GIB)
    assert replay.fetched >= PART


def test_a_read_that_does_not_advance_keeps_the_window() -> None:
    """A read behind the frontier fetches one cell on demand, and the stream's window stays as it was."""
    replay = Replay(GIB)
    *_, last = [plan_of(replay, wanted) for wanted in run(0, 4 * MIB, MIB)]
    plan = replay.planner.on_read(at(4 * MIB - 2 * CELL), replay.situation(is_held=False))
    assert plan.fetch == at(4 * MIB - 2 * CELL)
    assert reach_of(plan) == reach_of(last) == AHEAD_PARTS * PART


def test_a_single_read_twice_is_not_a_stream() -> None:
    """The same bytes again do not advance, so nothing is fetched ahead however often they are read."""
    for offset in (0, 50 * MIB):
        replay = Replay(GIB)
        assert all(plan_of(replay, at(offset)).ahead == () for _ in range(10))


def test_the_window_is_cut_to_the_limit_in_whole_parts() -> None:
    """With room for three and a half parts, three are planned; with room for none, none is, and demand is small."""
    start = 4 * PART
    for limit, reach in ((7 * PART // 2, 8 * PART), (0, start + PART)):
        replay = Replay(GIB, limit=limit).play(run(start, start + PART))
        assert replay.held.missing(ByteRange(start, GIB)) == [ByteRange(reach, GIB)]


@pytest.mark.parametrize(("limit", "largest"), [(3 * MIB, 2 * MIB), (MIB, MIB), (600 * KIB, MIB // 2), (PART, PART)])
def test_parts_are_as_small_as_the_room(limit: int, largest: int) -> None:
    """A reader that may have less than a part ahead fetches pieces of that size, on demand and ahead, and each once."""
    replay = Replay(GIB, limit=limit)
    plans = [plan for wanted in run(0, 64 * MIB, READAHEAD) if (plan := replay.read(wanted)) is not None]
    assert max(span.length for plan in plans for span in (plan.fetch, *plan.ahead)) == largest
    assert replay.fetched <= 64 * MIB + limit


@pytest.mark.parametrize("size", [MIB + 1, 3 * MIB, MEDIUM_FILE])
@pytest.mark.parametrize("first", [[at(0)], [at(0, 16 * KIB), at(16 * KIB, 32 * KIB)]])
def test_a_medium_file_comes_whole_at_the_first_sign(size: int, first: list[ByteRange]) -> None:
    """One read of 128 KiB at the start, or a second one that goes on from there, has all parts in flight."""
    replay = Replay(size)
    replay.open()
    replay.play(first)
    assert replay.held.holds(ByteRange(0, size))
    assert replay.gets == 1 + -(-size // PART)
    assert all(replay.planner.on_hit(wanted) for wanted in run(READAHEAD, size))


def test_a_look_at_the_head_of_a_medium_file_costs_its_head() -> None:
    """A header of 8 bytes, and a jump, fetch the head that open began and one cell."""
    replay = Replay(12 * MIB)
    replay.open()
    replay.play([at(0, 8), at(9 * MIB, 4 * KIB)])
    assert (replay.gets, replay.fetched) == (2, HEAD + CELL)


def test_the_end_is_read_first() -> None:
    """A first read at the very end fetches 256 KiB, and the last MiB beside it; the same read later does not."""
    size = GIB + 12345
    replay = Replay(size)
    plan = plan_of(replay, ByteRange(size - 8, size))
    assert plan.fetch.length <= 256 * KIB + 64 * KIB
    assert len(plan.ahead) == 1
    assert plan.ahead[0].stop == plan.fetch.start
    assert MIB <= size - plan.ahead[0].start <= MIB + 64 * KIB
    replay = Replay(size)
    replay.play([at(100 * MIB), at(300 * MIB)])
    assert plan_of(replay, ByteRange(size - 8, size)).ahead == ()


def test_a_stream_that_was_left_is_named_once() -> None:
    """When the reader jumps about, what was ahead of its stream is to be cancelled, and must be earned again."""
    replay = Replay(64 * GIB).play(run(0, 4 * MIB, MIB))
    plans = [plan_of(replay, at(number * GIB)) for number in range(1, 12)]
    assert [plan.left for plan in plans if plan.left] == [(ByteRange(4 * MIB, AHEAD_PARTS * PART),)]
    assert plans[2].left or plans[3].left or plans[4].left
    assert reach_of(plan_of(replay, ByteRange(64 * MIB, 65 * MIB))) <= 65 * MIB


def test_what_was_refused_is_planned_again() -> None:
    """A part that the budget had no room for is ahead again at the next plan; one that came is not."""
    replay = Replay(GIB).play(run(0, 4 * READAHEAD))
    refused = ByteRange(3 * PART, 4 * PART)
    replay.planner.on_refused(refused)
    plan = replay.planner.on_read(at(4 * READAHEAD), replay.situation(is_held=True))
    assert plan.ahead == (refused,)


# -- every sequence of reads ----------------------------------------------------------------


@settings(max_examples=200)
@given(readings(), part_sizes, limits)
def test_every_read_is_fetched_and_nothing_outside(drawn: tuple[int, list[ByteRange]], part: int, limit: int) -> None:
    """Demand holds the read; all within the object; ahead in pieces of at most a part, within the limit."""
    size, reads = drawn
    replay = Replay(size, part=part, limit=limit)
    for wanted in reads:
        plan = replay.read(wanted)
        assert replay.held.holds(wanted)
        if plan is None:
            continue
        assert plan.fetch.intersection(wanted) == wanted
        assert all(0 <= span.start < span.stop <= size for span in (plan.fetch, *plan.ahead, *plan.left))
        assert all(piece.length <= part for piece in plan.ahead)
        assert sum(piece.length for piece in plan.ahead) <= limit + part + MIB * DISORDER
        assert sum(piece.length for piece in plan.ahead) <= max((AHEAD_PARTS + 1) * part + MIB * DISORDER, size)
        assert plan.fetch.length <= max(2 * part, wanted.length + 2 * HEAD, size if size <= SMALL_FILE else 0)
        assert len(replay.planner.statistics().ahead) <= MAX_STREAMS


@given(st.integers(0, 2 * GIB), part_sizes)
def test_open_starts_within_the_object(size: int, part: int) -> None:
    """Of a file nobody read yet open begins with the first MiB, or with all of it."""
    assert Planner(size, part, Siblings()).on_open() == ByteRange(0, min(size, MIB))


def test_open_begins_nothing_where_readers_jump() -> None:
    """Once an object was read at random, the next open of it does not fetch its head."""
    replay = Replay(GIB).play([at(100 * MIB), at(300 * MIB), at(500 * MIB)])
    replay.planner.on_close()
    assert replay.planner.keeps_state
    assert replay.planner.on_open().length == 0
    replay = Replay(GIB).play(run(0, 20 * MIB))
    replay.planner.on_close()
    assert not replay.planner.keeps_state


# -- the hot path ---------------------------------------------------------------------------


@given(part_sizes, st.sampled_from([READAHEAD, 100_003, MIB]), st.integers(0, 60 * MIB), limits)
def test_a_stream_of_hits_is_planned_at_each_part(part: int, length: int, start: int, limit: int) -> None:
    """Once the window is wide, exactly the reads that reach the end of a part are planned again."""
    replay = Replay(GIB, part=part, limit=limit)
    reads = run(start, start + 80 * MIB, length)
    ramp = max(8, 2 * part // length + 1)
    for wanted in reads[:ramp]:
        replay.planner.on_read(wanted, replay.situation(is_held=False))
    part = part_within(part, limit)
    for wanted, following in pairwise(reads[ramp - 1 : -1]):
        is_hit = replay.planner.on_hit(following)
        assert is_hit == (following.stop // part == wanted.stop // part)
        if not is_hit:
            replay.planner.on_read(following, replay.situation(is_held=True))


def test_a_hit_needs_a_stream_whose_window_is_open() -> None:
    """Before the window is wide, and for a read of no stream, the planner wants to plan; between two it does not."""
    replay = Replay(64 * GIB)
    planner = replay.planner
    assert not planner.on_hit(at(0))
    replay.play(run(0, 4 * READAHEAD))
    assert planner.on_hit(at(4 * READAHEAD))
    assert planner.on_hit(at(3 * READAHEAD))
    assert not planner.on_hit(at(10 * GIB))
    replay.play(run(20 * GIB, 20 * GIB + 6 * READAHEAD))
    assert planner.on_hit(at(5 * READAHEAD))
    assert planner.on_hit(at(20 * GIB + 6 * READAHEAD))


def test_a_broken_planner_is_found() -> None:
    """check_invariants raises when a read beyond the object moved a frontier out of it."""
    replay = Replay(40 * MIB)
    with pytest.raises(ValueError, match="outside its object"):
        replay.read(ByteRange(40 * MIB, 41 * MIB))
