"""--posix-metadata over a bucket in memory: what is stored when, what it costs, and what other mounts see."""

import stat
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import trio
import trio.testing

from s3mount.cache.ages import MetadataConfig
from s3mount.cache.shown import Shown
from s3mount.core.attrs import FileAttrs, ObjectStat
from s3mount.core.posix import Posix
from s3mount.core.ttl import TimeToLive
from s3mount.errors import AccessDenied, StaleInode, StoreFailure
from s3mount.fs.attribute_changes import DELAY_S
from s3mount.fs.drafts import Opening
from s3mount.fs.write_policy import WritePolicy
from s3mount.store.writing import ANYTHING, Attributes, Condition, Written
from tests.fs.harness import MADE, NOW
from tests.fs.names_harness import MountedNames, namespace
from tests.fs.write_harness import PART, failing
from tests.support.fake_store import FakeStore
from tests.support.fake_writer import FakeWriter

T = 1_000_000_000
HOUR = MetadataConfig(TimeToLive(3600.0), TimeToLive(3600.0))


class Seen(NamedTuple):
    mode: int
    uid: int
    gid: int
    mtime_s: int


async def seen(each: MountedNames, path: str) -> Seen:
    """As stat shows it."""
    found = await each.mounted.fs.getattr((await each.mounted.walk(path)).ino)
    return Seen(stat.S_IMODE(found.mode), found.uid, found.gid, found.mtime_s)


async def change(each: MountedNames, path: str, **what: int) -> None:
    each.files.show((await each.mounted.walk(path)).ino, Shown(**what))


class SlowWriter(FakeWriter):
    """Reads what is copied first, and writes it later."""

    async def copy(
        self, source: ObjectStat, key: str, condition: Condition = ANYTHING, attributes: Attributes | None = None
    ) -> Written:
        found, content = self._content(source.id)
        kept = (await self.describe(found.key)).attributes if attributes is None else attributes
        await self._arrived("copies")
        await trio.sleep(1)
        return self._write(key, content, condition, kept)


class Bucket:
    """A bucket and its clients."""

    def __init__(self) -> None:
        self.store = FakeStore()
        self.writer: FakeWriter = FakeWriter(self.store)

    async def metadata(self, key: str) -> dict[str, str]:
        counts = self.writer.counts.copy()
        found = (await self.writer.describe(key)).attributes.metadata
        self.writer.counts = counts
        return dict(found)

    async def put(self, key: str, **metadata: str) -> None:
        await self.writer.put(key, [b"content"], ANYTHING, Attributes({}, metadata))
        self.writer.counts.clear()


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


