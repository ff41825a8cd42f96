"""Listings that are on their way, or that S3 was asked for ahead, while this mount changes what they list."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from s3mount.cache.ages import MetadataConfig
from s3mount.core.attrs import FileAttrs
from s3mount.core.ttl import TimeToLive
from s3mount.errors import StaleInode
from tests.fs.names_harness import FRESH, MountedNames, namespace
from tests.fs.test_names import bucket
from tests.support.fake_store import FakeStore
from tests.support.fake_writer import FakeWriter

MINIMAL = MetadataConfig()
LONG = MetadataConfig(TimeToLive(60.0), TimeToLive(60.0))
ALL_TIMES = pytest.mark.parametrize("metadata", [MINIMAL, FRESH, LONG], ids=["minimal", "fresh", "long"])
#: Longer than a DELETE waits for others.
LATE_S = 0.5


def store_of(*keys: str, keeps_directories: bool = False) -> FakeStore:
    store = FakeStore(keeps_directories=keeps_directories)
    for key in keys:
        store.put(key, b"" if key.endswith("/") else b"x")
    return store


@asynccontextmanager
async def asked(store: FakeStore, ask: Callable[[int], Awaitable[object]], ino: int) -> AsyncIterator[None]:
    """The block runs while S3's answer to a question about an inode is on its way; leaves when it has arrived."""

    async def question() -> None:
        with contextlib.suppress(StaleInode):
            await ask(ino)

    async with trio.open_nursery() as nursery:
        store.late_s = LATE_S
        nursery.start_soon(question)
        await trio.sleep(LATE_S / 2)
        store.late_s = 0.0
        yield


CHANGES: dict[str, tuple[Callable[[MountedNames], Awaitable[object]], list[str]]] = {
    "write": (lambda here: here.write("d3/n", b"1"), ["a", "b", "n"]),
    "mkdir": (lambda here: here.mkdir("d3/n"), ["a", "b", "n"]),
    "symlink": (lambda here: here.symlink("d3/n", "x"), ["a", "b", "n"]),
    "link": (lambda here: here.link("d3/a", "d3/n"), ["a", "b", "n"]),
    "rename into": (lambda here: here.rename("d0/a", "d3/n"), ["a", "b", "n"]),
    "rename a directory into": (lambda here: here.rename("d0", "d3/n"), ["a", "b", "n"]),
    "rename out of": (lambda here: here.rename("d3/b", "n"), ["a"]),
    "unlink": (lambda here: here.unlink("d3/b"), ["a"]),
}


@ALL_TIMES
@pytest.mark.parametrize("change", CHANGES)
async def test_a_listing_asked_for_ahead(
    tmp_path: Path, autojump_clock: MockClock, metadata: MetadataConfig, change: str
) -> None:
    """What is listed ahead of a program that walks does not hide what was made since, nor show what was removed."""
    directories = [f"d{n}" for n in range(6)]
    store, writer = bucket(*(f"{each}/{name}" for each in directories for name in "ab"))
    store.max_page, store.latency_s = 1, 0.001
    async with namespace(store, tmp_path, writer=writer, metadata=metadata) as here:
        for each in directories[:3]:
            assert await here.listed(each) == ["a", "b"]
        await trio.sleep(0.1)
        await CHANGES[change][0](here)
        assert await here.listed("d3") == CHANGES[change][1]
        assert here.mounted.fs.statistics().directories.walks == 1


@ALL_TIMES
async def test_a_file_deleted_while_a_listing_is_on_its_way(
    tmp_path: Path, autojump_clock: MockClock, metadata: MetadataConfig
) -> None:
    """A file that was removed before its directory was opened is not listed, whenever its DELETE is answered."""
    store = store_of("d/a", "d/b")
    async with namespace(store, tmp_path, writer=FakeWriter(store), metadata=metadata) as here:
        await here.known("d/b")
        await here.unlink("d/b")
        store.late_s = LATE_S
        assert await here.listed("d") == ["a"]
        assert "d/b" not in store.objects


@ALL_TIMES
async def test_a_directory_removed_while_a_listing_is_on_its_way(
    tmp_path: Path, autojump_clock: MockClock, metadata: MetadataConfig
) -> None:
    """Nor is a directory, then and later."""
    store = store_of("a", "d/")
    async with namespace(store, tmp_path, writer=FakeWriter(store), metadata=metadata) as here:
        await here.rmdir("d")
        store.late_s = 0.06  # so that a second question is asked before the DELETE, and answered after it
        assert await here.listed() == ["a"]
        assert await here.listed() == ["a"]
        assert not await here.exists("d")


@ALL_TIMES
async def test_a_file_saved_while_a_listing_is_on_its_way(
    tmp_path: Path, autojump_clock: MockClock, metadata: MetadataConfig
) -> None:
    """A file that was there when its directory was opened is listed, whenever it is closed."""
    store = store_of("d/a")
    async with namespace(store, tmp_path, writer=FakeWriter(store), metadata=metadata) as here:
        handle = await here.create("d/n", b"1")
        listed: list[str] = []
        store.late_s = LATE_S
        ino = (await here.mounted.walk("d")).ino

        async def listing() -> None:
            listed.extend(await here.mounted.names(ino))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(listing)
            await trio.sleep(LATE_S / 2)
            await here.close(handle)
        assert sorted(listed) == ["a", "n"]


