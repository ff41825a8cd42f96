"""What the read engine promises in requests and bytes, counted at a store 20 ms away (issue 4)."""

import random

import pytest
import trio
from trio.testing import MockClock

from s3mount.core.ranges import ByteRange, Coverage
from s3mount.fs.objects import LINGER_S
from s3mount.units import GIB, KIB, MIB
from tests.core.replays import at, disordered, in_turns, random_reads, run, samples
from tests.fs.far_programs import opened, read_all, read_beside, read_through_pages, shuffled_shards, twice
from tests.fs.far_store import BYTES_PER_S, LATENCY_S, FarStore
from tests.fs.harness import file_system

PART = 8 * MIB


# -- sequential ---------------------------------------------------------------------------------


@pytest.mark.parametrize("n_tasks", [1, 12])
async def test_a_sequential_gibibyte(n_tasks: int, autojump_clock: MockClock) -> None:
    """1 GiB costs ceil(size / 8 MiB) + 2 GETs at most, no byte twice; also with 12 reads in flight."""
    store = FarStore()
    store.add("f", GIB - 12345)
    async with file_system(store, budget_bytes=GIB) as mounted:
        handle = await opened(mounted, "f")
        await read_beside(mounted, handle, run(0, GIB - 12345, MIB), n_tasks)
        mounted.fs.release(handle)
    assert store.counts["bytes"] == GIB - 12345
    assert store.counts["gets"] <= 128 + 2
    assert twice(store) == 0


