"""The memory watch: what goes when memory is short, in which order, and that readers do not notice."""

import logging
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from s3mount.core.ranges import ByteRange
from s3mount.daemon.keeper import NoKeeper
from s3mount.daemon.pressure import MemoryWatch
from s3mount.fs.blocks import BlockStore
from s3mount.mounter.sdnotify import ServiceManager
from s3mount.units import KIB, MIB
from tests.daemon.groups import V2, Tree
from tests.fs.harness import Mounted, file_system
from tests.fs.trees import A_MINUTE
from tests.support.content import make_content
from tests.support.fake_store import FakeStore

PART = 8 * MIB


class Keeper(NoKeeper):
    """Remembers what it was told."""

    def __init__(self) -> None:
        super().__init__(ServiceManager(None))
        self.told: list[bool] = []

    def memory_is_short(self, *, is_short: bool) -> None:
        self.told.append(is_short)


class Group:
    """A control group of 1,000 MiB that a test fills."""

    def __init__(self, work: Path) -> None:
        self._tree = Tree(work)
        self._tree.mount("u", V2, {"a/memory.max": str(1000 * MIB)})
        self.use(100)
        self.memory = self._tree.memory("0::/a")

    def use(self, used_mib: int) -> None:
        self._tree.write("u", {"a/memory.current": str(used_mib * MIB)})


@pytest.fixture
def group(work: Path) -> Group:
    return Group(work)


async def _stream(mounted: Mounted, content: bytes) -> int:
    """A handle on `f` whose reader has read 24 MiB in order, and so has a window ahead."""
    handle = await mounted.fs.open((await mounted.walk("f")).ino)
    for offset in range(0, 24 * MIB, 128 * KIB):
        assert await mounted.read(handle, offset, 128 * KIB) == content[offset : offset + 128 * KIB]
    await wait_all_tasks_blocked()
    return handle


async def test_speculation_goes_first(
    group: Group, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """When memory is short, what was read ahead goes, and names stay known when that is enough; the reader goes on,
    with less ahead of it.
    """
    store = FakeStore()
    content = make_content("f", 96 * MIB)
    store.put("f", content)
    async with file_system(store, metadata=A_MINUTE) as mounted:
        watch = MemoryWatch(mounted.budget, group.memory, Keeper())
        handle = await _stream(mounted, content)
        ahead = mounted.blocks.statistics().held_bytes
        assert ahead >= 32 * MIB
        await watch.look(mounted.fs)
        assert mounted.blocks.statistics().held_bytes == ahead, "memory is not short yet"
        group.use(950)
        await watch.look(mounted.fs)
        assert mounted.blocks.statistics().held_bytes == 0
        assert mounted.fs.statistics().metadata.records > 0
        assert watch.statistics().narrowing == 1
        for offset in range(24 * MIB, 96 * MIB, 128 * KIB):
            assert await mounted.read(handle, offset, 128 * KIB) == content[offset : offset + 128 * KIB]
            assert mounted.budget.statistics().used <= mounted.budget.total // 2
        mounted.fs.release(handle)
        watch.check_invariants()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "950 MiB of the 1000 MiB of the memory of the control group" in caplog.text


async def test_what_readers_wait_for_stays(group: Group, autojump_clock: MockClock) -> None:
    """Shedding cancels what is on its way for nobody, and nothing that a reader waits for."""
    store = FakeStore(latency_s=1.0)
    content = make_content("f", 64 * MIB)
    store.put("f", content)
    async with file_system(store) as mounted:
        watch = MemoryWatch(mounted.budget, group.memory, Keeper())
        opened = mounted.blocks.open(store.objects["f"][0].id, 64 * MIB)
        for start in range(0, 32 * MIB, PART):
            await mounted.blocks.begin(opened, ByteRange(start, start + PART), wait=False)
        wanted = ByteRange(PART, PART + MIB)
        read: list[bytes] = []

        async def reader(blocks: BlockStore) -> None:
            read.append(bytes(await blocks.read(opened, wanted)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader, mounted.blocks)
            await wait_all_tasks_blocked()
            group.use(950)
            await watch.look(mounted.fs)
            await wait_all_tasks_blocked()
            assert mounted.blocks.statistics().pending == 1
        assert read == [content[wanted.start : wanted.stop]]
        assert mounted.budget.statistics().used == PART
        mounted.blocks.close(opened)


async def test_caches_go_when_speculation_was_not_enough(group: Group, autojump_clock: MockClock) -> None:
    """Names that are remembered go when memory stays short, and are asked for again; not where they hold next to
    nothing.
    """
    store = FakeStore()
    for number in range(13_000):
        store.put(f"d/{number}", b"1")
    async with file_system(store, metadata=A_MINUTE) as mounted:
        watch = MemoryWatch(mounted.budget, group.memory, Keeper())
        await mounted.walk("d/5")
        group.use(950)
        await watch.look(mounted.fs)
        assert watch.statistics().caches == 0
        directory = (await mounted.walk("d")).ino
        assert len(await mounted.names(directory)) == 13_000
        await watch.look(mounted.fs)
        assert watch.statistics().caches == 1
        assert mounted.fs.statistics().metadata.listed_names == 0
        lists = store.counts["lists"]
        assert len(await mounted.names(directory)) == 13_000
        assert store.counts["lists"] > lists


async def test_it_ends(group: Group, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    """One WARNING when memory becomes short and one INFO when it is no longer, however many looks lie between; then
    the windows are as wide as before.  The mounter hears of both.
    """
    caplog.set_level(logging.INFO, "s3mount.daemon.pressure")
    async with file_system(FakeStore()) as mounted, trio.open_nursery() as nursery:
        keeper = Keeper()
        watch = MemoryWatch(mounted.budget, group.memory, keeper)
        nursery.start_soon(watch.run, mounted.fs)
        for used_mib in (100, 950, 870, 950, 100):
            group.use(used_mib)
            await trio.sleep(3)
        assert mounted.budget.limit < mounted.budget.total
        await trio.sleep(100)
        assert mounted.budget.limit == mounted.budget.total
        assert watch.statistics().times == 1
        assert keeper.told == [True, False]
        nursery.cancel_scope.cancel()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


async def test_content_that_comes_is_looked_at_at_once(group: Group, mock_clock: MockClock) -> None:
    """32 MiB that arrived are a reason to look before the second is over: a network may bring a gigabyte in it."""
    async with file_system(FakeStore()) as mounted, trio.open_nursery() as nursery:
        watch = MemoryWatch(mounted.budget, group.memory, Keeper())
        nursery.start_soon(watch.run, mounted.fs)
        await wait_all_tasks_blocked()
        group.use(950)
        watch.grew(31 * MIB)
        await wait_all_tasks_blocked()
        assert watch.statistics().times == 0
        watch.grew(MIB)
        await wait_all_tasks_blocked()
        assert watch.statistics().times == 1
        nursery.cancel_scope.cancel()
