"""Who reads a file reads on, whatever this mount does to its name meanwhile."""

import random
from pathlib import Path

import pytest
import trio

from s3mount.errors import AccessDenied, ObjectChanged, StaleInode
from s3mount.fs.drafts import Opening
from s3mount.fs.removals import HOLD_S
from s3mount.fs.spooled import MAX_HELD
from s3mount.units import MIB
from tests.fs.names_harness import MountedNames, namespace
from tests.fs.write_harness import failing
from tests.support.fake_store import FakeStore
from tests.support.fake_writer import FakeWriter

OLD = random.Random(1).randbytes(MAX_HELD)
LARGE = random.Random(2).randbytes(24 * MIB)
#: Bytes of one read of the kernel.
STEP = 128 * 1024


def bucket(latency_s: float = 0.0, **contents: bytes) -> tuple[FakeStore, FakeWriter]:
    store = FakeStore(latency_s=latency_s)
    for key, content in contents.items():
        store.put(key, content)
    return store, FakeWriter(store, latency_s=latency_s)


def spooled(directory: Path) -> list[Path]:
    return list(directory.iterdir())


async def reader(here: MountedNames, path: str) -> int:
    """A handle on a file of which a read got the first bytes."""
    handle = await here.mounted.fs.open((await here.mounted.walk(path)).ino)
    await here.mounted.read(handle, 0, 10)
    return handle


async def whole(here: MountedNames, handle: int, size: int) -> bytes:
    """A file by reads one after the other."""
    return b"".join([bytes(await here.mounted.read(handle, at, MIB)) for at in range(0, size, MIB)])


