"""How far ahead of a stream is fetched: growth, its bounds, and what is expected of a run."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s3mount.core.distance import LARGEST_UNIT, SMALLEST_UNIT, Distance
from s3mount.core.ranges import ByteRange
from s3mount.core.stream import AHEAD_PARTS
from s3mount.core.windows import HEAD, MOST_AHEAD_PARTS
from s3mount.units import GIB, KIB, MIB
from tests.core.replays import FAR, PART, READAHEAD, Replay, at, disordered, in_turns, random_reads, records, run


def reach_of(replay: Replay, wanted: ByteRange) -> int:
    """Bytes that a read's plan has ahead of its end."""
    plan = replay.read(wanted)
    return plan.ahead[-1].stop - wanted.stop if plan is not None and plan.ahead else 0


def widest(replay: Replay, size: int) -> int:
    """The most parts that were ahead of a sequential reader."""
    return max(reach_of(replay, wanted) for wanted in run(0, size, MIB)) // PART


# -- growth -------------------------------------------------------------------------------------


def test_a_window_doubles_while_its_reader_waits() -> None:
    """8, 16, 32, 64 and 128 parts, each after the reader went through the last; never more, and 8 if it never waits."""
    waiting = Replay(8 * GIB, is_late=True)
    assert widest(waiting, 64 * PART) == 64
    assert widest(Replay(8 * GIB, is_late=True), 600 * PART) == MOST_AHEAD_PARTS
    assert widest(Replay(8 * GIB), 600 * PART) <= AHEAD_PARTS


@pytest.mark.parametrize(("share", "parts"), [(0.75, MOST_AHEAD_PARTS), (0.65, 2 * AHEAD_PARTS)])
def test_a_window_does_not_fill_a_full_network(share: float, parts: int) -> None:
    """Where each doubling leaves a connection less than 0.7 of its rate, the second one does not happen."""
    replay = Replay(8 * GIB, is_late=True)
    widest_seen = 0
    for wanted in run(0, 6 * GIB, MIB):
        ahead = reach_of(replay, wanted)
        if ahead > 1.5 * widest_seen >= 1.5 * AHEAD_PARTS * PART // 2:
            replay.distance = Distance(FAR.latency_s, replay.distance.bytes_per_s * share)
        widest_seen = max(widest_seen, ahead)
    assert widest_seen // PART == parts


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from([0, 100 * MIB, 100 * MIB + 12345]),
    st.sampled_from([4 * KIB, READAHEAD, MIB]),
    st.integers(1, 300),
    st.randoms(use_true_random=False),
)
def test_what_lies_ahead_is_bounded_by_what_was_read(start: int, length: int, count: int, dice: random.Random) -> None:
    """From 0 at most 8 parts or twice what was read; from elsewhere at most 4 times what was read."""
    replay = Replay(32 * GIB)
    for wanted in run(start, start + count * length, length):
        replay.is_late = dice.random() < 0.5
        read = wanted.stop - start
        ahead = reach_of(replay, wanted)
        assert ahead <= max(AHEAD_PARTS * PART, 2 * read)
        assert start == 0 or ahead <= max(4 * read, HEAD)


# -- usual runs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [512 * KIB, MIB, 4 * MIB])
def test_a_usual_run_is_two_requests(length: int) -> None:
    """After a few records of one length, the next is its cell and the rest, in parallel, and nothing more."""
    replay = Replay(64 * GIB)
    reads = records(64 * GIB, length, 40, random.Random(3))
    n_reads = length // READAHEAD
    replay.play(reads[: 10 * n_reads])
    waits, gets, fetched = replay.waits, replay.gets, replay.fetched
    replay.play(reads[10 * n_reads :])
    assert replay.waits - waits <= 30 * 1
    assert replay.gets - gets <= 30 * 2
    assert replay.fetched - fetched == 30 * length


def test_a_usual_run_is_at_most_a_part() -> None:
    """However long the runs were, a first read fetches at most a part."""
    replay = Replay(64 * GIB)
    replay.play(records(64 * GIB, 32 * MIB, 12, random.Random(3)))
    fetched = replay.fetched
    replay.read(at(40 * GIB + 5 * MIB))
    assert PART // 2 <= replay.fetched - fetched <= PART + SMALLEST_UNIT


def test_readers_in_turns_have_a_usual_run() -> None:
    """Runs that still go on, of sixteen readers that take turns, do not make the usual run shorter."""
    dice = random.Random(3)
    replay = Replay(64 * GIB)
    mine = records(64 * GIB, MIB, 320, dice)
    readers = [iter(mine[number * 160 : (number + 1) * 160]) for number in range(16)]
    replay.play(in_turns(readers, dice))
    assert replay.waits <= 1.4 * 320
    assert replay.fetched <= 1.25 * 320 * MIB


def test_runs_that_become_random_reads_waste_one_window() -> None:
    """When a pattern of long runs ends, at most eight first reads fetch a part in vain."""
    replay = Replay(64 * GIB)
    replay.play(records(64 * GIB, PART, 40, random.Random(3)))
    fetched = replay.fetched
    reads = random_reads(64 * GIB, 4 * KIB, 200, random.Random(4))
    replay.play(reads)
    assert replay.fetched - fetched <= AHEAD_PARTS * (PART + SMALLEST_UNIT) + 200 * LARGEST_UNIT


# -- nothing is waited for in vain --------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from([4 * KIB, 64 * KIB, READAHEAD, MIB]))
def test_a_jump_waits_for_its_cell_alone(dice: random.Random, length: int) -> None:
    """Whatever was read before, a jump's demand is 256 KiB at most, or the read with 64 KiB on either side."""
    replay = Replay(64 * GIB)
    replay.play(dice.choice([
        run(GIB, GIB + 40 * MIB, MIB),
        records(64 * GIB, MIB, 20, dice),
        random_reads(64 * GIB, 4 * KIB, 50, dice),
        list(disordered(run(0, 20 * MIB), dice)),
    ]))  # fmt: skip
    for wanted in random_reads(64 * GIB, length, 20, dice):
        starts = replay.planner.statistics().starts
        plan = replay.read(wanted)
        if plan is not None and wanted.start > 0 and replay.planner.statistics().starts > starts:
            assert plan.fetch.length <= max(LARGEST_UNIT, length + 2 * SMALLEST_UNIT)
