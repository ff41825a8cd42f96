"""Directories that are removed while something of them is held."""

from pathlib import Path

import trio
from trio.testing import MockClock

from s3mount.cache.ages import MetadataConfig
from s3mount.core.ttl import TimeToLive
from tests.fs.names_harness import namespace
from tests.fs.takeover import succession
from tests.fs.test_names import bucket
from tests.support.fake_store import FakeStore

LASTING = MetadataConfig(TimeToLive(60.0), TimeToLive(60.0))


async def test_a_removed_directory_stays_removed(tmp_path: Path, autojump_clock: MockClock) -> None:
    """A directory that was removed does not come back because a file that was in it is still read."""
    store, writer = bucket("d/", "d/a")
    async with namespace(store, tmp_path, writer=writer) as here:
        handle = await here.mounted.fs.open((await here.mounted.walk("d/a")).ino)
        await here.unlink("d/a")
        await here.rmdir("d")
        await trio.sleep(5)
        assert sorted(store.objects) == ["d/", "d/a"]
        assert await here.tree() == {}
        assert not await here.exists("d")
        await here.files.release(handle)


async def test_a_removed_directory_that_a_successor_inherits(autojump_clock: MockClock) -> None:
    """A directory that is made again after a takeover has another number than the removed one that is open."""
    store = FakeStore()
    store.put("d/a", b"1")
    async with succession(store) as daemons:
        removed = (await daemons.mounted.walk("d")).ino
        daemons.fs.tree.orphan(daemons.fs.tree.inodes.get(removed))
        for _ in range(2):
            await daemons.crash()
            assert (await daemons.fs.getattr(removed)).nlink == 0
            again = await daemons.mounted.walk("d")
            assert again.ino != removed
            assert again.nlink > 0
            daemons.fs.check_invariants()


async def test_a_kept_directory_that_gets_a_file(tmp_path: Path, autojump_clock: MockClock) -> None:
    """A listing from when a directory was empty in S3 does not speak for it when it has a file again."""
    store, writer = bucket("d/first", "d/sub/a")
    async with namespace(store, tmp_path, writer=writer, metadata=LASTING) as here:
        await here.unlink("d/sub/a")
        await trio.sleep(1)
        assert await here.listed("d") == ["first", "sub"]
        await here.write("d/sub/b", b"content")
        for _ in range(10):
            assert await here.exists("d/sub/b")
            await trio.sleep(1)
