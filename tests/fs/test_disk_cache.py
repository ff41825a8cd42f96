"""The disk cache in the way of a read, over a store that counts: what is on disk is no request, and proves nothing."""

import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from trio.testing import MockClock

from s3mount.cache.ages import MetadataConfig
from s3mount.cache.disk import DiskCache
from s3mount.cache.disk_config import DiskCacheConfig
from s3mount.core.ranges import ByteRange
from s3mount.core.ttl import INDEFINITE, TimeToLive
from s3mount.errors import ObjectChanged, StaleInode, StoreFailure
from s3mount.units import KIB, MIB
from tests.cache.disk_harness import ORIGIN, block_files, counted
from tests.fs.harness import Mounted, file_system
from tests.support.content import make_content
from tests.support.fake_store import FakeStore, FaultyStore

BIG = make_content("big", 21 * MIB + 4321)
SMALL = {f"s{n}": make_content(f"s{n}", 115_000) for n in range(5)}
EPOCHS = MetadataConfig(INDEFINITE, INDEFINITE)


def bucket() -> FakeStore:
    store = FakeStore()
    for name, content in SMALL.items():
        store.put(name, content)
    store.put("big", BIG)
    return store


@asynccontextmanager
async def mount(
    store: FakeStore | FaultyStore, directory: Path, metadata: MetadataConfig | None = EPOCHS
) -> AsyncIterator[tuple[Mounted, DiskCache]]:
    """A new mount with a disk cache; at the end everything is on disk."""
    cache = DiskCache(DiskCacheConfig((directory,)), ORIGIN)
    async with cache.running(), file_system(store, disk=cache, metadata=metadata) as mounted:
        yield mounted, cache
        await cache.drained()
        cache.check_invariants()


async def read_everything(mounted: Mounted) -> None:
    for name, content in SMALL.items():
        assert await mounted.read_file(name) == content
    assert await mounted.read_file("big", MIB) == BIG


async def filled(store: FakeStore, directory: Path) -> None:
    """The first epoch of a mount that is gone then."""
    async with mount(store, directory) as (mounted, _):
        await read_everything(mounted)
    store.counts.clear()


async def test_the_second_epoch(work: Path) -> None:
    """What one mount read, the next reads from disk: small files and large ones, without a GET."""
    store = bucket()
    await filled(store, work / "c")
    async with mount(store, work / "c") as (mounted, cache):
        await read_everything(mounted)
        assert (store.counts["gets"], store.counts["heads"]) == (0, 0)
        assert counted(cache).misses == counted(cache).written == 0
        seconds = mounted.fs.statistics().reader_wait_seconds
        assert seconds.disk > 0
        assert (seconds.connection, seconds.first_byte, seconds.transfer) == (0, 0, 0)


async def test_the_disk_says_nothing_of_the_distance(work: Path) -> None:
    """What comes from disk is not taken for an answer of S3: the distance is what GETs have shown."""
    store = bucket()
    store.latency_s = 0.2
    async with mount(store, work / "c") as (mounted, cache):
        assert await mounted.read_file("s0") == SMALL["s0"]
        await cache.drained()
        distance = mounted.content.distance
        assert distance.latency_s > 0.15
        for _ in range(10):
            assert await mounted.read_file("s0") == SMALL["s0"]
        assert mounted.content.distance == distance
    assert store.counts["gets"] == 1


async def test_a_hole_is_one_get(work: Path) -> None:
    """A stream over a cache with a hole fetches exactly the hole, and then it is there."""
    store = bucket()
    await filled(store, work / "c")
    cache = DiskCache(DiskCacheConfig((work / "c",)), ORIGIN)
    content = cache.content(store.objects["big"][0].id, len(BIG))
    assert content is not None
    (block,) = content.carve(ByteRange(3 * MIB, 4 * MIB))
    (path,) = [path for path in block_files(work / "c") if path.name == block.name.hex()]
    path.unlink()
    async with mount(store, work / "c") as (mounted, _):
        assert await mounted.read_file("big", MIB) == BIG
    assert (store.counts["gets"], store.counts["bytes"]) == (1, MIB)
    async with mount(store, work / "c") as (mounted, _):
        assert await mounted.read_file("big", MIB) == BIG
    assert store.counts["gets"] == 1


