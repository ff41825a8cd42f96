"""What a listing no longer has, the kernel is told to forget."""

from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from s3mount.cache.ages import MetadataConfig
from s3mount.core.ttl import TimeToLive
from tests.fs.harness import ROOT, Mounted, file_system
from tests.support.fake_store import FakeStore

TTL = MetadataConfig(TimeToLive(1.0), TimeToLive(1.0))


class Kernel:
    """Implements `fs.notifier.KernelNotifier`: what it need not remember.

    Attributes:
        most: that it takes in one call.
        wait_s: that each call takes.
        notes: that were left, of which there are none.
    """

    def __init__(self) -> None:
        self.names: list[tuple[int, str]] = []
        self.most = 1_000_000
        self.wait_s = 0.0
        self.notes: list[int] = []

    def forget_name(self, parent_ino: int, name: bytes) -> None:
        self.notes.append(parent_ino)

    def forget_inode(self, ino: int) -> None:
        self.notes.append(ino)

    async def room(self) -> None:
        """There always is."""

    async def let_go(self, names: Sequence[tuple[int, bytes]]) -> int:
        self.names += [(parent_ino, name.decode()) for parent_ino, name in names[: self.most]]
        await trio.sleep(self.wait_s)
        return min(len(names), self.most)

    def told(self) -> list[tuple[int, str]]:
        told, self.names = sorted(self.names), []
        return told


def numbered(n: int) -> FakeStore:
    """Files 0000, 0001, …"""
    store = FakeStore()
    for number in range(n):
        store.put(f"{number:04}", b"1")
    return store


async def listed(mounted: Mounted, ino: int = ROOT) -> list[str]:
    """What a program lists when all that is known has expired; and what follows from it has happened."""
    await trio.sleep(2)
    names = await mounted.names(ino)
    await trio.testing.wait_all_tasks_blocked()
    return names


@pytest.mark.parametrize("metadata", [MetadataConfig(), TTL], ids=["minimal", "TTL"])
@pytest.mark.parametrize("is_ordered", [True, False])
async def test_files_that_another_client_removed_are_forgotten(
    autojump_clock: MockClock, metadata: MetadataConfig, *, is_ordered: bool
) -> None:
    """Once, when the directory is listed again; not those that are there, nor what was replaced: it has a name."""
    store, kernel = FakeStore(is_ordered=is_ordered), Kernel()
    store.max_page = 7
    for number in range(40):
        store.put(f"d/{number:02}", b"1")
    async with file_system(store, metadata=metadata, notifier=kernel) as mounted:
        ino = (await mounted.walk("d")).ino
        assert len(await listed(mounted, ino)) == 40
        assert kernel.told() == []
        for number in (0, 13, 14, 39):
            store.delete(f"d/{number:02}")
        store.put("d/20", b"2")
        await listed(mounted, ino)
        assert kernel.told() == [(ino, "00"), (ino, "13"), (ino, "14"), (ino, "39")]
        await listed(mounted, ino)
        assert (kernel.told(), kernel.notes) == ([], [])


async def test_what_was_in_a_directory_that_is_gone_is_forgotten(autojump_clock: MockClock) -> None:
    """At any depth, but not the directories: a process may work in one."""
    store, kernel = FakeStore(), Kernel()
    for key in ("data-1/a", "data-1/sub/b", "data-1/sub/c", "data-2/a"):
        store.put(key, b"1")
    async with file_system(store, metadata=TTL, notifier=kernel) as mounted:
        first = (await mounted.walk("data-1")).ino
        sub = (await mounted.walk("data-1/sub")).ino
        for ino in (ROOT, first, sub, (await mounted.walk("data-2")).ino):
            await listed(mounted, ino)
        for key in ("data-1/a", "data-1/sub/b", "data-1/sub/c"):
            store.delete(key)
        assert await listed(mounted) == ["data-2"]
        assert kernel.told() == sorted([(first, "a"), (sub, "b"), (sub, "c")])


async def test_what_somebody_has_open_is_not_forgotten(autojump_clock: MockClock) -> None:
    """It keeps its name for as long as it is open; nor is what the kernel does not know."""
    store, kernel = FakeStore(), Kernel()
    store.put("open", b"1")
    store.put("forgotten", b"1")
    async with file_system(store, metadata=TTL, notifier=kernel) as mounted:
        await listed(mounted)
        ino = (await mounted.walk("forgotten")).ino
        mounted.fs.forget([(ino, 100)])
        handle = await mounted.fs.open((await mounted.walk("open")).ino)
        store.delete("open")
        store.delete("forgotten")
        assert await listed(mounted) == []
        assert kernel.told() == []
        mounted.fs.release(handle)


async def test_what_is_used_again_meanwhile_is_not_forgotten(autojump_clock: MockClock) -> None:
    """Between two names that had to wait another may be opened, or the kernel forgets it by itself."""
    store, kernel = FakeStore(), Kernel()
    for name in "abcd":
        store.put(name, b"1")
    async with file_system(store, metadata=TTL, notifier=kernel) as mounted:
        await listed(mounted)
        handle = await mounted.fs.open((await mounted.walk("d")).ino)
        again = store.objects.copy()
        store.objects.clear()
        kernel.most, kernel.wait_s = 1, 10.0
        mounted.fs.release(handle)
        assert await listed(mounted) == []
        store.objects.update(again)
        await trio.sleep(2)
        handle = await mounted.fs.open((await mounted.walk("b")).ino)
        mounted.fs.forget([((await mounted.walk("c")).ino, 100)])
        await trio.sleep(60)
        assert kernel.told() == [(ROOT, "a"), (ROOT, "d")]
        mounted.fs.release(handle)


async def test_those_of_a_busy_directory_are_left_to_the_kernel(autojump_clock: MockClock) -> None:
    """A comparison ends after a minute, however many are left; the file system answers meanwhile."""
    store, kernel = numbered(3500), Kernel()
    async with file_system(store, metadata=TTL, notifier=kernel) as mounted:
        await listed(mounted)
        for number in range(3500):
            store.delete(f"{number:04}")
        kernel.wait_s = 25.0
        began_at = trio.current_time()
        assert await mounted.names() == [f"{number:04}" for number in range(3500)]
        await trio.sleep(2)
        assert await mounted.names() == []
        assert trio.current_time() - began_at < 3
        await trio.sleep(300)
        assert 0 < len(kernel.told()) < 3500


async def test_a_directory_is_compared_by_one_at_a_time(autojump_clock: MockClock) -> None:
    """While the kernel takes its time over one listing, what later ones lack is left to it; then it goes on."""
    store, kernel = numbered(30), Kernel()
    async with file_system(store, metadata=TTL, notifier=kernel) as mounted:
        await listed(mounted)
        for name in await mounted.names(ROOT):
            await mounted.walk(name)
        kernel.wait_s = 10.0
        for gone in ("0000", "0001", "0002"):
            store.delete(gone)
            await listed(mounted)
        assert kernel.told() == [(ROOT, "0000")]
        await trio.sleep(20)
        store.delete("0003")
        await listed(mounted)
        assert kernel.told() == [(ROOT, "0003")]
