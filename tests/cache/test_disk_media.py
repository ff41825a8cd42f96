"""Disks that fail below the file system: one that loses what it took, one that takes nothing for a while."""

import os
from pathlib import Path

import pytest

from s3mount.cache.space import WriteJob
from s3mount.units import MIB
from tests.cache.disk_harness import FakeClock, volume, whole
from tests.cache.test_disk_faults import content_of, data_of, forget_pages, get, put, run, small_disk, warnings_of


async def test_a_disk_that_loses_what_was_written(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    """When the disk under the file system fails after it took the blocks, what is lost of them is a miss, and nothing
    is read that was not written.
    """
    thin = work / "thin"
    thin.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", thin)
    try:
        with small_disk(thin, 64 * MIB) as disk:
            async with volume(disk, timer=FakeClock(0, step_s=10)) as cache:
                for number in range(200):
                    await put(cache, number)
                os.sync()  # 20 MB, of which there is room for half
                forget_pages(disk)
                found = [await get(cache, number) for number in range(200)]
                for number in range(200, 210):
                    await put(cache, number)
                counts = cache.statistics()
                assert 0 < sum(found) < 200
                assert (counts.written, counts.dropped) == (200, 10)
                assert len(warnings_of(caplog)) == len(counts.errors) > 0
    finally:
        run("umount", "--lazy", thin)


async def test_a_disk_that_hangs_while_it_is_written(work: Path) -> None:
    """While a disk takes no writes nobody waits for it: reads go on, what does not fit the queue is dropped."""
    with small_disk(work, 256 * MIB) as disk:
        async with volume(disk, max_queued=16 * MIB) as cache:
            await put(cache, 0)
            assert await get(cache, 0)
            run("fsfreeze", "--freeze", disk)
            try:
                for number in range(1, 6):
                    content = content_of(number, 8 * MIB)
                    for block in content.carve(whole(content)):
                        cache.put(WriteJob(block, memoryview(data_of(number, 8 * MIB))))
                assert await get(cache, 0)
                counts = cache.statistics()
                assert (counts.dropped, counts.queued_bytes, counts.written) == (3, 16 * MIB, 1)
            finally:
                run("fsfreeze", "--unfreeze", disk)
            await cache.drained()
            assert cache.statistics().written == 3
            assert cache.statistics().errors == {}