@pytest.mark.parametrize("size", [3 * MIB, 10 * MIB, 16 * MIB])
async def test_a_medium_file_takes_one_round_trip(size: int, autojump_clock: MockClock) -> None:
    """Open and read to the end take one latency and the transfer of one part, not two waves."""
    store = FarStore()
    store.add("f", size)
    async with file_system(store) as mounted:
        attrs = await mounted.walk("f")
        begun = trio.current_time()
        handle = await mounted.fs.open(attrs.ino)
        await read_all(mounted, handle, run(0, size))
        assert trio.current_time() - begun <= LATENCY_S + min(size, PART) / BYTES_PER_S + 0.001
        mounted.fs.release(handle)
    assert store.counts["bytes"] == size
    assert store.counts["gets"] == 1 + -(-size // PART)


async def test_parallel_direct_reads_are_part_sized(autojump_clock: MockClock) -> None:
    """preadv of the last 64 MiB by 1 MiB reads, all in flight: 8 MiB GETs but for the ramp, and the odd tail."""
    size = GIB + 777
    store = FarStore()
    store.add("f", size)
    async with file_system(store, budget_bytes=GIB) as mounted:
        handle = await opened(mounted, "f")
        start = size - 64 * MIB
        begun = trio.current_time()
        await read_beside(mounted, handle, run(start, size, MIB), 64)
        took_s = trio.current_time() - begun
        mounted.fs.release(handle)
    spans = [span for _, span in store.spans if span.start >= start - MIB]
    assert len(spans) <= 9 + 3
    assert max(span.stop for span in spans) == size
    assert sum(span.length for span in spans) <= 64 * MIB + 64 * KIB
    assert took_s <= LATENCY_S + PART / BYTES_PER_S + 0.001


async def test_what_the_kernel_is_told_it_will_need_comes_at_once(autojump_clock: MockClock) -> None:
    """WILLNEED and faults arrive as parallel READs: those of one file are waited for side by side."""
    store = FarStore()
    store.add("f", 4 * GIB)
    async with file_system(store) as mounted:
        handle = await opened(mounted, "f")
        begun = trio.current_time()
        await read_beside(mounted, handle, [at(number * 100 * MIB, 4 * KIB) for number in range(1, 33)], 32)
        assert trio.current_time() - begun <= LATENCY_S + 256 * KIB / BYTES_PER_S + 0.001
        mounted.fs.release(handle)


# -- random -------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_tasks", [1, 16])
async def test_random_reads_of_a_large_object(n_tasks: int, autojump_clock: MockClock) -> None:
    """4 KiB anywhere in 4 GiB: at most 256 KiB and one GET each, nothing in vain waited for."""
    store = FarStore()
    store.add("f", 4 * GIB)
    async with file_system(store, budget_bytes=4 * GIB) as mounted:
        handle = await opened(mounted, "f")
        await read_all(mounted, handle, [at(GIB)])
        store.counts.clear()
        reads = random_reads(4 * GIB, 4 * KIB, 600, random.Random(3))
        begun = trio.current_time()
        await read_beside(mounted, handle, reads, n_tasks)
        latency_s = (trio.current_time() - begun) * n_tasks / len(reads)
        mounted.fs.release(handle)
    assert store.counts["gets"] <= len(reads)
    assert store.counts["bytes"] <= len(reads) * 256 * KIB
    assert latency_s <= 1.2 * (LATENCY_S + 4 * KIB / BYTES_PER_S)


async def test_near_by_a_random_read_fetches_less(autojump_clock: MockClock) -> None:
    """What GETs tell of the distance counts: 1 ms away, 64 KiB come with a 4 KiB read, not 128."""
    store = FarStore(latency_s=0.001)
    store.add("f", 4 * GIB)
    async with file_system(store) as mounted:
        handle = await opened(mounted, "f")
        await read_all(mounted, handle, [at(number * 100 * MIB, 4 * KIB) for number in range(1, 10)])
        mounted.fs.release(handle)
    lengths = [span.length for _, span in store.spans]
    assert 128 * KIB in lengths
    assert lengths[-3:] == [64 * KIB] * 3


async def test_random_reads_cancel_what_was_ahead(autojump_clock: MockClock) -> None:
    """A reader that leaves its stream for reads elsewhere gives up the GETs in flight ahead of it."""
    store = FarStore()
    store.add("f", 4 * GIB)
    async with file_system(store) as mounted:
        handle = await opened(mounted, "f")
        await read_all(mounted, handle, run(0, 4 * 128 * KIB))
        assert mounted.blocks.statistics().pending >= 8
        await read_beside(mounted, handle, [at(number * 50 * MIB, 4 * KIB) for number in range(1, 65)], 16)
        assert store.cancelled >= 7
        assert store.counts["bytes"] <= PART + 65 * 256 * KIB
        await read_all(mounted, handle, run(GIB, GIB + 40 * MIB, MIB))
        mounted.fs.release(handle)


async def test_a_window_that_found_no_room_comes_later(autojump_clock: MockClock) -> None:
    """Parts that the budget refused are read ahead once there is room: no reader waits for each part by itself."""
    store = FarStore()
    store.add("f", GIB)
    async with file_system(store, budget_bytes=20 * PART) as mounted:
        handle = await opened(mounted, "f")
        assert mounted.budget.acquire_nowait(18 * PART, for_demand=True)
        await read_all(mounted, handle, run(0, 5 * 128 * KIB))
        mounted.budget.release(18 * PART)
        begun = trio.current_time()
        await read_all(mounted, handle, run(5 * 128 * KIB, 9 * PART))
        assert trio.current_time() - begun <= 4 * (LATENCY_S + PART / BYTES_PER_S)
        mounted.fs.release(handle)


async def test_a_shard_is_hardly_cut_by_what_came_first(autojump_clock: MockClock) -> None:
    """Small pieces that came before all of a shard did do not cut its parts: 8, the head, and a GET for each jump."""
    store = FarStore()
    store.add("f", 64 * MIB)
    async with file_system(store, budget_bytes=GIB) as mounted:
        await shuffled_shards(mounted, ["f"], 64 * MIB, random.Random(2))
    assert store.counts["gets"] <= 8 + 1 + 2
    assert store.counts["bytes"] <= 64 * MIB + 2 * 256 * KIB


async def test_parts_of_a_shard_that_found_no_room_come_later_in_whole(autojump_clock: MockClock) -> None:
    """When the budget is full as a shard is to be fetched, its parts are fetched as parts once there is room."""
    store = FarStore()
    store.add("f", 64 * MIB)
    async with file_system(store, budget_bytes=20 * PART) as mounted:
        assert mounted.budget.acquire_nowait(17 * PART, for_demand=True)
        handle = await opened(mounted, "f")
        reads = list(samples(64 * MIB, 100 * KIB, random.Random(2)))
        pages = Coverage()
        await read_through_pages(mounted, handle, pages, reads[:8])
        mounted.budget.release(17 * PART)
        await read_through_pages(mounted, handle, pages, reads[8:])
        mounted.fs.release(handle)
    assert store.counts["gets"] <= 14


async def test_a_shard_that_is_opened_for_each_sample(autojump_clock: MockClock) -> None:
    """What the opens teach adds up, and its content stays between them: 1.5 x bytes / 8 MiB GETs; then it goes."""
    store = FarStore()
    store.add("shard.00000.mds", 64 * MIB)
    async with file_system(store, budget_bytes=GIB) as mounted:
        reads = list(samples(64 * MIB, 100 * KIB, random.Random(1)))
        pages = Coverage()
        for number, pair in enumerate(zip(reads[::2], reads[1::2], strict=True)):
            await trio.sleep(0.9 * LINGER_S if number % 100 == 50 else 0)
            handle = await opened(mounted, "shard.00000.mds")
            await read_through_pages(mounted, handle, pages, pair)
            mounted.fs.release(handle)
        assert store.counts["gets"] <= 12
        assert store.counts["bytes"] <= 1.06 * 64 * MIB
        assert mounted.blocks.statistics().objects == 1
        await trio.sleep(LINGER_S + 1)
        assert mounted.blocks.statistics().objects == 0
        assert mounted.budget.statistics().used == 0


# -- formats ------------------------------------------------------------------------------------


async def test_parquet_costs_a_footer_and_its_columns(autojump_clock: MockClock) -> None:
    """Footer length, footer, three column chunks of 512 KiB: head, tail and the rest of the last MiB are 3 GETs."""
    size = GIB
    store = FarStore()
    store.add("f", size)
    async with file_system(store) as mounted:
        handle = await opened(mounted, "f")
        begun = trio.current_time()
        await read_all(mounted, handle, [ByteRange(size - 4 * KIB, size)])
        await read_all(mounted, handle, run(size - 700 * KIB, size))
        assert trio.current_time() - begun <= LATENCY_S + MIB / BYTES_PER_S
        assert store.counts["gets"] == 3
        assert store.counts["bytes"] <= 2 * MIB + 64 * KIB
        for number in range(1, 4):
            await read_beside(mounted, handle, run(number * 200 * MIB, number * 200 * MIB + 512 * KIB), 4)
        mounted.fs.release(handle)
    assert store.counts["gets"] <= 3 + 3 * 4


async def test_a_zip_costs_its_directory_and_its_members(autojump_clock: MockClock) -> None:
    """npz or .pt of 200 MiB: the end first, then the members in order: ceil(size / 8 MiB) + 4 GETs, the end twice."""
    size = 200 * MIB + 321
    store = FarStore()
    store.add("f", size)
    async with file_system(store) as mounted:
        handle = await opened(mounted, "f")
        await read_all(mounted, handle, [ByteRange(size - 22, size), ByteRange(size - 5000, size)])
        await read_all(mounted, handle, run(0, size))
        mounted.fs.release(handle)
    assert store.counts["gets"] <= 26 + 4
    assert store.counts["bytes"] <= size + 64 * KIB


async def test_a_head_that_is_looked_at_costs_what_open_began(autojump_clock: MockClock) -> None:
    """8 bytes and a JSON header of 200 KiB of a safetensors file are 1 GET, begun by open."""
    store = FarStore()
    store.add("f", GIB)
    async with file_system(store) as mounted:
        handle = await opened(mounted, "f")
        await read_all(mounted, handle, [at(0, 16 * KIB), at(16 * KIB, 32 * KIB), at(48 * KIB, 64 * KIB)])
        mounted.fs.release(handle)
    assert (store.counts["gets"], store.counts["bytes"]) == (1, MIB)


# -- many readers -------------------------------------------------------------------------------


async def test_a_thousand_handles_share_one_download(autojump_clock: MockClock) -> None:
    """A thousand handles of one file that are read in turn cost what one costs, and one that lags costs nothing."""
    size = 64 * MIB
    store = FarStore()
    store.add("f", size)
    async with file_system(store) as mounted:
        handles = [await opened(mounted, "f") for _ in range(1000)]
        reads = run(0, size, 64 * KIB)
        for handle, wanted in zip(handles, reads, strict=False):
            await read_all(mounted, handle, [wanted])
        await read_all(mounted, handles[0], run(40 * MIB, 60 * MIB))
        for handle in handles:
            mounted.fs.release(handle)
    assert store.counts["gets"] <= 8 + 2
    assert store.counts["bytes"] == size


async def test_a_descriptor_shared_by_forked_processes(autojump_clock: MockClock) -> None:
    """Four processes that read four regions through one descriptor are four streams: little more than the bytes."""
    store = FarStore()
    store.add("f", 4 * GIB)
    async with file_system(store, budget_bytes=GIB) as mounted:
        handle = await opened(mounted, "f")
        readers = [iter(run(number * GIB, number * GIB + 100 * MIB, MIB)) for number in range(4)]
        await read_all(mounted, handle, in_turns(readers, random.Random(5)))
        mounted.fs.release(handle)
    assert twice(store) == 0
    assert store.counts["gets"] <= 4 * (100 / 8 + 8 + 6)


async def test_idle_files_take_no_share(autojump_clock: MockClock) -> None:
    """With a thousand other files open and idle a reader still has eight parts ahead."""
    store = FarStore()
    store.add("f", GIB)
    for number in range(1000):
        store.add(f"d{number:03}", 2 * GIB)
    async with file_system(store) as mounted:
        idle = [await opened(mounted, f"d{number:03}") for number in range(20)]
        for handle in idle:
            await read_all(mounted, handle, [at(0)])
        await trio.sleep(5)
        handle = await opened(mounted, "f")
        await read_all(mounted, handle, disordered(run(0, 2 * MIB), random.Random(1)))
        assert mounted.blocks.statistics().pending + mounted.blocks.statistics().ready >= 8 + len(idle)
        for each in [handle, *idle]:
            mounted.fs.release(each)
