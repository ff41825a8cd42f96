"""The disk cache: what goes in comes out, or nothing; who may look; what is kept."""

import fcntl
import os
import random
import stat
import time
import weakref
from array import array
from pathlib import Path

import pytest
import trio

from s3mount.cache.disk import DiskCache
from s3mount.cache.disk_config import DiskCacheConfig
from s3mount.cache.space import Limits, WriteJob
from s3mount.cache.writing import MAX_QUEUED
from s3mount.core.attrs import ObjectId
from s3mount.core.cells import cached_content
from s3mount.core.epochs import CachePolicy
from s3mount.core.lru import allocated
from s3mount.core.ranges import ByteRange
from s3mount.errors import BadOption
from s3mount.units import KIB, MIB
from tests.cache.disk_harness import (
    ORIGIN,
    FakeClock,
    Source,
    block_files,
    content_of,
    counted,
    fill,
    running,
    volume,
    whole,
)

BIG = Source(20 * MIB + 12_345)
SMALL = Source(100_000)


async def test_what_went_in_comes_out(work: Path) -> None:
    """Every range of a cached object is what was put in, from a thread or from the kernel's memory."""
    data = BIG.bytes(0)
    draw = random.Random(1)
    async with running(work / "c") as cache:
        await fill(cache, BIG, range(1))
        for file in block_files(work / "c"):
            file.read_bytes()  # writing leaves nothing of a large block in the kernel's memory
        content = content_of(cache, BIG, 0)
        nowait = 0
        for _ in range(200):
            start = draw.randrange(len(data))
            span = ByteRange(start, min(len(data), start + draw.choice([1, 4096, 131_072, MIB, 9 * MIB])))
            quick = cache.get_nowait(content, span)
            slow = await cache.get(content, span)
            assert slow is not None
            assert slow == data[span.start : span.stop]
            nowait += quick is not None
            assert quick is None or quick == slow
        assert counted(cache).blocks == 3
        assert counted(cache).misses == 0
        assert counted(cache).hits >= 200 + nowait
        assert nowait > 20


async def test_random_access_keeps_what_it_fetched(work: Path) -> None:
    """Of what random reads fetch, exactly the cells are kept, and the rest is a miss."""
    data = BIG.bytes(0)
    async with running(work / "c") as cache:
        content = content_of(cache, BIG, 0)
        for start in (0, 640 * KIB, 9 * MIB):
            cache.put(content, start, data[start : start + 128 * KIB])
        await cache.drained()
        assert counted(cache).blocks == 6
        assert counted(cache).n_bytes == 6 * (64 * KIB + 4 * KIB)
        assert await cache.get(content, ByteRange(650 * KIB, 760 * KIB)) == data[650 * KIB : 760 * KIB]
        assert await cache.get(content, ByteRange(650 * KIB, 769 * KIB)) is None
        before, after = await cache.ends(content, ByteRange(650 * KIB, 900 * KIB))
        assert (before, after) == (data[650 * KIB : 768 * KIB], b"")
        before, after = await cache.ends(content, ByteRange(600 * KIB, 760 * KIB))
        assert (before, after) == (b"", data[640 * KIB : 760 * KIB])


async def test_a_stream_with_a_hole(work: Path) -> None:
    """Of a range with a hole only the hole is missing; once it is put in, the whole range is there."""
    data = BIG.bytes(0)
    async with running(work / "c") as cache:
        content = content_of(cache, BIG, 0)
        cache.put(content, 0, data[: 8 * MIB])
        cache.put(content, 16 * MIB, memoryview(data)[16 * MIB :])
        await cache.drained()
        hole = ByteRange(8 * MIB, 16 * MIB)
        before, after = await cache.ends(content, whole(content))
        assert (before, after) == (data[: hole.start], data[hole.stop :])
        odd = ByteRange(7 * MIB + 1, 16 * MIB + 5)
        assert [len(end) for end in await cache.ends(content, odd)] == [MIB - 1, 5]
        cache.put(content, hole.start, data[hole.start : hole.stop])
        await cache.drained()
        assert await cache.ends(content, whole(content)) == (data, b"")
        assert await cache.get(content, whole(content)) == data


