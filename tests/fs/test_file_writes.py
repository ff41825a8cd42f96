"""Files that programs write, by the verbs of the kernel, over a bucket in memory."""

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from s3mount.cache.ages import MetadataConfig
from s3mount.cache.shown import Shown
from s3mount.core.ttl import TimeToLive
from s3mount.errors import (
    AlreadyExists,
    IsADirectory,
    KeyTooLong,
    NameNotFound,
    NotAllowed,
    ObjectChanged,
    ReadOnlyMount,
    StoreFailure,
)
from s3mount.fs.drafts import Opening
from s3mount.fs.write_policy import WritePolicy
from tests.fs.harness import ROOT
from tests.fs.writable import APPEND, RDWR, RW, W, writable
from tests.fs.write_harness import failing, ramp
from tests.support.fake_store import FakeStore

TTL = MetadataConfig(TimeToLive(60.0), TimeToLive(60.0))


@pytest.fixture(autouse=True)
def _clock(autojump_clock: MockClock) -> None:
    """Nothing sleeps for real."""


async def test_a_new_file_is_there_at_once(tmp_path: Path) -> None:
    """A file being written is found, listed and read through the mount, with its size so far, and S3 is not asked."""
    async with writable(tmp_path) as each:
        ino, handle = await each.create("new")
        await each.files.write(handle, 0, b"12345")
        attrs = await each.fs.lookup(ROOT, b"new")
        assert (attrs.ino, attrs.size, attrs.mtime_s) == (ino, 5, 1_800_000_000)
        assert each.store.counts["lists"] == 0
        assert await each.mounted.names() == ["new"]
        assert await each.mounted.read_file("new") == b"12345"
        assert each.store.objects == {}
        await each.close(handle)
        assert each.content("new") == b"12345"
        assert await each.mounted.read_file("new") == b"12345"
        assert await each.mounted.names() == ["new"]


async def test_the_number_stays(tmp_path: Path) -> None:
    """A file has one inode number from its creation through fsync, more writing, close, a new content and an append."""
    async with writable(tmp_path) as each:
        ino, handle = await each.create("a")
        await each.files.write(handle, 0, b"1")
        await each.files.fsync(handle)
        assert each.fs.getattr_nowait(ino) is not None
        await each.files.write(handle, 1, b"2")
        await each.close(handle)
        assert (await each.mounted.walk("a")).ino == ino
        for opening in (W, APPEND, RDWR):
            handle = await each.open("a", opening)
            await each.files.write(handle, 0, b"xyz")
            await each.close(handle)
            assert (await each.mounted.walk("a")).ino == ino


async def test_what_others_change_is_another_file(tmp_path: Path) -> None:
    """A version that somebody else wrote over one's own has a number of its own, and is read as it is."""
    async with writable(tmp_path) as each:
        ino = await each.save("a", b"ours")
        each.store.put("a", b"theirs")
        await trio.sleep(2)
        attrs = await each.mounted.walk("a")
        assert attrs.ino != ino
        assert await each.mounted.read_file("a") == b"theirs"


async def test_readers_follow_a_writer(tmp_path: Path) -> None:
    """A handle that was open before reads what is written so far, and after the close what was saved."""
    store = FakeStore()
    store.put("a", b"old content")
    async with writable(tmp_path, store) as each:
        reader = await each.fs.open((await each.mounted.walk("a")).ino)
        assert bytes(await each.mounted.read(reader, 0, 100)) == b"old content"
        handle = await each.open("a", W)
        assert bytes(await each.mounted.read(reader, 0, 100)) == b""
        await each.files.write(handle, 0, b"new")
        assert bytes(await each.mounted.read(reader, 0, 100)) == b"new"
        assert bytes(await each.mounted.read(handle, 1, 100)) == b"ew"
        await each.close(handle)
        assert bytes(await each.mounted.read(reader, 0, 100)) == b"new"
        each.fs.release(reader)


async def test_a_patch_in_place(tmp_path: Path) -> None:
    """A file that is opened to be changed anywhere keeps the rest of it."""
    store = FakeStore()
    store.put("a", ramp(0, 1000))
    async with writable(tmp_path, store) as each:
        handle = await each.open("a", RDWR)
        await each.files.write(handle, 500, b"patch")
        assert bytes(await each.mounted.read(handle, 498, 10)) == ramp(498, 2) + b"patch" + ramp(505, 3)
        await each.close(handle)
        assert each.content("a") == ramp(0, 500) + b"patch" + ramp(505, 495)


