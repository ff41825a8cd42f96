"""Epochs over more than the disk cache holds, read through the file system: what S3 is asked for."""

import random
import time
from pathlib import Path

from s3mount.cache.ages import MetadataConfig
from s3mount.cache.disk import DiskCache, DiskCacheConfig
from s3mount.core.lru import allocated
from s3mount.core.ttl import INDEFINITE
from tests.cache.disk_harness import ORIGIN, FakeClock, counted
from tests.fs.harness import Mounted, file_system
from tests.support.content import make_content
from tests.support.fake_store import FakeStore

N = 600
SIZE = 1000


async def epoch(mounted: Mounted, cache: DiskCache, store: FakeStore, data_set: str, seed: int) -> int:
    """The GETs of one pass over all files in an order of its own."""
    store.counts.clear()
    for number in random.Random(seed).sample(range(N), N):
        name = f"{data_set}{number:03}"
        assert await mounted.read_file(name) == make_content(name, SIZE)
        await cache.drained()
    return store.counts["gets"]


async def test_shuffled_epochs_and_another_data_set(work: Path) -> None:
    """Of files of which half fits the disk, shuffled epochs after the first fetch at most 0.52; another data set that
    comes to the full disk replaces them in its first epoch.
    """
    store = FakeStore()
    for data_set in "ab":
        for number in range(N):
            store.put(f"{data_set}{number:03}", make_content(f"{data_set}{number:03}", SIZE))
    config = DiskCacheConfig((work / "c",), max_bytes=N // 2 * allocated(SIZE + 4096))
    cache = DiskCache(config, ORIGIN, FakeClock(time.time(), step_s=1.0))  # no epoch takes less than a second
    metadata = MetadataConfig(INDEFINITE, INDEFINITE)
    async with cache.running(), file_system(store, disk=cache, metadata=metadata) as mounted:
        gets = [await epoch(mounted, cache, store, "a", seed) for seed in range(5)]
        assert gets[0] == N
        assert max(gets[1:]) <= 0.52 * N
        gets = [await epoch(mounted, cache, store, "b", seed) for seed in range(2)]
        assert gets[0] == N
        assert gets[1] <= 0.52 * N
        assert counted(cache).blocks == N // 2
