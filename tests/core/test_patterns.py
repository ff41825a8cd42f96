"""Whole access patterns against the planner: the numbers that core.readahead states.

1 GiB unless said otherwise, 30 ms and 90 MB/s, 128 KiB a read as the kernel's read-ahead makes them.
"""

import random
from collections.abc import Iterable

import pytest

from s3mount.core.ranges import ByteRange
from s3mount.units import GIB, KIB, MIB
from tests.core.replays import (
    FAR,
    NO_LIMIT,
    READAHEAD,
    Replay,
    disordered,
    in_turns,
    random_reads,
    records,
    run,
    samples,
    slices,
    strided,
)

LITTLE_ROOM = 128 * MIB


def played(reads: Iterable[ByteRange], *, size: int = GIB, limit: int = NO_LIMIT) -> Replay:
    replay = Replay(size, limit=limit)
    replay.open()
    return replay.play(reads)


@pytest.mark.parametrize("length", [READAHEAD, MIB])
@pytest.mark.parametrize("start", [0, 300 * MIB])
@pytest.mark.parametrize("seed", range(5))
def test_sequential_out_of_order(length: int, start: int, seed: int) -> None:
    """Read-ahead in any order, from any place: at most 20 GETs more than parts, 12 waits, 1 MiB of waste."""
    replay = played(disordered(run(start, GIB, length), random.Random(seed)))
    assert replay.gets <= (GIB - start) / (8 * MIB) + 20
    assert replay.waits <= 12
    assert replay.waste <= MIB


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("length", [READAHEAD, MIB])
def test_disorder_is_not_density(seed: int, length: int) -> None:
    """A sequential reader in the middle of a shard, out of order and not fast, does not make it a shuffled one."""
    replay = Replay(64 * MIB, tick_s=FAR.latency_s / 4)
    replay.play(disordered(run(20 * MIB, 60 * MIB, length), random.Random(seed), 4))
    assert not replay.planner.keeps_content


def test_a_jump_that_was_early_is_forgiven() -> None:
    """A read that came before those in front of it is no jump once they came: two others do not make three."""
    early = [ByteRange(number * MIB, (number + 1) * MIB) for number in (20, 24, 21, 22, 23)]
    elsewhere = ByteRange(5 * MIB, 6 * MIB)
    replay = Replay(64 * MIB, tick_s=0.016).play([*early, elsewhere])
    assert not replay.planner.keeps_content
    three = [ByteRange(number * MIB, (number + 1) * MIB) for number in (20, 50, 5)]
    assert Replay(64 * MIB).play(three).planner.keeps_content


@pytest.mark.parametrize("limit", [NO_LIMIT, LITTLE_ROOM])
@pytest.mark.parametrize(
    ("length", "stride", "gets", "ratio"),
    [
        (4 * KIB, 64 * KIB, 180, 16.1),
        (128 * KIB, 256 * KIB, 135, 2.01),
        (128 * KIB, 384 * KIB, 135, 3.01),
        (4 * KIB, MIB, 1024, 32.3),
        (128 * KIB, 4 * MIB, 257, 1.04),
    ],
)
def test_strides(length: int, stride: int, gets: int, ratio: float, limit: int) -> None:
    """Gaps of up to 256 KiB are read over like a sequential file; beyond them each read is a cell of its own."""
    replay = played(strided(GIB, length, stride), limit=limit)
    assert replay.gets <= gets
    assert replay.fetched <= ratio * replay.asked.length


def test_a_wide_stride_is_dense_in_the_end() -> None:
    """128 KiB of each MiB: where all of it fits, it is fetched whole after 1/32; else each read is a cell."""
    assert played(strided(GIB, 128 * KIB, MIB)).waits <= 257
    replay = played(strided(GIB, 128 * KIB, MIB), limit=LITTLE_ROOM)
    assert replay.gets <= 1024
    assert replay.waste <= MIB


