"""Directories that are removed while something of them is held."""

from pathlib import Path

import trio
from trio.testing import MockClock

from tests.fs.names_harness import namespace
from tests.fs.test_names import bucket


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