async def test_what_was_set_before_the_close_costs_nothing(
    bucket: Bucket, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """A small file that gets mode, owner and time before it is closed, as by cp -p, is one PUT; a plain one, too."""
    async with namespace(bucket.store, tmp_path, writer=bucket.writer, is_posix=True) as each:
        await each.write("plain", b"1")
        assert await bucket.metadata("plain") == {}
        handle = await each.create("a", b"content")
        await change(each, "a", mtime_s=T)
        await change(each, "a", uid=7, gid=8)
        await change(each, "a", mode=0o750)
        await each.close(handle)
        assert bucket.writer.counts == {"puts": 2}
        assert await bucket.metadata("a") == {"mode": "0100750", "uid": "7", "gid": "8", "mtime": str(T)}
        assert await seen(each, "a") == (0o750, 7, 8, T)
        await trio.sleep(2 * DELAY_S)
        assert bucket.writer.counts == {"puts": 2}


async def test_another_mount_sees_it(bucket: Bucket, tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """What is set of a file at rest is one HEAD and one copy for all of it together, and another mount shows it."""
    await bucket.put("a", project="b-7")
    async with (
        namespace(bucket.store, tmp_path / "1", writer=bucket.writer, is_posix=True) as one,
        namespace(bucket.store, tmp_path / "2", writer=bucket.writer, is_posix=True) as two,
    ):
        before = (await one.mounted.walk("a")).ino
        await change(one, "a", mode=0o600)
        await change(one, "a", mtime_s=T)
        await change(one, "a", uid=7, gid=8)
        assert bucket.writer.counts == {}
        await trio.sleep(DELAY_S + 0.01)
        assert bucket.writer.counts == {"calls": 1, "copies": 1}
        theirs = {"project": "b-7", "mode": "0100600", "uid": "7", "gid": "8", "mtime": str(T)}
        assert await bucket.metadata("a") == theirs
        for mount in one, two:
            assert await seen(mount, "a") == (0o600, 7, 8, T)
            assert await mount.read("a") == b"content"
        assert (await one.mounted.walk("a")).ino == before
        await change(two, "a", mode=0o644)
        await trio.sleep(2)
        assert (await seen(one, "a")).mode == 0o644


async def test_a_time_is_not_changed_by_other_changes(
    bucket: Bucket, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """chmod leaves the time as it is, though S3 makes a new object; what is written later has its own time."""
    await bucket.put("a")
    listed = bucket.store.objects["a"][0].mtime_s
    async with namespace(bucket.store, tmp_path, writer=bucket.writer, is_posix=True) as each:
        await change(each, "a", mode=0o600)
        await trio.sleep(1)
        assert bucket.store.objects["a"][0].mtime_s > listed
        assert await seen(each, "a") == (0o600, 1000, 1000, listed)
        handle = await each.files.open((await each.mounted.walk("a")).ino, Opening(is_append=True), 0)
        assert (await seen(each, "a")).mtime_s == listed
        await each.files.write(handle, 0, b"more")
        assert (await seen(each, "a")).mtime_s > listed
        await each.files.fsync(handle)
        await each.close(handle)
        assert await bucket.metadata("a") == {"mode": "0100600"}


async def test_a_new_content_keeps_mode_and_owner(bucket: Bucket, tmp_path: Path) -> None:
    """A file that is cut off to nothing as it is opened keeps mode and owner, not the time, at one HEAD at most."""
    await bucket.put("a", mode="33216", uid="7", mtime="1.5", project="b-7")
    async with namespace(bucket.store, tmp_path, writer=bucket.writer, is_posix=True) as each:
        handle = await each.files.open((await each.mounted.walk("a")).ino, Opening(is_truncating=True), 0)
        await each.files.write(handle, 0, b"new")
        await each.close(handle)
        assert bucket.writer.counts == {"puts": 1, "calls": 1}
        assert await bucket.metadata("a") == {"mode": "0100700", "uid": "7"}
        assert (await seen(each, "a"))[:3] == (0o700, 7, 1000)


async def test_a_stream_takes_what_was_set_late(bucket: Bucket, tmp_path: Path) -> None:
    """A file in parts has the mode it was made with, at no request; what is set later is a copy within close."""
    async with namespace(bucket.store, tmp_path, writer=bucket.writer, is_posix=True) as each:
        ways: list[Callable[[], Shown]] = [Shown, lambda: Shown(mtime_s=T)]
        for name, late in zip(("made", "late"), ways, strict=True):
            made = Posix(0o755, 7, MADE.gid)
            handle, attrs = await each.files.create(1, name.encode(), Opening(is_truncating=True), made, 0)
            assert (stat.S_IMODE(attrs.mode), attrs.uid, attrs.gid) == (0o755, 7, 1000)
            await each.files.write(handle, 0, bytes(PART))
            await each.files.write(handle, PART, b"x")
            await trio.testing.wait_all_tasks_blocked()
            each.files.show(attrs.ino, late())
            bucket.writer.counts.clear()
            await each.close(handle)
            assert bucket.writer.counts["copies"] == (1 if name == "late" else 0)
            wanted = {"mode": "0100755", "uid": "7"} | ({"mtime": str(T)} if name == "late" else {})
            assert await bucket.metadata(name) == wanted
            assert (await seen(each, name))[:3] == (0o755, 7, 1000)
        assert (await seen(each, "late")).mtime_s == T


@pytest.mark.parametrize("how", ["fsync", "rename", "link", "rename_directory", "sync"])
async def test_what_brings_a_change_at_once(
    bucket: Bucket, tmp_path: Path, autojump_clock: trio.testing.MockClock, how: str
) -> None:
    """When fsync, rename, link and the end of the mount return, S3 has what was set; a rename makes one copy."""
    await bucket.put("d/a")
    async with namespace(bucket.store, tmp_path, writer=bucket.writer, is_posix=True) as each:
        await change(each, "d/a", mode=0o600, mtime_s=T)
        key = "d/a"
        match how:
            case "fsync":
                handle = await each.mounted.fs.open((await each.mounted.walk("d/a")).ino)
                await each.files.fsync(handle)
                await each.files.release(handle)
            case "rename":
                await each.rename("d/a", key := "d/b")
                assert bucket.writer.counts["copies"] == 1
            case "link":
                await each.link("d/a", key := "d/b")
            case "rename_directory":
                await each.rename("d", "e")
                key = "e/a"
            case _:
                await each.names.sync()
        assert await bucket.metadata(key) == {"mode": "0100600", "mtime": str(T)}
        assert await seen(each, key) == (0o600, 1000, 1000, T)
        counts = bucket.writer.counts.copy()
        await trio.sleep(2 * DELAY_S)
        assert bucket.writer.counts == counts
        assert sorted(bucket.store.objects) == (["d/a", "d/b"] if how == "link" else [key])


async def test_what_is_removed_does_not_come_back(
    bucket: Bucket, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """A file that is removed or replaced while its attributes are on their way stays removed, and replaced."""
    bucket.writer = SlowWriter(bucket.store)
    for name in "a", "b", "c":
        await bucket.put(name)
    await bucket.writer.put("new", [b"new"])
    async with namespace(bucket.store, tmp_path, writer=bucket.writer, is_posix=True) as each:
        for name in "a", "b", "c":
            await change(each, name, mode=0o600)
        await trio.sleep(DELAY_S + 0.3)  # in the middle of the copies
        async with trio.open_nursery() as nursery:
            nursery.start_soon(each.unlink, "a")
            nursery.start_soon(each.rename, "new", "b")
            nursery.start_soon(each.write_over, "c", b"other")
        await trio.sleep(5)
        assert await each.listed() == ["b", "c"]
        assert [await each.read(name) for name in ("b", "c")] == [b"new", b"other"]
    assert sorted(bucket.store.objects) == ["b", "c"]


async def test_what_a_stat_costs(bucket: Bucket, tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """A listing asks for no metadata, a stat for that of one file, once for as long as the listing shows no change."""
    for name in "a", "b", "c":
        await bucket.put(name, mode="0100600")
    async with namespace(bucket.store, tmp_path, writer=bucket.writer, is_posix=True) as each:
        assert await each.listed() == ["a", "b", "c"]
        assert await each.read("c") == b"content"
        assert bucket.writer.counts == {}
        for _ in range(3):
            assert (await seen(each, "a")).mode == 0o600
            assert bucket.writer.counts == {"calls": 1}
            await trio.sleep(10)
        bucket.store.put("a", b"theirs")
        await trio.sleep(2)
        assert (await seen(each, "a")).mode == 0o644
        assert bucket.writer.counts == {"calls": 2}


async def test_a_head_says_the_version_too(
    bucket: Bucket, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """A stat of a name that is not new, of a file that is, is one HEAD for version and metadata, and no LIST."""
    bucket.store.put("a", b"content", mtime_s=int(NOW))
    async with namespace(bucket.store, tmp_path, writer=bucket.writer, is_posix=True) as each:
        await seen(each, "a")
        await trio.sleep(10)
        bucket.store.counts.clear()
        bucket.writer.counts.clear()
        await seen(each, "a")
        assert (bucket.store.counts, bucket.writer.counts) == ({}, {"calls": 1})


async def test_files_one_after_the_other(
    bucket: Bucket, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """A program that goes through 1,000 files as ls -l does, at 20 ms, takes a second, at one HEAD for each."""
    names = [f"d/{number:04}" for number in range(1000)]
    for name in names:
        await bucket.put(name, mode="0100600")
    async with namespace(bucket.store, tmp_path, writer=bucket.writer, is_posix=True, metadata=HOUR) as each:
        bucket.writer.latency_s = 0.02
        inodes: list[int] = []
        handle = await each.mounted.fs.opendir((await each.mounted.walk("d")).ino)

        def emit(_name: bytes, attrs: FileAttrs, _next: int) -> bool:
            assert not attrs.is_whole
            inodes.append(attrs.ino)
            return True

        await each.mounted.fs.readdir(handle, 0, emit)
        began_at = trio.current_time()
        for ino in inodes:
            assert stat.S_IMODE((await each.mounted.fs.getattr(ino)).mode) == 0o600
        assert len(inodes) == 1000
        assert trio.current_time() - began_at < 1.0
        assert bucket.writer.counts == {"calls": 1000}
        each.mounted.fs.releasedir(handle)


async def test_kept_for_the_time_to_live(
    bucket: Bucket, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """With a time to live metadata is believed as long as names, by the kernel, too; a refresh forgets it."""
    await bucket.put("a", mode="0100600")
    async with namespace(bucket.store, tmp_path, writer=bucket.writer, is_posix=True, metadata=HOUR) as each:
        ino = (await each.mounted.walk("a")).ino
        assert not (await each.mounted.walk("a")).is_whole
        found = await each.mounted.fs.getattr(ino)
        assert (found.is_whole, found.ttl_s) == (True, 3600.0)
        await trio.sleep(3000)
        assert (await each.mounted.fs.getattr(ino)).ttl_s == 600
        assert bucket.writer.counts == {"calls": 1}
        await each.mounted.fs.refresh()
        assert stat.S_IMODE((await each.mounted.fs.getattr(ino)).mode) == 0o600
        assert bucket.writer.counts == {"calls": 2}


async def test_values_of_others(bucket: Bucket, tmp_path: Path) -> None:
    """Metadata that says nothing, or that may not be read, is no error: mode, owner and time are the mount's own."""
    await bucket.put("a", mode="rw-r--r--", uid="ann", mtime="yesterday")
    listed = bucket.store.objects["a"][0].mtime_s
    async with namespace(bucket.store, tmp_path, writer=bucket.writer, is_posix=True) as each:
        assert await seen(each, "a") == (0o644, 1000, 1000, listed)
    denied = failing("describe", AccessDenied("403"))
    async with namespace(bucket.store, tmp_path, writer=bucket.writer, is_posix=True, fault=denied) as each:
        assert await seen(each, "a") == (0o644, 1000, 1000, listed)


async def test_another_version_meanwhile(bucket: Bucket, tmp_path: Path) -> None:
    """A file that was replaced since it was looked up is stale once, then as it is; who has it open sees no error."""
    await bucket.put("a", mode="0100600")
    async with namespace(bucket.store, tmp_path, writer=bucket.writer, is_posix=True, metadata=HOUR) as each:
        ino = (await each.mounted.walk("a")).ino
        handle = await each.mounted.fs.open(ino)
        await bucket.put("a", mode="0100700")
        assert stat.S_IMODE((await each.mounted.fs.getattr(ino)).mode) == 0o644
        await each.files.release(handle)
        await bucket.put("b", mode="0100600")
        ino = (await each.mounted.walk("b")).ino
        await bucket.put("b", mode="0100700")
        with pytest.raises(StaleInode):
            await each.mounted.fs.getattr(ino)
        assert (await seen(each, "b")).mode == 0o700


async def test_a_change_that_is_refused(
    bucket: Bucket, tmp_path: Path, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """What S3 refuses is told in the log and by the next fsync, and what S3 has is shown."""
    await bucket.put("a")
    fault = failing("copy", StoreFailure("503"))
    async with namespace(bucket.store, tmp_path, writer=bucket.writer, is_posix=True, fault=fault) as each:
        await change(each, "a", mode=0o600)
        await trio.sleep(1)
        assert "'a'" in caplog.text
        assert (await seen(each, "a")).mode == 0o644
        handle = await each.mounted.fs.open((await each.mounted.walk("a")).ino)
        with pytest.raises(StoreFailure):
            await each.files.fsync(handle)
        await each.files.fsync(handle)
        await each.files.release(handle)


async def test_a_change_that_was_refused_is_told_at_the_end(
    bucket: Bucket, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """What S3 refused, and no fsync has told, the end of the mount knows; once."""
    await bucket.put("a")
    fault = failing("copy", StoreFailure("503"))
    async with namespace(bucket.store, tmp_path, writer=bucket.writer, is_posix=True, fault=fault) as each:
        await change(each, "a", mode=0o600)
        await trio.sleep(1)
        with pytest.raises(StoreFailure):
            await each.names.sync()


async def test_new_files_only(bucket: Bucket, tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """Without --rw a new file has what was set before its close; what is set of others is kept while mounted."""
    await bucket.put("old")
    policy = WritePolicy(is_read_only=False)
    async with namespace(bucket.store, tmp_path, writer=bucket.writer, is_posix=True, policy=policy) as each:
        handle = await each.create("new", b"1")
        await change(each, "new", mode=0o600)
        await each.close(handle)
        await change(each, "old", mode=0o600)
        await trio.sleep(1)
        assert bucket.writer.counts == {"puts": 1}
        assert await bucket.metadata("new") == {"mode": "0100600"}
        assert (await seen(each, "old")).mode == 0o600


async def test_without_the_switch(bucket: Bucket, tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """Without --posix-metadata what is set is kept while mounted, at no request, and no metadata is read or written."""
    await bucket.put("a", mode="0100600", uid="7")
    async with namespace(bucket.store, tmp_path, writer=bucket.writer) as each:
        assert (await seen(each, "a"))[:3] == (0o644, 1000, 1000)
        await change(each, "a", mode=0o700)
        handle = await each.create("new", b"1")
        await change(each, "new", mode=0o600, mtime_s=T)
        await each.close(handle)
        await trio.sleep(1)
        assert bucket.writer.counts == {"puts": 1}
        assert await bucket.metadata("new") == {}
        assert await seen(each, "new") == (0o600, 1000, 1000, T)
