"""Disks that are full, read-only, broken, slow, stuck or gone: misses, counters and one warning, never an error."""

import contextlib
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from s3mount.cache.space import Limits, WriteJob
from s3mount.cache.volume import Volume
from s3mount.core.attrs import ObjectId
from s3mount.core.cells import CachedContent, cached_content
from s3mount.core.epochs import CachePolicy
from s3mount.core.ranges import ByteRange
from s3mount.units import MIB
from tests.cache.disk_harness import ORIGIN, FakeClock, block_files, volume, whole
from tests.support.content import make_content
from tests.support.processes import wait_until

SIZE = 100_000


def run(*command: str | Path) -> None:
    subprocess.run(command, check=True)


@contextlib.contextmanager
def small_disk(work: Path, size: int, *options: str) -> Iterator[Path]:
    """An ext4 of its own in a file."""
    image, mount = work / "image", work / "disk"
    mount.mkdir()
    with image.open("wb") as file:
        file.truncate(size)
    run("mkfs.ext4", "-q", "-m", "0", *options, image)
    run("mount", "-o", "loop", image, mount)
    try:
        yield mount
    finally:
        run("umount", "--lazy", mount)


def content_of(number: int, size: int = SIZE) -> CachedContent:
    return cached_content(ORIGIN, ObjectId(str(number), "e"), size)


def data_of(number: int, size: int = SIZE) -> bytes:
    return make_content(f"faults-{number}", size)


async def put(cache: Volume, number: int, size: int = SIZE, policy: CachePolicy = CachePolicy.AUTO) -> None:
    content = content_of(number, size)
    data = memoryview(data_of(number, size))
    for block in content.carve(whole(content)):
        cache.put(WriteJob(block, data[block.span.start : block.span.stop], policy))
    await cache.drained()


async def get(cache: Volume, number: int) -> bool:
    """Whether it is a hit, and then the right one."""
    content = content_of(number)
    view = cache.reads.get_nowait(content, whole(content))
    if view is None:
        outcome = await cache.reads.find(content, whole(content))
        if not outcome.is_hit:
            return False
        view = outcome.before
    assert view == data_of(number)
    return True


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def forget_pages(directory: Path) -> None:
    for path in block_files(directory):
        fd = os.open(path, os.O_RDONLY)
        with contextlib.suppress(OSError):  # a disk that fails has pages that cannot be written, nor forgotten
            os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


async def test_the_share_stays_free(work: Path) -> None:
    """While four times as much is put in as fits, 5 % of the disk stay free within 1 %, and the disk is used."""
    with small_disk(work, 256 * MIB) as disk:
        async with volume(disk) as cache:
            least, most = 1.0, 0.0
            for number in range(100):
                await put(cache, number, 8 * MIB if number % 2 else 2 * MIB + 77, CachePolicy.LRU)
                found = os.statvfs(disk)
                least = min(least, found.f_bavail / found.f_blocks)
                if number > 60:
                    most = max(most, found.f_bavail / found.f_blocks)
            assert least >= 0.04
            assert most <= 0.05 + 0.01 + 9 / 256
            assert cache.statistics().evicted > 50
            assert cache.statistics().dropped == cache.statistics().refused == 0


async def test_the_cache_gives_way(work: Path) -> None:
    """When another process fills the disk, the cache gives way until 5 % are free within 1 %, whatever the policy."""
    with small_disk(work, 256 * MIB) as disk:
        async with volume(disk) as cache:
            for number in range(40):
                await put(cache, number, 8 * MIB, CachePolicy.PIN)
            refused = cache.statistics().refused
            assert refused > 0
            for step in range(4):
                eater = ["fallocate", "-l", str(10 * MIB), str(disk / f"eaten-{step}")]
                await trio.run_process(eater)

                def is_free() -> bool:
                    found = os.statvfs(disk)
                    return found.f_bavail / found.f_blocks >= 0.04

                await trio.to_thread.run_sync(wait_until, is_free, 30, "giving way")
            assert cache.statistics().evicted > 0
            assert cache.statistics().errors == {}


