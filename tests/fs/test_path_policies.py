"""Sections for paths over a store that counts: one mount for data, checkpoints and models."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from s3mount.cache.ages import MetadataConfig
from s3mount.cache.disk import DiskCache
from s3mount.cache.disk_config import DiskCacheConfig
from s3mount.core.epochs import CachePolicy
from s3mount.core.policies import PathPolicies, PathPolicy
from s3mount.core.ttl import INDEFINITE, MINIMAL, TimeToLive
from s3mount.errors import NameNotFound
from s3mount.units import MIB
from tests.cache.disk_harness import ORIGIN, counted
from tests.fs.harness import Mounted, file_system
from tests.support.content import make_content
from tests.support.fake_store import FakeStore

SECTIONS = [
    ("datasets/**", PathPolicy(INDEFINITE, INDEFINITE)),
    ("ckpt/**", PathPolicy(MINIMAL, MINIMAL, CachePolicy.OFF)),
    ("models/**", PathPolicy(is_whole=True)),
    ("datasets/**/LATEST", PathPolicy(MINIMAL, MINIMAL)),
]
BIG = make_content("big", 40 * MIB)


@asynccontextmanager
async def mount(store: FakeStore, *, root: str = "", disk: DiskCache | None = None) -> AsyncIterator[Mounted]:
    policies = PathPolicies(SECTIONS, root)
    metadata = MetadataConfig(TimeToLive(60.0), TimeToLive(60.0))
    async with file_system(store, prefix=root, metadata=metadata, policies=policies, disk=disk) as mounted:
        yield mounted


async def list_all(mounted: Mounted, *paths: str) -> None:
    for path in paths:
        await mounted.names((await mounted.walk(path)).ino)


@pytest.mark.parametrize("root", ["", "team/"])
async def test_a_new_checkpoint_is_seen_while_the_data_set_costs_nothing(autojump_clock: object, root: str) -> None:
    """With sections a checkpoint that another host wrote is what the next open reads, for one request beside its
    content; and a data set that was listed and read costs no request, for as long as the mount lives.
    """
    store = FakeStore()
    for n in range(20):
        store.put(f"{root}datasets/f{n:02}", b"data")
    store.put(f"{root}ckpt/last", b"old")
    async with mount(store, root=root) as mounted:
        await list_all(mounted, "datasets", "ckpt")
        names = [f"datasets/f{n:02}" for n in range(20)]
        assert {await mounted.read_file(name) for name in [*names, "ckpt/last"]} == {b"data", b"old"}
        for content in (b"new", b"newer"):
            store.put(f"{root}ckpt/last", content)
            store.put(f"{root}datasets/f00", b"changed by mistake")
            await trio.sleep(3600)
            store.counts.clear()
            assert await mounted.read_file("ckpt/last") == content
            assert store.counts["gets"] == 1
            assert store.counts["lists"] + store.counts["heads"] == 1
            store.counts.clear()
            for name in names:
                attrs = await mounted.walk(name)
                mounted.fs.release(await mounted.fs.open(attrs.ino))
            assert len(await mounted.names((await mounted.walk("datasets")).ino)) == 20
            with pytest.raises(NameNotFound):
                await mounted.walk("datasets/missing")
            assert store.counts == {}


async def test_an_absent_checkpoint_is_asked_for_each_time(autojump_clock: object) -> None:
    """A name under a minimal section that was not there is seen as soon as it is; one elsewhere after its time."""
    store = FakeStore()
    store.put("ckpt/1", b"1")
    store.put("other/1", b"1")
    async with mount(store) as mounted:
        await list_all(mounted, "ckpt", "other")
        for name in ("ckpt/2", "other/2"):
            with pytest.raises(NameNotFound):
                await mounted.walk(name)
            store.put(name, b"2")
        assert await mounted.read_file("ckpt/2") == b"2"
        with pytest.raises(NameNotFound):
            await mounted.walk("other/2")
        await trio.sleep(61)
        assert await mounted.read_file("other/2") == b"2"


async def test_one_name_in_a_directory_of_others(autojump_clock: object) -> None:
    """A section for single names holds for them in directories that are believed: what the kernel is told of an
    entry, and whether S3 is asked, goes by the entry's own path.
    """
    store = FakeStore()
    store.put("datasets/LATEST", b"v1")
    store.put("datasets/a", b"1")
    async with mount(store) as mounted:
        ino = (await mounted.walk("datasets")).ino
        handle = await mounted.fs.opendir(ino)
        told: dict[bytes, float] = {}
        await mounted.fs.readdir(handle, 0, lambda name, attrs, _: told.setdefault(name, attrs.ttl_s) >= 0)
        mounted.fs.releasedir(handle)
        assert told[b"LATEST"] <= MINIMAL.seconds
        assert told[b"a"] == INDEFINITE.kernel_limit_s
        await trio.sleep(2)
        store.put("datasets/LATEST", b"v2")
        store.counts.clear()
        assert (await mounted.walk("datasets/a")).size == 1
        assert store.counts == {}
        assert await mounted.read_file("datasets/LATEST") == b"v2"


async def test_what_a_section_keeps_on_disk(work: Path) -> None:
    """A section says what the disk cache keeps of its paths, whatever --cache-policy says of a prefix."""
    store = FakeStore()
    for name in ("datasets/a", "ckpt/a", "other/a"):
        store.put(name, make_content(name, 100_000))
    config = DiskCacheConfig((work / "c",), prefix_policies=(("other/", CachePolicy.OFF), ("ckpt/", CachePolicy.PIN)))
    cache = DiskCache(config, ORIGIN, policies=PathPolicies(SECTIONS))
    async with cache.running(), mount(store, disk=cache) as mounted:
        for name in ("datasets/a", "ckpt/a", "other/a"):
            assert await mounted.read_file(name) == make_content(name, 100_000)
        await cache.drained()
        assert counted(cache).written == 1
        assert cache.statistics()


async def wait_for_gets(store: FakeStore, mounted: Mounted, path: str) -> int:
    """What the first small read of a file, and what it starts, brings."""
    attrs = await mounted.walk(path)
    handle = await mounted.fs.open(attrs.ino)
    store.counts.clear()
    await mounted.read(handle, 5 * MIB, 4096)
    await trio.sleep(5)
    mounted.fs.release(handle)
    return store.counts["bytes"]


async def test_a_file_that_is_wanted_whole(autojump_clock: object) -> None:
    """Under `whole-file` the first read of an opened file, wherever it is, starts the fetch of all of it."""
    store = FakeStore(latency_s=0.03)
    store.put("models/m", BIG)
    store.put("datasets/m", BIG)
    async with mount(store) as mounted:
        assert await wait_for_gets(store, mounted, "datasets/m") < 2 * MIB
        for _ in range(2):
            assert len(BIG) - MIB <= await wait_for_gets(store, mounted, "models/m") <= len(BIG)
            await trio.sleep(60)


async def test_a_wanted_file_larger_than_the_budget(autojump_clock: object) -> None:
    """Of a file that does not fit all that fits is fetched, each part once, and a reader gets all of it right."""
    store = FakeStore(latency_s=0.03)
    store.put("models/m", BIG)
    policies = PathPolicies(SECTIONS)
    async with file_system(store, policies=policies, budget_bytes=24 * MIB, part_size=MIB) as mounted:
        assert await mounted.read_file("models/m") == BIG
        assert store.counts["bytes"] == len(BIG)