async def test_a_restart_finds_everything_at_once(work: Path) -> None:
    """After a restart blocks are found before anybody has looked at the directory."""
    async with running(work / "c") as cache:
        await fill(cache, SMALL, range(20))
    cache = DiskCache(DiskCacheConfig((work / "c",)), ORIGIN)
    for number in range(20):
        content = content_of(cache, SMALL, number)
        assert await cache.get(content, whole(content)) == SMALL.bytes(number)
    assert counted(cache).hits == counted(cache).blocks == 20


async def test_two_mounts_share_a_directory(work: Path) -> None:
    """What one mount put in another finds, and what one evicted is a miss for the other."""
    async with running(work / "c") as one, running(work / "c") as other:
        await fill(one, SMALL, range(5))
        content = content_of(other, SMALL, 3)
        assert await other.get(content, whole(content)) == SMALL.bytes(3)
        assert await one.evict() == 5 * allocated(SMALL.size + 4096)
        content = content_of(other, SMALL, 4)
        assert await other.get(content, whole(content)) is None
        assert block_files(work / "c") == []


async def test_versions_are_told_apart(work: Path) -> None:
    """Another ETag, key, size or bucket is a miss; a version without an ETag is not cached."""
    async with running(work / "c") as cache:
        await fill(cache, SMALL, range(1))
        key, etag = SMALL.id(0)
        for other_id, size in ((ObjectId(key, '"x"'), SMALL.size), (ObjectId("x", etag), SMALL.size), ((key, etag), 9)):
            content = cache.content(ObjectId(*other_id), size)
            assert content is not None
            assert await cache.get(content, whole(content)) is None
        assert cache.content(ObjectId(key, ""), SMALL.size) is None
        assert cache.content(ObjectId(key, etag), 0) is None
    other = DiskCache(DiskCacheConfig((work / "c",)), ORIGIN + "2")
    content = content_of(other, SMALL, 0)
    assert await other.get(content, whole(content)) is None


async def test_a_put_never_waits(work: Path) -> None:
    """When nobody empties the queue, what is beyond its end is dropped and counted, and nothing else."""
    cache = DiskCache(DiskCacheConfig((work / "c",)), ORIGIN)
    data = bytes(8 * MIB)
    for number in range(12):
        content = cache.content(ObjectId(str(number), "e"), len(data))
        assert content is not None
        cache.put(content, 0, data)
    assert counted(cache).queued_bytes == MAX_QUEUED
    assert counted(cache).dropped == 12 - MAX_QUEUED // (8 * MIB)
    cache.check_invariants()
    async with cache.running():
        await cache.drained()
        assert counted(cache).written == MAX_QUEUED // (8 * MIB)
        assert counted(cache).queued_bytes == 0


async def test_a_block_is_written_once(work: Path) -> None:
    """A block that is there, or on its way there, is not written again."""
    async with running(work / "c") as cache:
        content = content_of(cache, SMALL, 0)
        for _ in range(3):
            cache.put(content, 0, SMALL.bytes(0))
        await cache.drained()
        cache.put(content, 0, SMALL.bytes(0))
        await cache.drained()
        assert counted(cache).written == 1


async def test_the_least_recently_used_go_first(work: Path) -> None:
    """A full cache replaces what was used longest ago, also when that use was before a restart."""
    room = 10 * allocated(SMALL.size + 4096)
    async with running(work / "c", max_bytes=room, policy=CachePolicy.LRU) as cache:
        await fill(cache, SMALL, range(10))
        names = {path.name for path in block_files(work / "c")}
    day = 86_400
    for path in block_files(work / "c"):
        os.utime(path, (time.time() - day,) * 2)
    async with running(work / "c", max_bytes=room, policy=CachePolicy.LRU) as cache:
        for number in (0, 3, 5):
            content = content_of(cache, SMALL, number)
            assert await cache.get(content, whole(content)) is not None
    old = [path for path in block_files(work / "c") if path.stat().st_mtime < time.time() - day / 2]
    assert len(old) == 7
    async with running(work / "c", max_bytes=room, policy=CachePolicy.LRU) as cache:
        await fill(cache, SMALL, range(10, 17))
        assert counted(cache).evicted == 7
        for number in (0, 3, 5, *range(10, 17)):
            content = content_of(cache, SMALL, number)
            assert await cache.get(content, whole(content)) == SMALL.bytes(number)
        assert counted(cache).n_bytes == room
    assert len(names & {path.name for path in block_files(work / "c")}) == 3