async def test_a_disk_without_room_for_a_file(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    """ENOSPC is a dropped block, one warning and a count; the oldest blocks go, though statvfs shows room."""
    with small_disk(work, 32 * MIB, "-N", "320") as disk:
        async with volume(disk, Limits(min_free_share=0)) as cache:
            for number in range(80):
                await put(cache, number)
            counts = cache.statistics()
            assert counts.errors == {"write ENOSPC": counts.dropped}
            assert 1 <= counts.dropped <= 15
            assert counts.written == 80 - counts.dropped
            assert counts.blocks == counts.written - counts.evicted
            assert len(warnings_of(caplog)) == 1
            found = [await get(cache, number) for number in range(80)]
            assert sum(found) == counts.blocks
            assert found[0] is False
            assert any(found[-2:])
            assert list(disk.glob("v1/new/*")) == []


async def test_a_disk_that_becomes_read_only(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A read-only disk goes on being read; writing stops with one warning and begins again when it can."""
    timer = FakeClock(0)
    with small_disk(work, 64 * MIB) as disk:
        async with volume(disk, timer=timer) as cache:
            await put(cache, 0)
            run("mount", "-o", "remount,ro", disk)
            for number in range(1, 10):
                await put(cache, number)
            assert await get(cache, 0)
            counts = cache.statistics()
            assert counts.errors["write EROFS"] == 3
            assert counts.dropped == 9
            assert len([line for line in warnings_of(caplog) if "write" in line]) == 1
            run("mount", "-o", "remount,rw", disk)
            await put(cache, 20)
            assert not await get(cache, 20)
            timer.now += 2
            await put(cache, 21)
            await put(cache, 22)
            assert [await get(cache, number) for number in (0, 21, 22)] == [True] * 3


async def test_wrong_blocks_on_a_read_only_disk(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Wrong blocks that cannot be removed are misses and counted, and the right ones are hits as before."""
    with small_disk(work, 64 * MIB) as disk:
        async with volume(disk) as cache:
            for number in range(9):
                await put(cache, number)
            for path in block_files(disk)[:8]:
                path.write_bytes(b"wrong")
            run("mount", "-o", "remount,ro", disk)
            for _ in range(2):
                assert sum([await get(cache, number) for number in range(9)]) == 1
            counts = cache.statistics()
            assert (counts.corrupt, counts.bypassed, counts.blocks) == (16, 0, 1)
            assert counts.errors == {"remove EROFS": 16}
            assert len([line for line in warnings_of(caplog) if "remove" in line]) == 1


async def test_what_cannot_be_looked_at(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A folder that cannot be read, or what cannot be cleaned, keeps nobody from knowing and writing the rest."""
    async with volume(work / "c") as cache:
        for number in range(20):
            await put(cache, number)
    first = min(block_files(work / "c")).parent
    kept = [path for path in block_files(work / "c") if path.parent != first]
    shutil.rmtree(first)
    first.touch()
    (work / "c" / "v1" / "new").rmdir()
    prepared = Volume(work / "c", Limits(max_bytes=100 * MIB))  # without `prepare`, which would refuse and repair
    async with prepared.running():
        await prepared.scanned()
        assert prepared.statistics().blocks == len(kept)
        assert set(prepared.statistics().errors) >= {"clean ENOENT", "scan ENOTDIR"}


async def test_a_disk_that_breaks(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    """EIO is a miss; after three the disk is left alone, and probed again later."""
    timer = FakeClock(0)
    with small_disk(work, 64 * MIB) as disk:
        async with volume(disk, timer=timer) as cache:
            for number in range(10):
                await put(cache, number)
            assert await get(cache, 0)
            os.sync()
            forget_pages(disk)
            os.truncate(work / "image", MIB)
            assert [await get(cache, number) for number in range(10)] == [False] * 10
            counts = cache.statistics()
            assert counts.errors["read EIO"] == 3
            assert counts.bypassed == 7
            assert counts.corrupt == 0
            assert len([line for line in warnings_of(caplog) if "read" in line.partition(":")[2]]) == 1
            timer.now += 2
            assert not await get(cache, 0)
            assert cache.statistics().errors["read EIO"] == 4


async def test_a_directory_deleted_under_us(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A directory that is deleted is misses and dropped blocks; made again, it is used again."""
    timer = FakeClock(0)
    async with volume(work / "c", timer=timer) as cache:
        for number in range(3):
            await put(cache, number)
        shutil.rmtree(work / "c")
        assert [await get(cache, number) for number in range(3)] == [False] * 3
        for number in range(3, 10):
            await put(cache, number)
        assert cache.statistics().blocks == 0
        assert cache.statistics().dropped == 7
        assert len([line for line in warnings_of(caplog) if "write" in line]) == 1
        (work / "c").mkdir(mode=0o700)
        timer.now += 2
        for number in range(3):
            await put(cache, number)
        assert [await get(cache, number) for number in range(3)] == [True] * 3


async def test_a_directory_that_somebody_else_made_again(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A directory that was deleted and made again so that others may write to it is not used until they may not."""
    timer = FakeClock(0)
    async with volume(work / "c", timer=timer) as cache:
        shutil.rmtree(work / "c")
        (work / "c").mkdir()
        (work / "c").chmod(0o777)
        for number in range(6):
            await put(cache, number)
            timer.now += 100
        assert list((work / "c").iterdir()) == []
        assert [line for line in warnings_of(caplog) if "others may write to" in line]
        (work / "c").chmod(0o700)
        await put(cache, 10)
        assert await get(cache, 10)


async def test_another_disk_in_its_place(work: Path) -> None:
    """When another file system takes the directory's place, it is not filled."""
    timer = FakeClock(0)
    async with volume(work / "c", timer=timer) as cache:
        await put(cache, 0)
        run("mount", "-t", "tmpfs", "tmpfs", work / "c")
        try:
            for number in range(1, 10):
                await put(cache, number)
                timer.now += 100
            assert list((work / "c").iterdir()) == []
        finally:
            run("umount", work / "c")
        timer.now += 100
        await put(cache, 10)
        assert await get(cache, 10)
        assert await get(cache, 0)


async def test_a_ram_cache(work: Path) -> None:
    """A tmpfs works: where the kernel cannot say what is in memory, threads read."""
    (work / "c").mkdir()
    run("mount", "-t", "tmpfs", "-o", "mode=700", "tmpfs", work / "c")
    try:
        async with volume(work / "c") as cache:
            for number in range(5):
                await put(cache, number)
            assert [await get(cache, number) for number in range(5)] == [True] * 5
            assert cache.statistics().errors == {}
    finally:
        run("umount", work / "c")


async def test_a_disk_slower_than_s3(work: Path) -> None:
    """A disk that takes longer than S3 is bypassed, probed, and used again when it is fast."""
    timer = FakeClock(0, step_s=0.050)
    async with volume(work / "c", timer=timer) as cache:
        await put(cache, 0)
        content = content_of(0)

        async def is_hit() -> bool:
            return (await cache.reads.find(content, whole(content), patience_s=0.020)).is_hit

        while await is_hit():
            assert cache.statistics().hits < 20
        bypassed = cache.statistics().bypassed
        assert bypassed >= 1
        assert cache.reads.get_nowait(content, whole(content)) is None
        timer.step_s = 0.001
        timer.now += 2
        assert await is_hit()
        assert await is_hit()
        assert cache.statistics().bypassed == bypassed


async def test_a_disk_that_hangs(work: Path) -> None:
    """A read that hangs is given up, so are the next, and then the disk is left alone."""
    async with volume(work / "c") as cache:
        await put(cache, 0)
        (path,) = block_files(work / "c")
        path.unlink()
        os.mkfifo(path)  # an open of it for reading waits for a writer, as long as there is none
        content = content_of(0)
        for _ in range(5):
            assert not (await cache.reads.find(content, ByteRange(0, 10), patience_s=0.001)).is_hit
        counts = cache.statistics()
        assert counts.late >= 1
        assert counts.late + counts.bypassed == counts.misses == 5
        assert counts.bypassed >= 2
        fd = os.open(path, os.O_WRONLY)  # lets the threads go
        path.unlink()
        os.close(fd)


async def test_permissions_that_are_lost(work: Path) -> None:
    """A directory whose permissions are taken away is misses and dropped blocks for who is not root."""
    script = (
        "import os, sys, trio; os.setuid(65534);"
        "from pathlib import Path; from tests.cache.test_disk_faults import lose_permissions;"
        "trio.run(lose_permissions, Path(sys.argv[1]))"
    )
    (work / "c").mkdir()
    os.chown(work / "c", 65534, 65534)
    for parent in [work, *work.parents]:
        if parent.stat().st_uid == os.getuid() and parent != Path("/") and parent != Path("/tmp"):
            parent.chmod(0o755)
    await trio.run_process([sys.executable, "-c", script, str(work / "c")], cwd=Path(__file__).parents[2])


async def lose_permissions(directory: Path) -> None:
    async with volume(directory) as cache:
        await put(cache, 0)
        (directory / "v1").chmod(0)
        assert not await get(cache, 0)
        await put(cache, 1)
        counts = cache.statistics()
        assert counts.errors["read EACCES"] == counts.errors["write EACCES"] == 1
        assert (counts.dropped, counts.corrupt) == (1, 0)
        (directory / "v1").chmod(0o700)
        assert await get(cache, 0)


async def test_removed_blocks_give_their_space_back(work: Path) -> None:
    """A block that another process removed is closed within a second or two, so that its space is free."""
    async with volume(work / "c") as cache:
        await put(cache, 0)
        assert await get(cache, 0)
        assert cache.statistics().open_blocks == 1
        block_files(work / "c")[0].unlink()
        await trio.to_thread.run_sync(wait_until, lambda: not cache.statistics().blocks, 60, "closing")
        assert cache.statistics().open_blocks == 0
        assert not await get(cache, 0)


async def test_a_file_system_without_direct_reads(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where files cannot be read past the kernel's memory they are read through it."""
    directly = []
    real = os.open

    def without_direct(path: str, flags: int, *how: int, **more: int) -> int:
        if flags & os.O_DIRECT:
            directly.append(path)
            raise OSError(22, "Invalid argument", path)
        return real(path, flags, *how, **more)

    async with volume(work / "c") as cache:
        await put(cache, 0)
        monkeypatch.setattr(os, "open", without_direct)
        for _ in range(3):
            content = content_of(0)
            outcome = await cache.reads.find(content, whole(content))
            assert outcome.is_hit
            assert outcome.before == data_of(0)
        counts = cache.statistics()
        assert (len(directly), counts.corrupt, counts.errors) == (1, 0, {})
