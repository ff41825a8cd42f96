"""Which reads go on from which: out of order, interleaved, and not by chance."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s3mount.core.distance import LARGEST_UNIT
from s3mount.core.ranges import ByteRange
from s3mount.core.stream import DISORDER
from s3mount.core.streams import MAX_STREAMS, StreamTable
from s3mount.units import GIB, KIB, MIB
from tests.core.replays import READAHEAD, at, disordered, random_reads, run


def table_of(reads: list[ByteRange]) -> StreamTable:
    table = StreamTable()
    for wanted in reads:
        table.follow(wanted)
        table.take_left()
        table.check_invariants(64 * GIB)
    return table


@settings(max_examples=60)
@given(st.randoms(use_true_random=False), st.integers(0, 400), st.sampled_from([READAHEAD, MIB]))
def test_read_ahead_in_any_order_is_one_stream(dice: random.Random, first: int, length: int) -> None:
    """Twelve requests in flight that overtake each other, from the first read on, end as one stream."""
    start = first * length
    reads = list(disordered(run(start, start + 48 * length, length), dice))
    table = table_of(reads)
    assert len(table) == 1
    assert table.starts == 1
    assert table.runs() == [ByteRange(start, start + 48 * length)]


@settings(max_examples=60)
@given(st.randoms(use_true_random=False), st.integers(2, MAX_STREAMS))
def test_interleaved_readers_are_told_apart(dice: random.Random, n_readers: int) -> None:
    """Readers of one object that take turns in any order have a stream each, and none starts twice."""
    turns = [reader for reader in range(n_readers) for _ in range(8)]
    dice.shuffle(turns)
    done = dict.fromkeys(range(n_readers), 0)
    reads = []
    for reader in turns:
        reads.append(at(reader * GIB + done[reader] * READAHEAD))
        done[reader] += 1
    table = table_of(reads)
    assert table.starts == len(table) == n_readers
    assert sorted(table.runs()) == [ByteRange(n * GIB, n * GIB + MIB) for n in range(n_readers)]


@given(st.integers(0, 1000))
def test_random_reads_of_a_small_object_are_not_streams(seed: int) -> None:
    """Of 200 reads of 4 KiB anywhere in 100 MiB none earns a stream the bytes that a window takes."""
    table = StreamTable()
    for wanted in random_reads(100 * MIB, 4 * KIB, 200, random.Random(seed)):
        stream, _ = table.follow(wanted)
        assert stream.advanced < READAHEAD


@pytest.mark.parametrize("gap", [LARGEST_UNIT, -READAHEAD])
def test_one_read_has_little_slack(gap: int) -> None:
    """A second read belongs to the first if it starts within it, or 256 KiB behind its end; no farther."""
    assert len(table_of([at(GIB), at(GIB + READAHEAD + gap)])) == 1
    assert len(table_of([at(GIB), at(GIB + READAHEAD + gap + (1 if gap > 0 else -1), 1)])) == 1 + (gap > 0)


def test_slack_is_earned() -> None:
    """After n bytes a stream bears a gap of n, and at most of what the kernel has in flight."""
    for read, slack in ((2 * READAHEAD, 2 * READAHEAD), (40 * READAHEAD, DISORDER * READAHEAD)):
        reads = run(GIB, GIB + read)
        assert len(table_of([*reads, at(GIB + read + slack)])) == 1
        assert len(table_of([*reads, at(GIB + read + slack + 1)])) == 2


def test_a_reader_that_starts_over_is_another_stream() -> None:
    """A long stream does not take the reads of one who begins at its start, nor is merged with one it reaches."""
    reads = run(0, 20 * MIB)
    assert len(table_of([*reads, at(0), at(READAHEAD)])) == 2
    table = table_of([*run(10 * MIB, 20 * MIB), *run(0, 11 * MIB)])
    assert sorted(table.runs()) == [ByteRange(0, 11 * MIB), ByteRange(10 * MIB, 20 * MIB)]


def test_a_stream_is_left_after_its_patience() -> None:
    """Young streams are left after three reads elsewhere, old ones after eight; one that is read never."""
    for length, patience in ((MIB, 3), (100 * MIB, 8)):
        table = table_of(run(0, length))
        stream, _ = table.follow(at(length))
        stream.reach = length + GIB
        for number in range(1, patience + 1):
            assert table.take_left() == ()
            table.follow(at(number * GIB))
        assert table.take_left() == (ByteRange(length + READAHEAD, length + GIB),)
        assert table.take_left() == ()
    table = table_of(run(0, MIB))
    for number in range(1, 20):
        stream, _ = table.follow(at(MIB + (number - 1) * READAHEAD))
        stream.reach = GIB
        table.follow(at(number * GIB))
        assert table.take_left() == ()


def test_the_least_recent_goes() -> None:
    """State is bounded: one reader too many evicts the least recent, and what was ahead of it is left."""
    table = StreamTable()
    stream, _ = table.follow(at(0))
    stream.reach = MIB
    for number in range(1, MAX_STREAMS + 1):
        table.follow(at(number * GIB))
    assert len(table) == MAX_STREAMS
    assert ByteRange(READAHEAD, MIB) in table.take_left()
    assert all(run.start > 0 for run in table.runs())


def test_a_reader_among_many_is_not_left() -> None:
    """Once readers were seen to take turns, as many reads elsewhere as they make, and twice that, leave nothing."""
    table = StreamTable()
    for turn in range(6):
        for reader in range(16):
            stream, _ = table.follow(at(reader * GIB + turn * READAHEAD))
            stream.reach = stream.frontier + MIB
            assert table.take_left() == () or turn == 0
            table.follow(at(100 * GIB + (turn * 16 + reader) * GIB, 4 * KIB))
    assert len(table) == MAX_STREAMS


def test_a_usual_run_is_what_most_runs_reached() -> None:
    """Three of four runs that ended reached it; one that goes on is not counted; of three runs nothing is known."""
    table = StreamTable()
    lengths = [MIB, 5 * MIB, 3 * MIB, 2 * MIB, 4 * MIB]
    for number, length in enumerate(lengths):
        for wanted in run(number * GIB, number * GIB + length):
            table.follow(wanted)
        assert (table.usual_run() > 0) == (number >= 4)
    assert table.usual_run() == 2 * MIB
    table.follow(at(20 * GIB, 4 * KIB))
    assert table.usual_run() == 2 * MIB


def test_only_readers_that_take_turns_are_side_by_side() -> None:
    """One reader of many runs is none beside another; four that take turns went through all they read."""
    table = StreamTable()
    for number in range(8):
        for wanted in run(number * GIB, number * GIB + MIB):
            table.follow(wanted)
    assert table.side_by_side() == 0
    table = StreamTable()
    for turn in range(8):
        for number in range(4):
            table.follow(at(number * GIB + turn * READAHEAD))
    assert table.side_by_side() == 4 * MIB


def test_workers_that_start_together_leave_nobody() -> None:
    """Runs that begin within half a round trip count as one elsewhere; as many one after the other leave a stream."""
    for step_s, is_left in ((0.001, False), (0.02, True)):
        table = StreamTable()
        stream, _ = table.follow(at(0), 0.0, 0.01)
        stream.reach = 8 * MIB
        left = []
        for number in range(1, 8):
            table.follow(at(number * GIB), number * step_s, 0.01)
            left += table.take_left()
        assert bool(left) == is_left
