"""The aims of issue 4 for one mount, in simulated time: a store 20 or 30 ms away, 90 MB/s a connection.

Connections do not slow each other down here unless a test says so, and neither the kernel nor Python
takes time: what is left is what the planner decides.
"""

import random
from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock

from s3mount.core.attrs import ObjectId
from s3mount.core.ranges import ByteRange, Coverage
from s3mount.core.waits import Arrival
from s3mount.units import GIB, KIB, MIB
from tests.core.replays import at, random_reads, run, samples
from tests.fs.far_programs import (
    faults,
    opened,
    pread,
    read_all,
    read_beside,
    read_through_pages,
    shuffled_shards,
    whole_shards,
)
from tests.fs.far_store import BYTES_PER_S, LATENCY_S, FarStore
from tests.fs.harness import Mounted, file_system

PART = 8 * MIB
FARTHER_S = 0.030
#: Bytes a second that one connection brings by GETs of 8 MiB from 30 ms away.
CONNECTION = PART / (FARTHER_S + PART / BYTES_PER_S)

Program = Callable[[Mounted], Awaitable[None]]


class BusyStore(FarStore):
    """A FarStore behind a network that is full with ten connections."""

    def __init__(self, latency_s: float = LATENCY_S) -> None:
        super().__init__(latency_s)
        self.in_flight = self.most_in_flight = 0

    async def get_range(self, wanted: ObjectId, span: ByteRange, arrival: Arrival | None = None) -> bytes:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await trio.sleep(span.length / BYTES_PER_S * max(0, self.in_flight / 10 - 1))
        try:
            return await super().get_range(wanted, span, arrival)
        finally:
            self.in_flight -= 1


async def seconds(mounted: Mounted, program: Program) -> float:
    begun = trio.current_time()
    await program(mounted)
    return trio.current_time() - begun


async def dd(mounted: Mounted, key: str, size: int, length: int = 128 * KIB) -> None:
    handle = await opened(mounted, key)
    await read_beside(mounted, handle, run(0, size, length), 2)
    mounted.fs.release(handle)


# -- sequential ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("budget", "parts"), [(4 * GIB, 128), (GIB, 64), (256 * MIB, 16)])
async def test_the_window_grows_with_a_fast_reader(budget: int, parts: int, autojump_clock: MockClock) -> None:
    """A reader that takes all it gets has 0.9 of what 128 connections do, or as many as half the budget allows."""
    size = 6 * GIB
    store = FarStore(FARTHER_S)
    store.add("f", size)
    async with file_system(store, budget_bytes=budget) as mounted:
        handle = await opened(mounted, "f")
        await read_beside(mounted, handle, run(0, 3 * GIB, MIB), 2)
        begun = trio.current_time()
        await read_beside(mounted, handle, run(3 * GIB, size, MIB), 2)
        took_s = trio.current_time() - begun
        mounted.fs.release(handle)
    assert 3 * GIB / took_s >= 0.9 * parts * CONNECTION
    assert store.counts["gets"] <= size / PART + 2
    assert store.counts["bytes"] == size


async def test_a_gibibyte_while_the_window_grows(autojump_clock: MockClock) -> None:
    """The first GiB comes at 2.5 times the speed that a window of eight parts allows."""
    store = FarStore(FARTHER_S)
    store.add("f", GIB)
    async with file_system(store, budget_bytes=4 * GIB) as mounted:
        took_s = await seconds(mounted, lambda mounted: dd(mounted, "f", GIB))
    assert GIB / took_s >= 2.5 * 8 * CONNECTION


async def test_the_window_of_a_slow_reader_stays_small(autojump_clock: MockClock) -> None:
    """A reader that takes 300 MB/s never has more than eight parts and the one it reads."""
    store = BusyStore(FARTHER_S)
    store.add("f", GIB)
    async with file_system(store, budget_bytes=4 * GIB) as mounted:
        handle = await opened(mounted, "f")
        for wanted in run(0, GIB, MIB):
            await read_all(mounted, handle, [wanted])
            await trio.sleep(MIB / 300e6)
            assert mounted.blocks.statistics().held_bytes <= 9 * PART + 32 * MIB
        mounted.fs.release(handle)


