"""Warming and emptying the disk cache over a store in memory: what is fetched, kept, left out and told."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from s3mount.cache.ages import MetadataConfig
from s3mount.cache.disk import DiskCache
from s3mount.cache.inventory import Inventory
from s3mount.cache.metadata import MetadataCache
from s3mount.core.epochs import CachePolicy
from s3mount.core.ranges import ByteRange
from s3mount.errors import StoreError, StoreFailure
from s3mount.fs.budget import ByteBudget
from s3mount.fs.directories import DirectoryLister
from s3mount.fs.emptying import Emptier
from s3mount.fs.misses import MissCounter
from s3mount.fs.probing import NameProbe
from s3mount.fs.resolver import Resolver
from s3mount.fs.selection import Selector
from s3mount.fs.statistics import WarmCounts
from s3mount.fs.warming import Warmer
from s3mount.units import KIB, MIB
from tests.cache.disk_harness import block_files, counted, running
from tests.support.content import make_content
from tests.support.fake_store import FakeStore, FaultyStore

CONNECTIONS = 32


class Told:
    """A listener that keeps everything."""

    def __init__(self) -> None:
        self.failed: dict[str, str] = {}
        self.warnings: list[str] = []
        self.last: dict[str, Any] = {}

    def progress(self, **facts: Any) -> None:
        self.last = facts

    async def tell(self, event: str, **facts: Any) -> None:
        if event == "failed":
            assert facts["path"] not in self.failed, "told twice"
            self.failed[facts["path"]] = facts["reason"]
        else:
            self.warnings.append(facts["message"])


class Bench:
    """A warmer with its parts.

    Attributes:
        in_flight, most: GETs now, and the most at once.
        gate: not set, GETs wait for it.
    """

    def __init__(self, store: FakeStore, disk: DiskCache, budget: ByteBudget, nursery: trio.Nursery) -> None:
        self.fake = store
        self.disk = disk
        self.budget = budget
        self.fault: Callable[[str], StoreError | None] = lambda _: None
        self.faulty = FaultyStore(store, lambda operation, key, _: self.fault(key) if operation == "get" else None)
        self.inventory = Inventory(disk)
        cache = MetadataCache(trio.current_time, MetadataConfig())
        lister = DirectoryLister(store, cache, nursery)
        resolver = Resolver(NameProbe(store, lister), cache, MissCounter(lister, nursery))
        self.selector = Selector(store, resolver, "p/")
        self.told = Told()
        self.in_flight = self.most = 0
        self.gate = trio.Event()
        self.gate.set()
        self.warmer = Warmer(self, self.inventory, self.selector, budget, connections=CONNECTIONS, part_size=8 * MIB)

    async def confirm(self, wanted: Any) -> None:
        raise NotImplementedError

    async def get_range(self, wanted: Any, span: ByteRange, arrival: Any = None) -> bytes:
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        try:
            await self.gate.wait()
            return await self.faulty.get_range(wanted, span, arrival)
        finally:
            self.in_flight -= 1

    async def settle_at(self, in_flight: int) -> None:
        """Wait for so many GETs, and see that there come no more."""
        while self.in_flight < in_flight:
            await wait_all_tasks_blocked()
        for _ in range(5):
            await wait_all_tasks_blocked()
        assert self.in_flight == in_flight

    async def warm(self, *paths: str) -> WarmCounts:
        self.told = Told()
        self.fake.counts.clear()
        counts = await self.warmer.warm(list(paths), self.told)
        self.warmer.leftovers.check_invariants()
        self.disk.check_invariants()
        assert self.budget.statistics().used == 0
        return counts


@asynccontextmanager
async def bench(
    work: Path, *, budget_bytes: int = 256 * MIB, is_ordered: bool = True, **config: Any
) -> AsyncIterator[Bench]:
    store = FakeStore(is_ordered=is_ordered)
    async with running(work / "c", **config) as disk, trio.open_nursery() as nursery:
        yield Bench(store, disk, ByteBudget(budget_bytes), nursery)
        nursery.cancel_scope.cancel()


def fill(store: FakeStore, n: int, size: int, prefix: str = "p/d/") -> Iterator[str]:
    for number in range(n):
        key = f"{prefix}{number:04}"
        store.put(key, make_content(key, size))
        yield key


async def is_on_disk(at: Bench, key: str) -> bool:
    found, content = at.fake.objects[key]
    cached = at.disk.content(found.id, found.size)
    assert cached is not None
    return bytes(await at.disk.get(cached, ByteRange(0, found.size)) or b"") == content


async def test_each_object_is_one_get(work: Path) -> None:
    """Every object is one GET and is on disk with its own bytes when warm returns; a second warm makes none."""
    async with bench(work) as at:
        keys = list(fill(at.fake, 2500, 1000))
        counts = await at.warm()
        assert (counts.done_files, counts.failed, counts.is_listed) == (2500, 0, True)
        assert at.fake.counts["gets"] == 2500
        assert at.fake.counts["lists"] <= 12
        assert at.told.last["done_files"] == 2500
        assert all([await is_on_disk(at, key) for key in keys[::50]])
        again = await at.warm("d")
        assert (again.cached_files, again.cached_bytes) == (2500, 2_500_000)
        assert at.fake.counts["gets"] == 0


async def test_an_interrupted_warm_goes_on(work: Path) -> None:
    """A warm that was cancelled leaves what it brought, gives all bytes back, and the next one fetches the rest."""
    async with bench(work) as at:
        list(fill(at.fake, 200, 50_000))
        with trio.CancelScope() as scope:
            at.fault = lambda _: scope.cancel() if at.fake.counts["gets"] == 80 else None
            await at.warmer.warm([], at.told)
        assert at.budget.statistics().used == at.warmer.leftovers.statistics().gets == 0
        at.fault = lambda _: None
        await at.disk.drained()
        had = counted(at.disk).blocks
        assert 0 < had < 200
        counts = await at.warm()
        assert (counts.cached_files, counts.done_files, at.fake.counts["gets"]) == (had, 200, 200 - had)


async def test_large_objects_come_in_parts(work: Path) -> None:
    """Parts of one object are fetched at once, holes only, and of the budget no more than a quarter."""
    async with bench(work, budget_bytes=128 * MIB) as at:
        key = "p/large"
        at.fake.put(key, make_content(key, 60 * MIB + 5))
        found, content = at.fake.objects[key]
        cached = at.disk.content(found.id, found.size)
        assert cached is not None
        at.disk.put(cached, 8 * MIB, content[8 * MIB : 16 * MIB])
        at.disk.put(cached, 16 * MIB, content[16 * MIB : 17 * MIB])
        at.disk.put(cached, 30 * MIB, content[30 * MIB : 32 * MIB])
        await at.disk.drained()
        at.gate = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(at.warmer.warm, ["large"], at.told)
            await at.settle_at(4)
            at.gate.set()
        assert (at.told.last["done_files"], at.told.last["cached_files"]) == (1, 0)
        assert (at.fake.counts["gets"], at.fake.counts["bytes"]) == (7, 60 * MIB + 5 - 11 * MIB)
        assert at.most == 4
        assert await is_on_disk(at, key)


async def test_readers_come_first(work: Path) -> None:
    """While readers hold the budget a warm waits, and it leaves one in sixteen connections alone."""
    async with bench(work, budget_bytes=64 * MIB) as at:
        list(fill(at.fake, 100, 100_000))
        assert at.budget.acquire_nowait(64 * MIB, for_demand=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(at.warmer.warm, [], at.told)
            while at.warmer.leftovers.statistics().gets < 30:
                await wait_all_tasks_blocked()
            assert at.warmer.leftovers.statistics() == (30, 0)
            at.gate = trio.Event()
            at.budget.release(64 * MIB)
            await at.settle_at(CONNECTIONS - CONNECTIONS // 16)
            at.gate.set()


async def test_failures_are_told(work: Path) -> None:
    """What cannot be warmed is told once with its path and reason, and everything else is warmed."""
    async with bench(work) as at:
        list(fill(at.fake, 50, 1000))
        at.fake.put("p/d/frozen", b"x" * 10, storage_class="GLACIER")
        at.fake.put("p/empty", b"")
        at.fake.put("p/d//hidden", b"x")
        at.fake.put("p/d/marker/", b"")
        at.fake.put("q", b"x")

        def fault(key: str) -> StoreError | None:
            if key == "p/d/0009":  # somebody replaces it just before
                at.fake.put(key, b"new" * 10)
            return StoreFailure("500", key=key) if key == "p/d/0007" else None

        at.fault = fault
        counts = await at.warm("d", "d/0001", "nothing", "a\udcff", "empty")
        assert (counts.files, counts.done_files, counts.failed) == (52, 49, 5)
        assert set(at.told.failed) == {"d/0007", "d/0009", "d/frozen", "nothing", "a\udcff"}
        assert "replaced" in at.told.failed["d/0009"]
        assert "restored" in at.told.failed["d/frozen"]
        assert "UTF-8" in at.told.failed["a\udcff"]


async def test_a_directory_that_cannot_be_listed(work: Path) -> None:
    """A directory whose LIST fails is told with the reason, and the other paths are warmed."""
    async with bench(work) as at:
        list(fill(at.fake, 5, 1000))
        list(fill(at.fake, 5, 1000, "p/other/"))

        def fault(operation: str, key: str, _: int) -> StoreError | None:
            return StoreFailure("500", key=key) if operation == "list" and key == "p/d/" else None

        selector = Selector(FaultyStore(at.fake, fault), at.selector._resolver, "p/")
        at.warmer.selector = selector
        counts = await at.warm("d", "other")
        assert (counts.done_files, counts.failed) == (5, 1)
        assert "500" in at.told.failed["d"]


async def test_what_is_never_kept_is_told(work: Path) -> None:
    """Content that the user wants kept off the disk fails to be warmed, and the reason says so."""
    async with bench(work, prefix_policies=(("p/d/", CachePolicy.OFF),)) as at:
        list(fill(at.fake, 2, 1000))
        list(fill(at.fake, 2, 1000, "p/other/"))
        counts = await at.warm()
        assert (counts.done_files, counts.failed) == (2, 2)
        assert all("policy off" in reason for reason in at.told.failed.values())


async def test_no_more_than_fits(work: Path) -> None:
    """What is more than the cache may hold is left out with one warning, and nothing is evicted for it."""
    async with bench(work, max_bytes=10 * MIB) as at:
        list(fill(at.fake, 30, MIB - 4 * KIB))
        for gets in (10, 0):
            counts = await at.warm()
            assert (counts.done_files, counts.left_out, counts.failed) == (10, 20, 0)
            assert at.fake.counts["gets"] == gets
            assert len(at.told.warnings) == 1
        assert counted(at.disk).evicted == 0


async def test_a_new_set_replaces_the_old(work: Path) -> None:
    """A warm of other objects replaces those used longest ago; with the policy pin each is told to have failed."""
    for policy, failed in ((CachePolicy.AUTO, 0), (CachePolicy.PIN, 8)):
        (work / policy.value).mkdir()
        async with bench(work / policy.value, max_bytes=10 * MIB, policy=policy) as at:
            list(fill(at.fake, 10, MIB - 4 * KIB, "p/old/"))
            list(fill(at.fake, 8, MIB - 4 * KIB, "p/new/"))
            assert (await at.warm("old")).done_files == 10
            counts = await at.warm("new")
            assert (counts.done_files, counts.failed) == (8 - failed, failed)
            assert all("did not keep it" in reason for reason in at.told.failed.values())


async def test_a_slow_disk_sets_the_pace(work: Path) -> None:
    """A queue to the disk of one block loses nothing: no block is dropped, and every file is on disk."""
    async with bench(work, max_queued=8 * MIB) as at:
        list(fill(at.fake, 60, MIB))
        counts = await at.warm()
        assert (counts.done_files, counts.failed) == (60, 0)
        assert (counted(at.disk).dropped, counted(at.disk).blocks) == (0, 60)


async def test_a_disk_that_fails_is_told(work: Path) -> None:
    """When the cache directory is gone every file is told, and warm returns."""
    async with bench(work) as at:
        list(fill(at.fake, 20, 1000))
        (work / "c").rename(work / "gone")
        counts = await at.warm()
        assert counts.done_files == 0
        assert counts.failed + counts.left_out == 20


async def test_an_unordered_store(work: Path) -> None:
    """A store that lists in no order is warmed as any other."""
    async with bench(work, is_ordered=False) as at:
        list(fill(at.fake, 1500, 100))
        assert (await at.warm()).done_files == 1500


@pytest.mark.parametrize("paths", [["d"], ["d/0001", "d/0002"], []])
async def test_evict_removes_what_is_below(work: Path, paths: list[str]) -> None:
    """Evicting removes all blocks of what lies below the paths, of every size, and no others."""
    async with bench(work) as at:
        list(fill(at.fake, 3, 9 * MIB))
        list(fill(at.fake, 3, 1000, "p/other/"))
        await at.warm()
        before = len(block_files(work / "c"))
        counts = await Emptier(at.inventory, at.selector).evict(paths, at.told)
        assert counts.failed == 0
        expected = {"d": 6, "d/0001": 4}.get(paths[0], 0) if paths else 9
        assert counts.blocks == before - len(block_files(work / "c")) == expected
        assert counted(at.disk).blocks == before - expected
        assert await is_on_disk(at, "p/other/0000") is bool(paths)
