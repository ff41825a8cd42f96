"""Opens of small files that the kernel has: answered at once, and never with what S3 has since contradicted."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from s3mount.cache.ages import MetadataConfig
from s3mount.core.ttl import INDEFINITE, TimeToLive
from s3mount.errors import ArchivedObject, ObjectChanged, StaleInode
from s3mount.fuse.boundary import Boundary
from s3mount.fuse.operations import Operations
from tests.fs.harness import Mounted, file_system
from tests.support.fake_store import FakeStore

TTL_S = 60.0
FOREVER = MetadataConfig(INDEFINITE, INDEFINITE)
A_MINUTE = MetadataConfig(TimeToLive(TTL_S), TimeToLive(TTL_S))


@asynccontextmanager
async def with_a_read_file(metadata: MetadataConfig | None) -> AsyncIterator[tuple[FakeStore, Mounted, int]]:
    """`d/f`, listed and read to its end, and opened once since; its inode."""
    store = FakeStore()
    store.put("d/f", b"content")
    store.put("d/g", b"another")
    async with file_system(store, metadata=metadata) as mounted:
        await mounted.names((await mounted.walk("d")).ino)
        assert await mounted.read_file("d/f") == b"content"
        ino = (await mounted.walk("d/f")).ino
        mounted.fs.release(await mounted.fs.open(ino))
        store.counts.clear()
        yield store, mounted, ino


def open_at_once(mounted: Mounted, ino: int) -> bool:
    """Whether an open is answered without waiting; it is closed again."""
    handle = mounted.fs.open_nowait(ino)
    if handle is not None:
        mounted.fs.release(handle)
    return handle is not None


async def test_the_handlers_never_wait_for_what_the_kernel_has() -> None:
    """With a TTL a small file that the kernel has whole is opened and closed without a request and without waiting.

    Open and release run to their end in one go, and nothing of the object is held.
    """
    async with with_a_read_file(FOREVER) as (store, mounted, ino):
        handlers: Any = Operations(mounted.fs, Boundary(60.0))
        for _ in range(3):
            with pytest.raises(StopIteration) as opened:
                handlers.open(ino, 0, None).send(None)
            assert mounted.fs.statistics().open_files == 1
            assert mounted.blocks.statistics().objects == 0
            with pytest.raises(StopIteration):
                handlers.release(opened.value.value.fh).send(None)
        assert store.counts == {}


async def test_a_cold_file_is_not_opened_at_once() -> None:
    """What the kernel does not have whole is fetched in the open."""
    async with with_a_read_file(FOREVER) as (_, mounted, _ino):
        ino = (await mounted.walk("d/g")).ino
        assert not open_at_once(mounted, ino)
        handle = await mounted.fs.open(ino)
        assert await mounted.read(handle, 0, 3) == b"ano"
        mounted.fs.release(handle)
        assert not open_at_once(mounted, ino)


async def test_a_handle_opened_at_once_reads(autojump_clock: object) -> None:
    """When the kernel dropped its pages after all, the read fetches the file by one GET."""
    async with with_a_read_file(FOREVER) as (store, mounted, ino):
        handle = mounted.fs.open_nowait(ino)
        assert handle is not None
        assert await mounted.read(handle, 2, 3) == b"nte"
        assert store.counts["gets"] == 1
        mounted.fs.release(handle)


async def test_nothing_is_opened_at_once_after_the_ttl(autojump_clock: object) -> None:
    """The last open before its end asks nothing, the first after it asks S3 once."""
    async with with_a_read_file(A_MINUTE) as (store, mounted, ino):
        await trio.sleep(TTL_S - 1)
        assert open_at_once(mounted, ino)
        await trio.sleep(1)
        assert not open_at_once(mounted, ino)
        assert store.counts == {}
        mounted.fs.release(await mounted.fs.open(ino))
        assert store.counts == {"lists": 1}
        assert open_at_once(mounted, ino)


@pytest.mark.parametrize("path", ["", "d", "d/f"])
async def test_a_refresh_is_obeyed(path: str) -> None:
    """After it the next open asks S3, and finds that the file is another."""
    async with with_a_read_file(FOREVER) as (store, mounted, ino):
        assert open_at_once(mounted, ino)
        store.put("d/f", b"replaced")
        assert open_at_once(mounted, ino)
        await mounted.fs.refresh(path)
        assert not open_at_once(mounted, ino)
        with pytest.raises(StaleInode):
            await mounted.fs.open(ino)


async def test_a_listing_that_names_another_version_is_obeyed(autojump_clock: object) -> None:
    """Whatever finds another version, a refresh, a listing, a direct open or a read, the next open of that file asks
    S3.

    Or knows that it is stale; also while what was known of the file alone is good for longer than the last listing.
    """
    async with with_a_read_file(A_MINUTE) as (store, mounted, ino):
        await trio.sleep(TTL_S / 2)
        await mounted.fs.refresh("d/f")
        assert (await mounted.walk("d/f")).ino == ino
        assert open_at_once(mounted, ino)
        store.put("d/f", b"replaced")
        await trio.sleep(TTL_S / 2 + 1)
        assert open_at_once(mounted, ino)
        await mounted.names((await mounted.walk("d")).ino)
        with pytest.raises(StaleInode):
            mounted.fs.open_nowait(ino)


async def test_an_open_that_asked_s3_is_obeyed() -> None:
    """Where a direct open found another version, the plain one of the old inode is stale, too."""
    async with with_a_read_file(FOREVER) as (store, mounted, ino):
        assert open_at_once(mounted, ino)
        store.put("d/f", b"replaced")
        with pytest.raises(StaleInode):
            await mounted.fs.open(ino, revalidate=True)
        with pytest.raises(StaleInode):
            mounted.fs.open_nowait(ino)


async def test_a_read_that_found_a_change_is_obeyed() -> None:
    """Who reads dropped pages and hears that the version is gone ends the short cut for everybody."""
    async with with_a_read_file(FOREVER) as (store, mounted, ino):
        handle = mounted.fs.open_nowait(ino)
        assert handle is not None
        store.put("d/f", b"replaced")
        with pytest.raises(ObjectChanged):
            await mounted.fs.read(handle, 0, 7)
        with pytest.raises(StaleInode):
            mounted.fs.open_nowait(ino)
        mounted.fs.release(handle)


async def test_without_a_ttl_each_open_asks() -> None:
    """The kernel has the content, and one HEAD proves the version."""
    async with with_a_read_file(None) as (store, mounted, ino):
        assert not open_at_once(mounted, ino)
        mounted.fs.release(await mounted.fs.open(ino))
        assert store.counts == {"heads": 1}


async def test_an_archived_file_is_refused_at_once() -> None:
    """Short or long, the way refuses what must be restored first."""
    store = FakeStore()
    store.put("f", b"1", storage_class="GLACIER")
    async with file_system(store, metadata=FOREVER) as mounted:
        ino = (await mounted.walk("f")).ino
        with pytest.raises(ArchivedObject):
            mounted.fs.open_nowait(ino)