async def test_what_another_mount_used_stays(work: Path) -> None:
    """A block that another mount used since is not the least recently used, though this one does not know it yet."""
    async with running(work / "c") as cache:
        await fill(cache, SMALL, range(10))
        used = block_files(work / "c")[:4]
        for path in used:
            os.utime(path, (time.time() + 60,) * 2)
        size = allocated(SMALL.size + 4096)
        removed = sum([await cache.evict(size) for _ in range(6)])
        assert removed == 6 * size
        assert block_files(work / "c") == used


async def test_everything_goes_when_asked_for(work: Path) -> None:
    """When all is to be removed, what another mount used since is removed, too."""
    async with running(work / "c") as cache:
        await fill(cache, SMALL, range(10))
        for path in block_files(work / "c")[:4]:
            os.utime(path, (time.time() + 60,) * 2)
        assert await cache.evict() == 10 * allocated(SMALL.size + 4096)
        assert block_files(work / "c") == []


async def test_one_evicts_at_a_time(work: Path) -> None:
    """While another process evicts, this one waits a moment; what it would have removed stays known."""
    async with running(work / "c") as cache:
        await fill(cache, SMALL, range(10))
        fd = os.open(work / "c" / "v1", os.O_RDONLY)
        fcntl.flock(fd, fcntl.LOCK_EX)
        assert await cache.evict() == 0
        assert counted(cache).blocks == len(block_files(work / "c")) == 10
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cache.evict)
            await trio.sleep(0.15)
            assert len(block_files(work / "c")) == 10
            os.close(fd)  # in time for its next try
        assert block_files(work / "c") == []


async def test_what_waits_does_not_hold_the_reply(work: Path) -> None:
    """Blocks that are small parts of a reply do not keep all of it in memory until they are written."""
    data = BIG.bytes(0)
    async with running(work / "c") as cache:
        content = content_of(cache, BIG, 0)
        reply = array("B", data[MIB : 8 * MIB])
        held = weakref.ref(reply)
        cache.put(content, MIB, memoryview(reply))
        del reply
        assert held() is None
        assert counted(cache).queued_bytes == 7 * MIB
        await cache.drained()
        assert await cache.get(content, ByteRange(MIB, 8 * MIB)) == data[MIB : 8 * MIB]


