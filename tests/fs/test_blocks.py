"""Blocks: single flight, reading ahead, memory, failures."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from s3mount.core.attrs import ObjectId, ObjectStat
from s3mount.core.ranges import ByteRange
from s3mount.core.waits import Arrival
from s3mount.errors import ObjectChanged, StoreError, StoreFailure
from s3mount.units import GIB, KIB, MIB
from tests.fs.harness import file_system
from tests.support.content import make_content
from tests.support.fake_store import FakeStore, FaultyStore

PART = 8 * MIB


async def test_many_readers_of_a_cold_small_file_cost_one_get(autojump_clock: object) -> None:
    """Thirty-two opens at once of one small file fetch it once."""
    store = FakeStore(latency_s=0.03)
    content = make_content("small", 115_000)
    store.put("f", content)
    async with file_system(store) as mounted:

        async def reader() -> None:
            assert await mounted.read_file("f") == content

        async with trio.open_nursery() as nursery:
            for _ in range(32):
                nursery.start_soon(reader)
        assert store.counts["gets"] == 1
        assert store.counts["lists"] == 1


async def test_a_small_file_comes_in_open(autojump_clock: object) -> None:
    """Open fetches a small file whole; its reads ask for nothing more."""
    store = FakeStore(latency_s=0.03)
    store.put("f", b"x" * MIB)
    async with file_system(store) as mounted:
        attrs = await mounted.walk("f")
        handle = await mounted.fs.open(attrs.ino)
        assert store.counts["gets"] == 1
        assert mounted.fs.read_nowait(handle, 0, 128 * KIB) == b"x" * (128 * KIB)
        mounted.fs.release(handle)


async def test_a_file_the_kernel_has_whole_is_not_fetched_again(autojump_clock: object) -> None:
    """After one full read the next open of the same version fetches nothing."""
    store = FakeStore()
    store.put("f", b"x" * 5000)
    async with file_system(store) as mounted:
        await mounted.read_file("f")
        attrs = await mounted.walk("f")
        handle = await mounted.fs.open(attrs.ino)
        assert store.counts["gets"] == 1
        assert await mounted.read(handle, 0, 5000) == b"x" * 5000  # the kernel dropped its pages
        assert store.counts["gets"] == 2
        mounted.fs.release(handle)


async def test_opening_a_big_file_that_was_read_costs_nothing(autojump_clock: object) -> None:
    """What the kernel has of a version is not begun again by the next open."""
    store = FakeStore()
    store.put("f", b"x" * (5 * MIB))
    async with file_system(store) as mounted:
        await mounted.read_file("f")
        store.counts.clear()
        attrs = await mounted.walk("f")
        mounted.fs.release(await mounted.fs.open(attrs.ino))
        assert store.counts["gets"] == 0


async def test_a_sequential_reader_is_prefetched(autojump_clock: object) -> None:
    """At least eight parts are in flight ahead of a sequential reader, and no byte comes twice."""
    store = FakeStore(latency_s=0.03)
    content = make_content("big", 120 * MIB)
    store.put("f", content)
    async with file_system(store) as mounted:
        attrs = await mounted.walk("f")
        handle = await mounted.fs.open(attrs.ino)
        for offset in range(0, 2 * MIB, 128 * KIB):
            piece = await mounted.read(handle, offset, 128 * KIB)
            assert piece == content[offset : offset + 128 * KIB]
        statistics = mounted.blocks.statistics()
        assert statistics.pending + statistics.ready >= 8
        for offset in range(2 * MIB, len(content), MIB):
            assert await mounted.read(handle, offset, MIB) == content[offset : offset + MIB]
        mounted.fs.release(handle)
    assert store.counts["bytes"] == len(content)
    assert store.counts["gets"] <= len(content) // PART + 2


class HugeStore(FakeStore):
    """Objects too large to hold: content is made when it is asked for."""

    async def get_range(self, wanted: ObjectId, span: ByteRange, arrival: Arrival | None = None) -> bytes:
        self.counts["gets"] += 1
        return bytes(_byte_at(offset) for offset in range(span.start, span.stop))


def _byte_at(offset: int) -> int:
    return (offset * 31 + (offset >> 20) * 7) & 0xFF


async def test_fifty_gibibytes_are_read_at_any_place(autojump_clock: object) -> None:
    """Offsets beyond 32 bits, up to the last byte of a 50 GiB object, give the right bytes."""
    size = 50 * GIB + 3
    store = HugeStore()
    store.objects["f"] = (ObjectStat("f", '"huge"', size, 1), b"")
    async with file_system(store) as mounted:
        attrs = await mounted.walk("f")
        assert attrs.size == size
        handle = await mounted.fs.open(attrs.ino)
        for offset in (2**31 - 5, 2**32 - 5, 2**35 + 1, size - 10, size - 1, size):
            expected = bytes(_byte_at(at) for at in range(offset, min(offset + 10, size)))
            assert await mounted.read(handle, offset, 10) == expected
        mounted.fs.release(handle)


class SpanStore(FakeStore):
    """Remembers the length of each GET."""

    def __init__(self) -> None:
        super().__init__()
        self.lengths: list[int] = []

    async def get_range(self, wanted: ObjectId, span: ByteRange, arrival: Arrival | None = None) -> bytes:
        self.lengths.append(span.length)
        return await super().get_range(wanted, span, arrival)


async def test_no_get_is_longer_than_a_part(autojump_clock: object) -> None:
    """A read across the boundary of two parts, with neither held, is fetched as pieces of at most a part."""
    store = SpanStore()
    content = make_content("f", 8 * MIB)
    store.put("f", content)
    async with file_system(store, part_size=MIB) as mounted:
        attrs = await mounted.walk("f")
        handle = await mounted.fs.open(attrs.ino)
        for offset in (3 * MIB - 1000, 6 * MIB - 1000):
            assert await mounted.read(handle, offset, MIB) == content[offset : offset + MIB]
        mounted.fs.release(handle)
    assert max(store.lengths) <= MIB


async def test_random_reads_fetch_little(autojump_clock: object) -> None:
    """A 4 KiB read far from any other fetches at most 128 KiB and nothing ahead."""
    store = FakeStore()
    size = 300 * MIB
    content = make_content("big", size)
    store.put("f", content)
    async with file_system(store) as mounted:
        attrs = await mounted.walk("f")
        handle = await mounted.fs.open(attrs.ino)
        await wait_all_tasks_blocked()
        store.counts.clear()
        for n in range(20):
            offset = (n * 97 % 37 + 2) * 7 * MIB + 12345
            assert await mounted.read(handle, offset, 4 * KIB) == content[offset : offset + 4 * KIB]
        assert store.counts["gets"] == 20
        assert store.counts["bytes"] <= 20 * 128 * KIB
        mounted.fs.release(handle)


async def test_closing_cancels_what_is_in_flight(autojump_clock: object) -> None:
    """The last close ends speculation at once, and every gauge is back at zero."""
    store = FakeStore(latency_s=10)
    store.put("f", b"x" * (100 * MIB))
    async with file_system(store) as mounted:
        attrs = await mounted.walk("f")
        handle = await mounted.fs.open(attrs.ino)
        assert mounted.blocks.statistics().pending == 1
        started = trio.current_time()
        mounted.fs.release(handle)
        await wait_all_tasks_blocked()
        assert trio.current_time() - started < 1
        statistics = mounted.blocks.statistics()
        assert (statistics.objects, statistics.pending, statistics.ready, statistics.held_bytes) == (0, 0, 0, 0)
        assert mounted.budget.statistics().used == 0


async def test_a_small_budget_serves_many_readers(autojump_clock: object) -> None:
    """Sixteen sequential readers share a budget of four parts: nobody deadlocks, all bytes are right."""
    store = FakeStore(latency_s=0.01)
    contents = {f"f{n}": make_content(f"f{n}", 20 * MIB) for n in range(16)}
    for key, content in contents.items():
        store.put(key, content)
    highest = 0
    async with file_system(store, budget_bytes=4 * PART) as mounted:

        async def reader(key: str) -> None:
            nonlocal highest
            attrs = await mounted.walk(key)
            handle = await mounted.fs.open(attrs.ino)
            for offset in range(0, 20 * MIB, MIB):
                assert await mounted.read(handle, offset, MIB) == contents[key][offset : offset + MIB]
                highest = max(highest, mounted.budget.statistics().used)
                mounted.fs.check_invariants()
            mounted.fs.release(handle)

        async with trio.open_nursery() as nursery:
            for key in contents:
                nursery.start_soon(reader, key)
    assert highest <= 4 * PART


async def test_open_never_waits_for_the_budget(autojump_clock: object) -> None:
    """With the budget full, open returns without the content and the first read fetches it."""
    store = FakeStore()
    store.put("f", b"x" * 1000)
    async with file_system(store, budget_bytes=PART) as mounted:
        assert mounted.budget.acquire_nowait(PART, for_demand=True)
        attrs = await mounted.walk("f")
        handle = await mounted.fs.open(attrs.ino)
        assert store.counts["gets"] == 0
        mounted.budget.release(PART)
        assert await mounted.read(handle, 0, 1000) == b"x" * 1000
        mounted.fs.release(handle)


async def test_a_failed_read_fails_once_and_the_next_one_works(autojump_clock: object) -> None:
    """A GET that fails fails the reads that waited for it; the next read asks again."""
    store = FakeStore()
    content = make_content("f", 30 * MIB)
    store.put("f", content)

    def fault(operation: str, _key: str, n: int) -> StoreError | None:
        return StoreFailure("broken") if operation == "get" and n == 2 else None

    faulty = FaultyStore(store, fault)
    async with file_system(faulty) as mounted:
        attrs = await mounted.walk("f")
        handle = await mounted.fs.open(attrs.ino)
        with pytest.raises(StoreFailure):
            await mounted.read(handle, 0, MIB)
        assert await mounted.read(handle, 0, MIB) == content[:MIB]
        mounted.fs.release(handle)


async def test_a_replaced_object_is_never_mixed(autojump_clock: object) -> None:
    """A handle reads its own version or fails; bytes of the next version never come."""
    store = FakeStore()
    old, new = make_content("old", 40 * MIB), make_content("new", 40 * MIB)
    store.put("f", old)
    async with file_system(store) as mounted:
        attrs = await mounted.walk("f")
        handle = await mounted.fs.open(attrs.ino)
        assert await mounted.read(handle, 0, MIB) == old[:MIB]
        store.put("f", new)

        async def read_on() -> None:
            for offset in range(MIB, 40 * MIB, MIB):
                assert await mounted.read(handle, offset, MIB) == old[offset : offset + MIB]

        with pytest.raises(ObjectChanged):
            await read_on()
        mounted.fs.release(handle)
        assert await mounted.read_file("f", MIB) == new


async def test_a_reader_that_gives_up_leaves_the_others(autojump_clock: object) -> None:
    """A cancelled reader does not cancel the GET that another one waits for."""
    store = FakeStore(latency_s=1)
    store.put("f", b"x" * 2000)
    async with file_system(store) as mounted:
        attrs = await mounted.walk("f")
        async with trio.open_nursery() as nursery:
            done = []

            async def opens() -> None:
                handle = await mounted.fs.open(attrs.ino)
                done.append(await mounted.read(handle, 0, 2000))
                mounted.fs.release(handle)

            with trio.CancelScope() as scope:
                async with trio.open_nursery() as hasty:
                    hasty.start_soon(opens)
                    await wait_all_tasks_blocked()
                    nursery.start_soon(opens)
                    await wait_all_tasks_blocked()
                    scope.cancel()
        assert done == [b"x" * 2000]
        assert store.counts["gets"] == 1


async def test_content_that_was_here_proves_nothing(autojump_clock: object) -> None:
    """`begin` says that S3 has the version when bytes came for it, also for another caller; not when all were held."""
    store = FakeStore(latency_s=0.03)
    object_id = store.put("f", b"x" * (2 * MIB))
    async with file_system(store) as mounted:
        blocks = mounted.blocks
        opened = blocks.open(object_id, 2 * MIB)
        span = ByteRange(0, MIB)
        came: list[bool] = []

        async def begin() -> None:
            came.append(await blocks.begin(opened, span, wait=True))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(begin)
            nursery.start_soon(begin)
        await begin()
        assert (came, store.counts["gets"]) == ([True, True, False], 1)
        blocks.close(opened)