@pytest.mark.parametrize("length", [256 * KIB, 512 * KIB, MIB, 2 * MIB, 8 * MIB])
def test_records_in_a_random_order(length: int) -> None:
    """Records of one length, in a random order: one wait each, and at most 1.25 bytes for each that is asked for."""
    replay = played(records(4 * GIB, length, 200, random.Random(7)), size=4 * GIB, limit=2 * GIB)
    assert replay.fetched <= 1.25 * replay.asked.length
    assert replay.waits <= 200 * 1.05
    assert replay.gets <= 200 * 2.2


def test_records_of_mixed_lengths() -> None:
    """128 KiB to 4 MiB anywhere: 1.7 bytes for each that is asked for, and three waits a record."""
    dice = random.Random(7)
    reads = []
    for _ in range(200):
        start, length = dice.randrange(4 * GIB - 4 * MIB), dice.choice([128, 256, 512, 1024, 2048, 4096]) * KIB
        reads += run(start, start + length)
    replay = played(reads, size=4 * GIB, limit=2 * GIB)
    assert replay.fetched <= 1.7 * replay.asked.length
    assert replay.waits <= 3 * 200


@pytest.mark.parametrize(
    ("length", "gap", "gets", "ratio"),
    [(MIB, MIB, 140, 2.03), (MIB, 4 * MIB, 420, 1.06), (4 * MIB, 4 * MIB, 270, 1.04), (8 * MIB, 8 * MIB, 200, 1.07)],
)
def test_reading_and_skipping(length: int, gap: int, gets: int, ratio: float) -> None:
    """A gap of 1 MiB is read over; larger ones are not fetched: a wait for each record, and 2 to 4 GETs."""
    reads = [each for start in range(MIB, GIB - length, length + gap) for each in run(start, start + length)]
    replay = played(reads, limit=LITTLE_ROOM)
    assert replay.gets <= gets
    assert replay.fetched <= ratio * replay.asked.length
    assert replay.waits <= len(reads) * READAHEAD / length + 10


@pytest.mark.parametrize("length", [4 * KIB, 64 * KIB, 128 * KIB, MIB])
@pytest.mark.parametrize("size", [300 * MIB, 4 * GIB])
def test_random_reads(length: int, size: int) -> None:
    """Where it does not fit whole, a random read fetches 256 KiB at most or itself, and nothing ahead."""
    reads = random_reads(size, length, 1000, random.Random(7))
    replay = played(reads, size=size, limit=LITTLE_ROOM)
    assert replay.fetched <= MIB + sum(max(256 * KIB, wanted.length + 128 * KIB) for wanted in reads)
    assert replay.gets <= 1.5 * len(reads)


@pytest.mark.parametrize("size", [100 * MIB, GIB])
def test_random_reads_where_it_fits(size: int) -> None:
    """Small reads fetch at most 128 KiB each also where all would fit; large ones bring all of it after 1/32."""
    replay = played(random_reads(size, 4 * KIB, 1000, random.Random(7)), size=size)
    assert replay.fetched <= 1001 * 128 * KIB + MIB
    replay = played(random_reads(size, 128 * KIB, 1000, random.Random(7)), size=size)
    assert replay.waits <= size / 32 / (128 * KIB) + 1
    assert replay.fetched == size


def test_a_shuffled_shard() -> None:
    """64 MiB in samples of 50 KiB: three jumps, then all of it; no byte twice, no waste."""
    replay = played(samples(64 * MIB, 50 * KIB, random.Random(7)), size=64 * MIB)
    assert replay.waits <= 3
    assert replay.gets <= 14
    assert replay.fetched <= 64 * MIB


@pytest.mark.parametrize(("limit", "gets"), [(NO_LIMIT, 200), (64 * MIB, 1400)])
def test_slices_of_tensors(limit: int, gets: int) -> None:
    """32 threads copy their slices of 512 MiB: no waste; where it fits a quarter of the requests."""
    readers = [slices(512 * MIB, 32, 32 * MIB, which) for which in range(32)]
    replay = played(in_turns(readers, random.Random(7)), size=512 * MIB, limit=limit)
    assert replay.gets <= gets
    assert replay.waste == 0