async def test_shuffled_epochs_from_disk(work: Path) -> None:
    """Four shuffled epochs over twice what fits fetch at most 0.52 of the objects again in each after the first."""
    n, size = 1000, 2_000
    limits = Limits(max_bytes=n // 2 * allocated(size + 4096))
    contents = [cached_content(ORIGIN, ObjectId(str(number), "e"), size) for number in range(n)]
    async with volume(work / "c", limits, clock=FakeClock(time.time(), step_s=1.0)) as cache:
        for epoch in range(4):
            fetched = 0
            for content in random.Random(epoch).sample(contents, n):
                if not (await cache.reads.find(content, whole(content))).is_hit:
                    fetched += 1
                    cache.put(WriteJob(content.block(content.sizes[0], 0), memoryview(bytes(size))))
                    await cache.drained()
            assert fetched == n if epoch == 0 else fetched <= 0.52 * n
            assert cache.statistics().blocks == n // 2


async def test_only_the_owner_may_look(work: Path) -> None:
    """The cache directory and its folders are 0700, its files 0600."""
    async with running(work / "c") as cache:
        await fill(cache, SMALL, range(3))
        modes = {stat.S_IMODE(path.stat().st_mode) for path in [work / "c", *(work / "c").rglob("*")] if path.is_dir()}
        assert modes == {0o700}
        assert {stat.S_IMODE(path.stat().st_mode) for path in (work / "c").rglob("*") if path.is_file()} == {0o600}


@pytest.mark.parametrize("where", [".", "v1"])
def test_a_directory_that_others_can_write_to_is_refused(work: Path, where: str) -> None:
    """A cache directory that others may write to, or that is not ours, is refused with what to do about it."""
    directory = work / "c"
    DiskCache(DiskCacheConfig((directory,)), ORIGIN)
    (directory / where).chmod(0o770)
    with pytest.raises(BadOption, match=r"chmod 700"):
        DiskCache(DiskCacheConfig((directory,)), ORIGIN)
    (directory / where).chmod(0o700)
    os.chown(directory / where, 12_345, -1)
    with pytest.raises(BadOption, match="belongs to uid 12345"):
        DiskCache(DiskCacheConfig((directory,)), ORIGIN)


def test_what_cannot_be_a_cache_is_refused(work: Path) -> None:
    """A file, a missing parent and numbers that cannot be kept are refused by name."""
    (work / "file").touch()
    with pytest.raises(BadOption, match="not a directory"):
        DiskCache(DiskCacheConfig((work / "file",)), ORIGIN)
    with pytest.raises(BadOption, match="No such file"):
        DiskCache(DiskCacheConfig((work / "no" / "c",)), ORIGIN)
    for config in ({"block_size": 3 * MIB}, {"block_size": 32 * KIB}, {"min_free_percent": 100}, {"max_bytes": 0}):
        with pytest.raises(BadOption, match="must be"):
            DiskCacheConfig((work,), **config)  # type: ignore[arg-type]


async def test_several_directories(work: Path) -> None:
    """Objects are spread over the directories, and one that is gone misses while the others go on."""
    async with running(work / "a", work / "b") as cache:
        await fill(cache, SMALL, range(60))
        counts = [each.blocks for each in cache.statistics().values()]
        assert sum(counts) == 60
        assert min(counts) > 10
        for path in block_files(work / "b"):
            path.unlink()
        found = 0
        for number in range(60):
            content = content_of(cache, SMALL, number)
            view = await cache.get(content, whole(content))
            assert view is None or view == SMALL.bytes(number)
            found += view is not None
        assert found == counts[0]
        assert await cache.evict() == counts[0] * allocated(SMALL.size + 4096)


async def test_what_is_left_behind_is_cleaned(work: Path) -> None:
    """Files of dead writers and unused blocks of other versions go when they are old; nothing else is touched."""
    directory = work / "c"
    DiskCache(DiskCacheConfig((directory,)), ORIGIN)
    name = "ab" * 20
    for version in ("v0", "v2"):
        (directory / version / "ab").mkdir(parents=True)
    left = [
        directory / "v1" / "new" / f"1-7f{name[:4]}-{name}-1",
        directory / "v0" / "ab" / name,
        directory / "v2" / "ab" / name,
    ]
    kept = [directory / "v2" / "ab" / ("cd" * 20), directory / "v2" / "ab" / "mine", directory / "notes"]
    kept.append(directory / "v1" / "new" / f"pack-{name}.pack")
    for path in [*left, *kept]:
        path.write_bytes(b"x")
    for path in [*left, *kept[1:]]:
        os.utime(path, (time.time() - 30 * 86_400,) * 2)
    async with running(directory) as cache:
        assert counted(cache).blocks == 0
    assert [path.exists() for path in left] == [False] * 3
    assert [path.exists() for path in kept] == [True] * 4


@pytest.mark.parametrize(("min_free_percent", "stays"), [(0, True), (99, False)])
async def test_another_version_makes_room(work: Path, min_free_percent: float, stays: bool) -> None:  # noqa: FBT001
    """Blocks of another version that were not used for an hour go when they take the room of new ones."""
    directory = work / "c"
    (directory / "v2" / "ab").mkdir(parents=True)
    directory.chmod(0o700)
    used, unused = directory / "v2" / "ab" / ("ab" * 20), directory / "v2" / "ab" / ("cd" * 20)
    for path, age_s in ((used, 60), (unused, 7200)):
        path.write_bytes(b"x")
        os.utime(path, (time.time() - age_s,) * 2)
    async with running(directory, min_free_percent=min_free_percent):
        assert (used.exists(), unused.exists()) == (True, stays)