async def test_truncate(tmp_path: Path) -> None:
    """A file is cut off and made longer by its path and by its handle; by its path S3 has it at once."""
    store = FakeStore()
    store.put("a", b"0123456789")
    async with writable(tmp_path, store) as each:
        ino = (await each.mounted.walk("a")).ino
        await each.files.truncate(ino, 4)
        assert each.content("a") == b"0123"
        await each.files.truncate(ino, 6)
        assert each.content("a") == b"0123\0\0"
        handle = await each.open("a", RDWR)
        await each.files.truncate(ino, 1)
        assert (await each.fs.getattr(ino)).size == 1
        await each.close(handle)
        assert each.content("a") == b"0"
        await each.files.truncate(ino, 0)
        assert each.content("a") == b""


async def test_appends_are_seen_and_saved(tmp_path: Path) -> None:
    """What is appended is seen through the mount at once; who opens the file to read it finds it in S3."""
    store = FakeStore()
    store.put("log", b"one ")
    async with writable(tmp_path, store) as each:
        for word in (b"two ", b"three"):
            handle = await each.open("log", APPEND)
            await each.files.write(handle, 0, word)
            await each.close(handle)
        attrs = await each.mounted.walk("log")
        assert attrs.size == 13
        assert each.writer.counts["puts"] == 0
        assert not each.files.is_settled(attrs.ino)
        await each.files.settle(attrs.ino)
        assert each.content("log") == b"one two three"
        assert await each.mounted.read_file("log") == b"one two three"


async def test_a_lost_update_is_an_error(tmp_path: Path) -> None:
    """A file that somebody else wrote since it was opened is not overwritten: close says so, and theirs stays."""
    store = FakeStore()
    store.put("a", b"first")
    async with writable(tmp_path, store) as each:
        handle = await each.open("a", W)
        await each.files.write(handle, 0, b"ours")
        store.put("a", b"theirs")
        with pytest.raises(ObjectChanged):
            await each.files.flush(handle)
        with pytest.raises(ObjectChanged):
            await each.files.release(handle)
        assert await each.mounted.read_file("a") == b"theirs"


@pytest.mark.parametrize("call", ["put", "create_upload", "upload_part", "complete"])
async def test_a_refused_upload(tmp_path: Path, call: str) -> None:
    """When S3 refuses, fsync and close say so; no object is there, nor the name, and no upload is left."""
    async with writable(tmp_path, fault=failing(call)) as each:
        ino, handle = await each.create("a")
        for offset in range(0, (1 if call == "put" else 6) << 20, 1 << 20):
            await each.files.write(handle, offset, ramp(offset, 1 << 20))
        with pytest.raises(StoreFailure):
            await each.files.fsync(handle)
        with pytest.raises(StoreFailure):
            await each.close(handle)
        assert each.store.objects == {}
        with pytest.raises(NameNotFound):
            await each.fs.lookup(ROOT, b"a")
        assert (await each.fs.getattr(ino)).nlink == 0


async def test_create_where_there_is_one(tmp_path: Path) -> None:
    """An exclusive creation of a name that is known is refused; another opens what is there; a directory is neither."""
    store = FakeStore()
    store.put("d/x", b"1")
    store.put("a", b"old")
    async with writable(tmp_path, store, metadata=TTL) as each:
        await each.mounted.names()
        with pytest.raises(AlreadyExists):
            await each.create("a", Opening(is_exclusive=True))
        with pytest.raises(IsADirectory):
            await each.create("d")
        ino, handle = await each.create("a", Opening())
        assert (await each.mounted.walk("a")).ino == ino
        await each.files.write(handle, 0, b"N")
        await each.close(handle)
        assert each.content("a") == b"Nld"
        with pytest.raises(KeyTooLong):
            await each.create("x" * 1025)