async def test_reads_on_their_way_outlive_a_rename(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """Reads that are on their way at any moment of a rename of their file, or begin meanwhile, get its bytes."""
    store, writer = bucket(0.02, a=LARGE)
    async with namespace(store, tmp_path, writer=writer) as here:
        handle = await here.mounted.fs.open((await here.mounted.walk("a")).ino)
        await here.known("b")
        found = {}

        async def read(at_ms: int, offset: int) -> None:
            await trio.sleep(at_ms / 1000)
            found[offset] = bytes(await here.mounted.read(handle, offset, STEP))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(here.rename, "a", "b")
            for n in range(60):
                nursery.start_soon(read, 2 * n, n * STEP)
        assert found == {at: LARGE[at : at + STEP] for at in range(0, 60 * STEP, STEP)}
        here.mounted.fs.release(handle)
        assert set(store.objects) == {"b"}


async def test_a_file_renamed_again_and_again(tmp_path: Path) -> None:
    """A file of any size is read on, also that of a directory, however often it is renamed, under its last name."""
    store, writer = bucket(**{"d/a": LARGE})
    async with namespace(store, tmp_path, writer=writer) as here:
        handle = await reader(here, "d/a")
        await here.known("d/b", "e")
        await here.rename("d/a", "d/b")
        await here.rename("d", "e")
        await here.rename("e/b", "c")
        await here.write("e/b", b"another")
        assert await whole(here, handle, len(LARGE)) == LARGE
        here.mounted.fs.release(handle)


async def test_a_replaced_file_is_read_on(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """A file of up to 8 MiB that a rename replaces is read on by who has it open, and then is gone from the disk."""
    store, writer = bucket(a=b"new", b=OLD)
    async with namespace(store, tmp_path, writer=writer) as here:
        readers = [await reader(here, "b"), await reader(here, "b")]
        await here.rename("a", "b")
        assert here.names.statistics().held == 1
        for handle in readers:
            assert await whole(here, handle, len(OLD)) == OLD
            assert bytes(await here.mounted.read(handle, len(OLD) - 5, STEP)) == OLD[-5:]
            here.mounted.fs.release(handle)
        assert await here.read("b") == b"new"
        await trio.sleep(2)
        assert here.names.statistics().held == 0
        assert spooled(tmp_path) == []


@pytest.mark.parametrize("is_saved", [True, False])
async def test_a_checkpoint_is_replaced_under_a_reader(tmp_path: Path, *, is_saved: bool) -> None:
    """A new file that takes the name, whether it was closed before or not, leaves the old one to who reads it."""
    store, writer = bucket(latest=OLD)
    async with namespace(store, tmp_path, writer=writer) as here:
        handle = await reader(here, "latest")
        await here.known("tmp")
        new = await here.create("tmp", b"new")
        if is_saved:
            await here.close(new)
        await here.rename("tmp", "latest")
        assert await whole(here, handle, len(OLD)) == OLD
        here.mounted.fs.release(handle)
        if not is_saved:
            await here.close(new)
        assert await here.read("latest") == b"new"


async def test_a_larger_file_that_is_replaced(tmp_path: Path) -> None:
    """Of a file of more than 8 MiB that a rename replaces there is what is in memory; the rest is ESTALE."""
    store, writer = bucket(a=b"new", b=LARGE)
    async with namespace(store, tmp_path, writer=writer) as here:
        handle = await here.mounted.fs.open((await here.mounted.walk("b")).ino)
        await here.rename("a", "b")
        with pytest.raises(ObjectChanged):
            await here.mounted.read(handle, 20 * MIB, STEP)
        assert await here.read("b") == b"new"
        assert (here.names.statistics().held, spooled(tmp_path)) == (0, [])
        here.mounted.fs.release(handle)


async def test_nothing_is_kept_for_nobody(tmp_path: Path) -> None:
    """A rename over a file that nobody has open is a copy and a DELETE, as ever."""
    store, writer = bucket(a=b"new", b=OLD)
    async with namespace(store, tmp_path, writer=writer) as here:
        here.mounted.fs.release(await reader(here, "b"))
        await here.known("a", "b")
        store.counts.clear()
        await here.rename("a", "b")
        assert (store.counts["gets"], dict(writer.counts)) == (0, {"copies": 1, "deletes": 1})


async def test_a_rename_that_failed_has_kept_nothing(tmp_path: Path) -> None:
    """Where S3 refuses the rename over a file, who has that open reads it from S3 as before."""
    store, writer = bucket(a=b"new", b=OLD)
    refused = failing("copy", AccessDenied("no CopyObject"))
    async with namespace(store, tmp_path, writer=writer, fault=refused) as here:
        handle = await reader(here, "b")
        with pytest.raises(AccessDenied):
            await here.rename("a", "b")
        assert (here.names.statistics().held, spooled(tmp_path)) == (0, [])
        assert await whole(here, handle, len(OLD)) == OLD
        here.mounted.fs.release(handle)


async def test_a_removed_file_is_read_when_its_name_is_taken(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """A removed file of up to 8 MiB is read on when its name is taken, and beyond the minute that its DELETE waits."""
    store, writer = bucket(a=OLD, b=OLD)
    async with namespace(store, tmp_path, writer=writer) as here:
        first, second = await reader(here, "a"), await reader(here, "b")
        await here.unlink("a")
        await here.unlink("b")
        await here.write("a", b"new")
        await trio.sleep(HOLD_S + 2)
        assert {key: content for key, (_, content) in store.objects.items()} == {"a": b"new"}
        for handle in first, second:
            assert await whole(here, handle, len(OLD)) == OLD
            here.mounted.fs.release(handle)
        assert await here.read("a") == b"new"


async def test_a_file_without_a_name_is_not_written(tmp_path: Path) -> None:
    """A file whose name another has is opened again by its descriptor to be read, and not to be written: ESTALE."""
    store, writer = bucket(a=b"new", b=OLD)
    async with namespace(store, tmp_path, writer=writer) as here:
        ino, handle = (await here.mounted.walk("b")).ino, await reader(here, "b")
        await here.rename("a", "b")
        again = await here.mounted.fs.open(ino)
        assert await whole(here, again, len(OLD)) == OLD
        with pytest.raises(StaleInode):
            await here.files.open(ino, Opening(is_random=True), 0)
        for each in handle, again:
            here.mounted.fs.release(each)
        assert await here.tree() == {"b": b"new"}