async def test_an_open_of_what_is_on_disk_fetches_nothing(work: Path) -> None:
    """A small file that is on disk is opened at once, and read from disk; one that vanished there costs one GET."""
    store = bucket()
    await filled(store, work / "c")
    async with mount(store, work / "c") as (mounted, cache):
        await cache.scanned()
        for name, gets in (("s0", 0), ("s1", 1)):
            if gets:
                for path in block_files(work / "c"):
                    path.unlink()
            handle = mounted.fs.open_nowait((await mounted.walk(name)).ino)
            assert handle is not None
            assert mounted.blocks.statistics().held_bytes == 0
            assert await mounted.read(handle, 0, len(SMALL[name])) == SMALL[name]
            mounted.fs.release(handle)
            assert (store.counts["gets"], store.counts["heads"]) == (gets, 0)
        assert mounted.blocks.statistics().objects == 0


async def test_an_open_that_waits_leaves_nothing_open(work: Path) -> None:
    """An open that cannot be answered at once, because the disk does not have the file, holds no object."""
    store = bucket()
    async with mount(store, work / "c") as (mounted, _):
        ino = (await mounted.walk("s0")).ino
        assert mounted.fs.open_nowait(ino) is None
        assert mounted.blocks.statistics().objects == 0


async def test_a_damaged_block(work: Path) -> None:
    """A block that was damaged on disk costs one GET, and the bytes are right."""
    store = bucket()
    await filled(store, work / "c")
    (path,) = [path for path in block_files(work / "c") if SMALL["s3"][:4096] in path.read_bytes()]
    with path.open("r+b") as file:
        file.seek(4096 + 50_000)
        file.write(b"wrong")
    async with mount(store, work / "c") as (mounted, cache):
        await read_everything(mounted)
        assert counted(cache).corrupt == 1
    assert store.counts["gets"] == 1
    assert store.counts["bytes"] <= len(SMALL["s3"])


async def test_another_version(work: Path) -> None:
    """A replaced object is fetched anew, whatever the disk has of the old one."""
    store = bucket()
    await filled(store, work / "c")
    store.put("s1", b"new" * 1000)
    async with mount(store, work / "c") as (mounted, _):
        assert await mounted.read_file("s1") == b"new" * 1000
    assert store.counts["gets"] == 1


@pytest.mark.parametrize("name", ["s1", "big"])
async def test_an_open_in_the_minimal_mode_asks_s3(name: str, work: Path) -> None:
    """In the minimal mode an open whose content is on disk costs one HEAD with If-Match, and no GET."""
    store = bucket()
    await filled(store, work / "c")
    async with mount(store, work / "c", None) as (mounted, _):
        ino = (await mounted.walk(name)).ino
        mounted.fs.release(await mounted.fs.open(ino))
        store.counts.clear()
        mounted.fs.release(await mounted.fs.open(ino))
        assert (store.counts["heads"], store.counts["gets"]) == (1, 0)
        store.put(name, b"new")
        with pytest.raises(ObjectChanged):
            await mounted.fs.open(ino)
        assert await mounted.read_file(name) == b"new"


async def test_an_open_asks_s3_when_the_ttl_is_over(work: Path, mock_clock: MockClock) -> None:
    """When the TTL is over an open of what is on disk costs one LIST, which finds a replacement, and no GET."""
    store = bucket()
    await filled(store, work / "c")
    async with mount(store, work / "c", MetadataConfig(TimeToLive(60), TimeToLive(60))) as (mounted, _):
        ino = (await mounted.walk("s1")).ino
        for lists in (0, 1):
            store.counts.clear()
            mounted.fs.release(await mounted.fs.open(ino))
            assert (store.counts["lists"], store.counts["gets"], store.counts["heads"]) == (lists, 0, 0)
            mock_clock.jump(61)
        store.put("s1", b"new")
        with pytest.raises(StaleInode):
            await mounted.fs.open(ino)


async def test_an_open_file_is_read_from_disk_after_it_was_replaced(work: Path) -> None:
    """A file that is open stays its version: what is on disk of it can be read when S3 has another."""
    store = bucket()
    await filled(store, work / "c")
    async with mount(store, work / "c") as (mounted, _):
        handle = await mounted.fs.open((await mounted.walk("big")).ino)
        store.put("big", b"new")
        offset = 0
        while piece := await mounted.read(handle, offset, MIB):
            assert piece == BIG[offset : offset + MIB]
            offset += len(piece)
        assert offset == len(BIG)
        mounted.fs.release(handle)