async def test_a_creation_that_fails_leaves_no_reference(tmp_path: Path) -> None:
    """A creation that finds a file it may not change fails, and the kernel holds no reference to it."""
    store = FakeStore()
    store.put("a", b"old")
    new_only = WritePolicy(is_read_only=False)
    async with writable(tmp_path, store, policy=new_only, metadata=TTL) as each:
        await each.mounted.names()
        before = each.fs.statistics().inodes.lookups
        with pytest.raises(NotAllowed):
            await each.create("a", Opening())
        assert each.fs.statistics().inodes.lookups == before


async def test_exclusive_creations_meet(tmp_path: Path) -> None:
    """Of two exclusive creations in one mount the second fails at once; of another host's, fsync and close say it."""
    async with writable(tmp_path) as each:
        _, handle = await each.create("lock", Opening(is_exclusive=True))
        with pytest.raises(AlreadyExists):
            await each.create("lock", Opening(is_exclusive=True))
        each.store.put("lock", b"theirs")
        with pytest.raises(AlreadyExists):
            await each.files.fsync(handle)
        with pytest.raises(AlreadyExists):
            await each.close(handle)
        assert each.content("lock") == b"theirs"


async def test_attributes_that_programs_set(tmp_path: Path) -> None:
    """Modes, owners and times are shown as they were set; a time goes with the content that it was set for."""
    async with writable(tmp_path) as each:
        ino = await each.save("a", b"1")
        attrs = each.files.show(ino, Shown(mode=0o600, uid=7, mtime_s=1_000))
        assert (attrs.mode & 0o7777, attrs.uid, attrs.mtime_s) == (0o600, 7, 1_000)
        assert (await each.mounted.walk("a")).mtime_s == 1_000
        handle = await each.open("a", W)
        await each.files.write(handle, 0, b"2")
        attrs = await each.fs.getattr(ino)
        assert (attrs.mode & 0o7777, attrs.uid, attrs.mtime_s) == (0o600, 7, 1_800_000_000)
        each.files.show(ino, Shown(mtime_s=2_000))
        await each.close(handle)
        assert (await each.mounted.walk("a")).mtime_s == 2_000


@pytest.mark.parametrize(
    ("policy", "opening", "refused"),
    [
        (WritePolicy(), W, ReadOnlyMount),
        (WritePolicy(is_read_only=False), W, NotAllowed),
        (WritePolicy(is_read_only=False), APPEND, NotAllowed),
        (WritePolicy(is_read_only=False, may_overwrite=True), APPEND, NotAllowed),
        (WritePolicy(is_read_only=False, may_overwrite=True), RDWR, NotAllowed),
        (WritePolicy(is_read_only=False, may_overwrite=True), W, None),
        (RW, APPEND, None),
    ],
)
async def test_the_switches(
    tmp_path: Path, policy: WritePolicy, opening: Opening, refused: type[Exception] | None
) -> None:
    """What the switches do not allow fails when the file is opened, and no request is made for it."""
    store = FakeStore()
    store.put("a", b"old")
    async with writable(tmp_path, store, policy=policy) as each:
        ino = (await each.mounted.walk("a")).ino
        asked = each.store.counts.total()
        if refused is None:
            await each.close(await each.files.open(ino, opening, 0))
        else:
            with pytest.raises(refused):
                await each.files.open(ino, opening, 0)
            assert each.store.counts.total() == asked
        assert each.content("a") == (b"" if opening == W and refused is None else b"old")


async def test_requests_of_a_small_file(tmp_path: Path) -> None:
    """A new file of at most one part is one PUT, and with names that are known nothing else."""
    async with writable(tmp_path, metadata=TTL) as each:
        await each.mounted.names()
        asked = each.store.counts.total()
        for number in range(20):
            await each.save(f"f{number}", b"x" * 1000)
        assert each.writer.counts == {"puts": 20}
        assert each.store.counts.total() == asked


async def test_a_listing_that_was_kept_has_what_was_written(tmp_path: Path) -> None:
    """With a time to live a directory that was listed before shows files that were made since."""
    store = FakeStore()
    store.put("b", b"1")
    async with writable(tmp_path, store, metadata=TTL) as each:
        assert await each.mounted.names() == ["b"]
        _, handle = await each.create("a")
        assert sorted(await each.mounted.names()) == ["a", "b"]
        await each.close(handle)
        assert sorted(await each.mounted.names()) == ["a", "b"]