async def test_a_full_network_is_not_filled_further(autojump_clock: MockClock) -> None:
    """Where ten connections fill the network, a reader that takes all it gets has at most 32 parts in flight."""
    store = BusyStore(FARTHER_S)
    store.add("f", 2 * GIB)
    async with file_system(store, budget_bytes=4 * GIB) as mounted:
        await dd(mounted, "f", 2 * GIB, MIB)
    assert 8 <= store.most_in_flight <= 33


async def test_a_stream_elsewhere_ahead_of_a_part(autojump_clock: MockClock) -> None:
    """A first record of 1 MiB in the middle of an object wastes at most four times its bytes."""
    store = FarStore()
    store.add("f", 4 * GIB)
    async with file_system(store) as mounted:
        handle = await opened(mounted, "f")
        await pread(mounted, handle, at(GIB + 5 * MIB, MIB))
        await trio.sleep(1)
        mounted.fs.release(handle)
    assert store.counts["bytes"] <= MIB + 5 * MIB


@pytest.mark.parametrize("size", [GIB, GIB + 777])
async def test_parallel_direct_reads_are_as_fast_as_sequential(size: int, autojump_clock: MockClock) -> None:
    """preadv of 64 MiB after 64 MiB with O_DIRECT, 64 READs of 1 MiB each: 0.9 of sequential, in parts."""
    store = FarStore(FARTHER_S)
    store.add("f", size)

    async def direct(mounted: Mounted) -> None:
        handle = await opened(mounted, "f")
        for call in run(0, size, 64 * MIB):
            await read_beside(mounted, handle, run(call.start, call.stop, MIB), 64)
        mounted.fs.release(handle)

    async with file_system(store, budget_bytes=4 * GIB) as mounted:
        direct_s = await seconds(mounted, direct)
    assert store.counts["gets"] <= size / PART + 3
    assert store.counts["bytes"] == size
    async with file_system(store, budget_bytes=4 * GIB) as mounted:
        assert await seconds(mounted, lambda mounted: dd(mounted, "f", size)) >= 0.9 * direct_s


# -- random -------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_tasks", [1, 16])
@pytest.mark.parametrize("length", [4 * KIB, 64 * KIB, 256 * KIB, MIB])
async def test_random_preads(length: int, n_tasks: int, autojump_clock: MockClock) -> None:
    """Anywhere in 4 GiB: latency <= 1.2 x (L + bytes / b), IOPS >= 0.9 of what it allows, 4 KiB fetch <= 256 KiB."""
    store = FarStore()
    store.add("f", 4 * GIB)
    ideal_s = LATENCY_S + length / BYTES_PER_S
    async with file_system(store, budget_bytes=4 * GIB) as mounted:
        handle = await opened(mounted, "f")
        await read_all(mounted, handle, random_reads(4 * GIB, 4 * KIB, 2, random.Random(1)))
        store.counts.clear()
        reads = random_reads(4 * GIB, length, 600, random.Random(3))
        begun = trio.current_time()
        await read_beside(mounted, handle, reads, n_tasks)
        latency_s = (trio.current_time() - begun) * n_tasks / len(reads)
        mounted.fs.release(handle)
    assert latency_s <= min(1.2, 1 / 0.9) * ideal_s
    assert store.counts["bytes"] <= len(reads) * max(256 * KIB, length + 128 * KIB)
    assert store.counts["gets"] <= 1.2 * len(reads)