async def test_a_file_saved_while_a_kept_listing_is_read(tmp_path: Path, autojump_clock: MockClock) -> None:
    """So it is where the listing is an older one, that is kept for a time to live."""
    store = store_of("d/a")
    async with namespace(store, tmp_path, writer=FakeWriter(store), metadata=LONG) as here:
        assert await here.listed("d") == ["a"]
        written = await here.create("d/n", b"1")
        handle = await here.mounted.fs.opendir((await here.mounted.walk("d")).ino)
        names: list[bytes] = []

        def emit(name: bytes, _attrs: FileAttrs, _next_offset: int) -> bool:
            names.append(name)
            return True

        assert here.mounted.fs.readdir_nowait(handle, 0, emit)
        await here.close(written)
        await here.mounted.fs.readdir(handle, 1, emit)
        assert names == [b"a", b"n"]


@ALL_TIMES
async def test_a_file_replaced_while_a_listing_is_on_its_way(
    tmp_path: Path, autojump_clock: MockClock, metadata: MetadataConfig
) -> None:
    """What a listing tells of a file is what this mount wrote to it last."""
    store = store_of("d/a")
    async with namespace(store, tmp_path, writer=FakeWriter(store), metadata=metadata) as here:
        seen: list[FileAttrs] = []
        now = await here.mounted.walk("d/a")
        handle = await here.mounted.fs.opendir((await here.mounted.walk("d")).ino)
        store.late_s = LATE_S

        def emit(_name: bytes, attrs: FileAttrs, _next_offset: int) -> bool:
            seen.append(attrs)
            return True

        async with trio.open_nursery() as nursery:
            nursery.start_soon(here.mounted.fs.readdir, handle, 0, emit)
            await trio.sleep(LATE_S / 2)
            store.late_s = 0.0
            await here.write_over("d/a", b"more than before")
        assert [(each.ino, each.size) for each in seen] == [(now.ino, 16)]


async def test_a_removed_directory_under_a_walk(tmp_path: Path, autojump_clock: MockClock) -> None:
    """A directory that was removed while a file of it is read does not come back with what is listed ahead."""
    store = store_of(*(f"{each}/{name}" for each in ("d0", "d1", "d2", "d3") for name in ("", "a")))
    async with namespace(store, tmp_path, writer=FakeWriter(store), metadata=MINIMAL) as here:
        handle = await here.mounted.fs.open((await here.mounted.walk("d3/a")).ino)
        await here.unlink("d3/a")
        await here.rmdir("d3")
        await trio.sleep(5)
        for each in "d0", "d1", "d2":
            assert await here.listed(each) == ["a"]
        assert here.mounted.fs.statistics().directories.walks == 1
        assert await here.listed() == ["d0", "d1", "d2"]
        assert not await here.exists("d3")
        await here.files.release(handle)


async def test_a_question_from_before_a_directory_was_removed(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Nor with the answer to a question from before it was removed."""
    store = store_of("d/", "d/a")
    async with namespace(store, tmp_path, writer=FakeWriter(store), metadata=MINIMAL) as here:
        handle = await here.mounted.fs.open((await here.mounted.walk("d/a")).ino)
        await here.unlink("d/a")
        ino = (await here.mounted.walk("d")).ino
        await trio.sleep(2.0)

        async with asked(store, here.mounted.fs.opendir, ino):
            await here.rmdir("d")
        await trio.sleep(5)
        assert await here.listed() == []
        await here.files.release(handle)


async def test_a_name_is_used_again_under_a_question(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Who makes something under a name that was removed is not told that it exists, whoever asked about it before."""
    store = store_of("a")
    async with namespace(store, tmp_path, writer=FakeWriter(store), metadata=MINIMAL) as here:
        ino = (await here.mounted.walk("a")).ino
        await trio.sleep(2.0)

        async with asked(store, here.mounted.fs.getattr, ino):
            await here.unlink("a")
            await here.mkdir("a")
        assert await here.tree() == {"a": None}


async def test_a_marker_goes_last(tmp_path: Path, autojump_clock: MockClock) -> None:
    """A directory removed while a file of it was read is not left on a server that has directories of its own."""
    store = store_of("d/", "d/e/", "d/e/a", keeps_directories=True)
    writer = FakeWriter(store)
    async with namespace(store, tmp_path, writer=writer) as here:
        handle = await here.mounted.fs.open((await here.mounted.walk("d/e/a")).ino)
        await here.unlink("d/e/a")
        await here.rmdir("d/e")
        await here.rmdir("d")
        await trio.sleep(5)
        assert await here.tree() == {}
        await here.files.release(handle)
        await trio.sleep(5)
        assert store.objects == {}
    async with namespace(store, tmp_path, writer=writer) as there:
        assert await there.tree() == {}