async def test_s3_fails_and_the_disk_has_it(work: Path) -> None:
    """While S3 answers nothing, what is on disk and known by name is read."""
    store = bucket()
    await filled(store, work / "c")
    faulty = FaultyStore(store, lambda operation, *_: StoreFailure("out") if operation == "get" else None)
    async with mount(faulty, work / "c") as (mounted, _):
        await read_everything(mounted)


async def test_a_disk_that_is_gone(work: Path) -> None:
    """When the cache directory is deleted reads go on from S3."""
    store = bucket()
    await filled(store, work / "c")
    async with mount(store, work / "c") as (mounted, _):
        assert await mounted.read_file("s0") == SMALL["s0"]
        os.rename(work / "c", work / "away")
        await read_everything(mounted)
    assert store.counts["gets"] >= 1


async def test_random_reads_take_what_they_ask_for(work: Path) -> None:
    """Random reads of 4 KiB of what is on disk hold nothing, start nothing, and ask S3 nothing."""
    store = bucket()
    await filled(store, work / "c")
    async with mount(store, work / "c") as (mounted, cache):
        handle = await mounted.fs.open((await mounted.walk("big")).ino)
        await mounted.read(handle, 0, 4096)
        held = mounted.blocks.statistics()
        hits = counted(cache).hits
        offsets = random.Random(1).sample(range(2 * MIB, len(BIG) - 4096, 4096), 300)
        for offset in offsets:
            assert await mounted.read(handle, offset, 4096) == BIG[offset : offset + 4096]
        assert mounted.blocks.statistics() == held
        assert counted(cache).hits == hits + len(offsets)
        mounted.fs.release(handle)
    assert store.counts["gets"] == 0


async def test_a_stream_in_the_middle_reads_ahead_from_disk(work: Path) -> None:
    """A reader that begins in the middle and goes on gets windows, from disk as from S3, and not each read alone."""
    store = bucket()
    await filled(store, work / "c")
    async with mount(store, work / "c") as (mounted, cache):
        handle = await mounted.fs.open((await mounted.walk("big")).ino)
        await mounted.read(handle, 0, 4096)
        hits = counted(cache).hits
        offsets = range(5 * MIB, len(BIG), 128 * KIB)
        for offset in offsets:
            assert await mounted.read(handle, offset, 128 * KIB) == BIG[offset : offset + 128 * KIB]
        assert counted(cache).hits - hits <= len(offsets) // 4
        assert mounted.blocks.statistics().wasted_bytes == 0
        mounted.fs.release(handle)
    assert store.counts["gets"] == 0


async def test_a_hit_needs_no_more_than_was_asked(work: Path) -> None:
    """Of a cell that is on disk a read is answered though its neighbours, which a GET would bring, are not."""
    store = bucket()
    async with mount(store, work / "c") as (mounted, cache):
        content = cache.content(store.objects["big"][0].id, len(BIG))
        assert content is not None
        start = 10 * MIB + 64 * KIB
        cache.put(content, start, BIG[start : start + 64 * KIB])
        await cache.drained()
        handle = await mounted.fs.open((await mounted.walk("big")).ino)
        await mounted.read(handle, 0, 4096)
        store.counts.clear()
        assert await mounted.read(handle, start + 5, 60_000) == BIG[start + 5 : start + 60_005]
        assert store.counts["gets"] == 0
        assert await mounted.read(handle, start + 60_000, 60_000) == BIG[start + 60_000 : start + 120_000]
        assert store.counts["gets"] == 1
        assert store.counts["bytes"] < 256 * KIB
        mounted.fs.release(handle)


async def test_no_etag(work: Path) -> None:
    """An object without an ETag is read as ever, and not kept."""
    store = bucket()
    found, content = store.objects["s0"]
    store.objects["s0"] = (found._replace(etag=""), content)
    async with mount(store, work / "c") as (mounted, cache):
        for _ in range(2):
            assert await mounted.read_file("s0") == content
        assert counted(cache).written == counted(cache).misses == 0