@pytest.mark.parametrize(("n_tasks", "times"), [(1, 1.0), (16, 1.5)])
async def test_the_usual_length_is_fetched_at_once(n_tasks: int, times: float, autojump_clock: MockClock) -> None:
    """Buffered preads of 1 MiB by eight READs take one round trip, not three, once a few were seen."""
    store = FarStore()
    store.add("f", 4 * GIB)
    async with file_system(store, budget_bytes=4 * GIB) as mounted:
        handle = await opened(mounted, "f")
        reads = iter(random_reads(4 * GIB, MIB, 400, random.Random(3)))

        async def reader() -> None:
            for wanted in reads:
                await pread(mounted, handle, wanted)

        begun = trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(n_tasks):
                nursery.start_soon(reader)
        latency_s = (trio.current_time() - begun) * n_tasks / 400
        mounted.fs.release(handle)
    assert latency_s <= times * (LATENCY_S + MIB / BYTES_PER_S)
    assert store.counts["bytes"] <= 1.2 * 400 * MIB


# -- shuffled shards ----------------------------------------------------------------------------

SHARDS = [f"train/shard.{number:05}.mds" for number in range(16)]


async def by_four(mounted: Mounted, keys: list[str], seed: int | None) -> None:
    """Four readers of a quarter of the shards each, in a random order within a shard, or in sequence."""
    async with trio.open_nursery() as nursery:
        for reader in range(4):
            mine = keys[reader::4]
            if seed is None:
                nursery.start_soon(whole_shards, mounted, mine, 64 * MIB)
            else:
                nursery.start_soon(shuffled_shards, mounted, mine, 64 * MIB, random.Random(seed + reader))


@pytest.mark.parametrize(
    ("budget", "seed", "gets", "share"),
    [
        (GIB, 0, 1.2, 0.7),
        (GIB, 20, 1.2, 0.7),
        (512 * MIB, 40, 1.2, 0.7),
        (384 * MIB, 0, 3, 0.6),
        (256 * MIB, 0, 12, 0.18),
    ],
)
async def test_shards_shuffled_by_four_readers(
    budget: int, seed: int, gets: float, share: float, autojump_clock: MockClock
) -> None:
    """16 shards of 64 MiB: GETs <= 1.2 x bytes / 8 MiB, >= 0.7 of sequential; with room for half a shard each, some."""
    store = FarStore()
    for key in SHARDS:
        store.add(key, 64 * MIB)
    async with file_system(store, budget_bytes=budget) as mounted:
        shuffled_s = await seconds(mounted, lambda mounted: by_four(mounted, SHARDS, seed))
    assert store.counts["gets"] <= gets * 16 * 64 / 8
    assert store.counts["bytes"] <= 1.05 * 16 * 64 * MIB
    async with file_system(store, budget_bytes=budget) as mounted:
        assert await seconds(mounted, lambda mounted: by_four(mounted, SHARDS, None)) >= share * shuffled_s


async def test_shards_that_four_readers_share(autojump_clock: MockClock) -> None:
    """The same when the samples of each shard are dealt out to four readers: one download, 1.2 x bytes / 8 MiB GETs."""
    store = FarStore()
    for key in SHARDS:
        store.add(key, 64 * MIB)
    pages = {key: Coverage() for key in SHARDS}
    async with file_system(store, budget_bytes=GIB) as mounted:

        async def reader(which: int) -> None:
            for number, key in enumerate(SHARDS):
                handle = await opened(mounted, key)
                reads = list(samples(64 * MIB, 100 * KIB, random.Random(number)))
                mine = [each for pair in range(2 * which, len(reads), 8) for each in reads[pair : pair + 2]]
                await read_through_pages(mounted, handle, pages[key], mine)
                mounted.fs.release(handle)

        async with trio.open_nursery() as nursery:
            for which in range(4):
                nursery.start_soon(reader, which)
    assert store.counts["gets"] <= 1.2 * 16 * 64 / 8
    assert store.counts["bytes"] <= 1.05 * 16 * 64 * MIB


async def test_a_family_that_taught_the_wrong_thing_costs_one_member(autojump_clock: MockClock) -> None:
    """After a shuffled shard the next one comes whole at its first read; if that was wrong, no other one does."""
    store = FarStore()
    for key in SHARDS:
        store.add(key, 64 * MIB)
    async with file_system(store, budget_bytes=GIB) as mounted:
        await shuffled_shards(mounted, SHARDS[:1], 64 * MIB, random.Random(1))
        store.counts.clear()
        for key in SHARDS[1:]:
            handle = await opened(mounted, key)
            await read_all(mounted, handle, [at(30 * MIB, 50 * KIB)])
            mounted.fs.release(handle)
            await trio.sleep(20)
    assert store.counts["bytes"] <= 64 * MIB + 15 * (MIB + 256 * KIB)


# -- models -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("budget", "gets"), [(4 * GIB, 2.5), (512 * MIB, 5)])
async def test_tensors_sliced_by_many_processes(budget: int, gets: float, autojump_clock: MockClock) -> None:
    """8 processes x 4 threads map 4 x 512 MiB, 30 ms: bytes <= 1.05 x the files, time <= 1.5 x cat, GETs as stated."""
    store = FarStore(FARTHER_S)
    size, tensor = 512 * MIB, 32 * MIB
    keys = [f"model-{number:05}-of-00004.safetensors" for number in range(1, 5)]
    pages = {key: Coverage() for key in keys}
    for key in keys:
        store.add(key, size)

    async def thread(mounted: Mounted, key: str, which: int) -> None:
        handle = await opened(mounted, key)
        dice = random.Random(which)
        share = tensor // 8
        await read_through_pages(mounted, handle, pages[key], [at(0)])
        for begin in range(which * share, size, tensor):
            await read_through_pages(mounted, handle, pages[key], faults(begin, begin + share, dice))
        mounted.fs.release(handle)

    async def sliced(mounted: Mounted) -> None:
        async with trio.open_nursery() as nursery:
            for key in keys:
                for which in range(8):
                    nursery.start_soon(thread, mounted, key, which)

    async with file_system(store, budget_bytes=budget) as mounted:
        sliced_s = await seconds(mounted, sliced)
    assert store.counts["bytes"] <= 1.05 * 4 * size
    assert store.counts["gets"] <= gets * 4 * size / PART
    async with file_system(store, budget_bytes=budget) as mounted:
        assert sliced_s <= 1.5 * await seconds(mounted, lambda mounted: whole_shards(mounted, keys, size))


def load_file(size: int) -> list[ByteRange]:
    """safetensors: the length of the header, the header, and then a mapping tensor by tensor."""
    dice = random.Random(1)
    tensors = [
        each for begin in range(256 * KIB, size, 20 * MIB) for each in faults(begin, min(begin + 20 * MIB, size), dice)
    ]
    return [at(0, 16 * KIB), at(16 * KIB, 48 * KIB), at(64 * KIB), at(192 * KIB), *tensors]


def torch_load(size: int) -> list[ByteRange]:
    """The end of a zip file, its directory, and the members in order, each with a header before it."""
    head = [at(0, 16 * KIB), at(16 * KIB, 32 * KIB), at(48 * KIB, 64 * KIB)]
    return [ByteRange(size - 4 * KIB, size), at(size - 12 * KIB, 8 * KIB), *head, *run(112 * KIB, size)]


@pytest.mark.parametrize("reads", [load_file, torch_load])
async def test_loading_a_model_is_as_fast_as_dd(
    reads: Callable[[int], list[ByteRange]], autojump_clock: MockClock
) -> None:
    """safetensors load_file by a mapping, and torch.load, of 1 GiB at 30 ms: >= 0.8 of dd."""
    store = FarStore(FARTHER_S)
    store.add("f", GIB)

    async def load(mounted: Mounted) -> None:
        handle = await opened(mounted, "f")
        pages = Coverage()
        for wanted in reads(GIB):
            await read_through_pages(mounted, handle, pages, [wanted])
        mounted.fs.release(handle)

    async with file_system(store, budget_bytes=GIB) as mounted:
        load_s = await seconds(mounted, load)
    assert store.counts["bytes"] <= GIB + 2 * MIB
    assert store.counts["gets"] <= GIB / PART + 8
    async with file_system(store, budget_bytes=GIB) as mounted:
        assert await seconds(mounted, lambda mounted: dd(mounted, "f", GIB)) >= 0.8 * load_s
