"""A cache directory that the members of a unix group share: who gets in, and what they may do there."""

import os
import stat
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import trio

from s3mount.cache.disk import DiskCache, DiskCacheConfig
from s3mount.core.lru import allocated
from s3mount.errors import BadOption
from tests.cache.disk_harness import ORIGIN, Source, block_files, content_of, counted, fill, running, whole

GROUP = 54_321
ALICE, BOB, MALLORY = 54_001, 54_002, 54_003
SOURCE = Source(100_000)
BLOCK = allocated(SOURCE.size + 4096)
DAY_S = 86_400


async def as_user(uid: int, groups: list[int], umask: int, verb: Callable[..., object], directory: Path) -> None:
    """Run one of the functions below in a process of another user."""
    script = (
        f"import os, sys, trio; os.umask({umask}); os.setgroups({groups}); os.setgid({uid}); os.setuid({uid});"
        f"from pathlib import Path; from tests.cache.test_disk_group import {verb.__name__} as verb;"
        "trio.run(verb, Path(sys.argv[1]))"
    )
    await trio.run_process([sys.executable, "-c", script, str(directory)], cwd=Path(__file__).parents[2])


def shared_directory(work: Path, group: int = GROUP) -> Path:
    """As an administrator makes it."""
    for parent in [work, *work.parents]:
        if parent.stat().st_uid == os.getuid() and parent != Path("/") and parent != Path("/tmp"):
            parent.chmod(0o755)
    directory = work / "c"
    directory.mkdir()
    os.chown(directory, -1, group)
    directory.chmod(0o2770)
    return directory


async def write_five(directory: Path) -> None:
    async with running(directory, group=GROUP) as cache:
        await fill(cache, SOURCE, range(5))
        assert counted(cache).written == 5


async def use_two_and_evict_three(directory: Path) -> None:
    async with running(directory, group=GROUP) as cache:
        assert counted(cache).blocks == 5
        for number in range(2):
            content = content_of(cache, SOURCE, number)
            assert await cache.get(content, whole(content)) == SOURCE.bytes(number)
        assert await cache.evict(3 * BLOCK) == 3 * BLOCK
        await fill(cache, SOURCE, range(5, 7))
        assert counted(cache).errors == {}


async def be_refused(directory: Path) -> None:
    for group, says in ((GROUP, f"uid {MALLORY} is not in group {GROUP}"), (None, "belongs to uid 0")):
        with pytest.raises(BadOption, match=says):
            DiskCache(DiskCacheConfig((directory,), group=group), ORIGIN)


async def test_members_share_a_directory(work: Path) -> None:
    """With --cache-group the members of a unix group read, keep and evict each other's blocks, whatever their umask."""
    directory = shared_directory(work)
    await as_user(ALICE, [GROUP], 0o077, write_five, directory)
    for path in block_files(directory):
        os.utime(path, (time.time() - DAY_S,) * 2)
    await as_user(BOB, [GROUP], 0o022, use_two_and_evict_three, directory)
    assert sorted(path.stat().st_uid for path in block_files(directory)) == [ALICE] * 2 + [BOB] * 2
    assert all(path.stat().st_mtime > time.time() - DAY_S / 2 for path in block_files(directory))
    everything = [directory, *directory.rglob("*")]
    assert len([path for path in everything if path.is_dir()]) == 1 + 1 + 1 + 256
    assert {path.stat().st_gid for path in everything} == {GROUP}
    modes = {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in everything}
    assert modes == {(True, 0o2770), (False, 0o660)}
    await as_user(MALLORY, [], 0o022, be_refused, directory)


@pytest.mark.parametrize("group", [None, GROUP])
def test_many_start_at_once(work: Path, group: int | None) -> None:
    """Mounts that start at the same moment on a directory that is not there yet all get it, and it is whole."""
    for attempt in range(5):
        config = DiskCacheConfig((work / f"c{attempt}",), group=group)
        started = threading.Barrier(4)

        def make(config: DiskCacheConfig = config, started: threading.Barrier = started) -> None:
            started.wait()
            DiskCache(config, ORIGIN)

        with ThreadPoolExecutor(4) as pool:
            for future in [pool.submit(make) for _ in range(4)]:
                future.result()
        assert len([path for path in (work / f"c{attempt}" / "v1").iterdir() if len(path.name) == 2]) == 256


def test_a_new_directory_is_the_groups(work: Path) -> None:
    """A cache directory that --cache-group makes has the group and mode 2770."""
    DiskCache(DiskCacheConfig((work / "c",), group=GROUP), ORIGIN)
    found = (work / "c").stat()
    assert (stat.S_IMODE(found.st_mode), found.st_gid) == (0o2770, GROUP)


def _wrong_mode(directory: Path) -> None:
    directory.chmod(0o2775)


def _not_handed_on(directory: Path) -> None:
    directory.chmod(0o770)


def _wrong_group(directory: Path) -> None:
    os.chown(directory, -1, GROUP + 1)
    directory.chmod(0o2770)


def _a_stranger(directory: Path) -> None:
    os.chown(directory, MALLORY, -1)
    directory.chmod(0o2770)


def _of_one_user(directory: Path) -> None:
    DiskCache(DiskCacheConfig((directory.with_name("of-one"),)), ORIGIN)
    (directory.with_name("of-one") / "v1").rename(directory / "v1")


def _led_away(directory: Path) -> None:
    DiskCache(DiskCacheConfig((directory,), group=GROUP), ORIGIN)
    (directory / "v1" / "3f").rmdir()
    (directory / "v1" / "3f").symlink_to(directory)


CHMOD = "a directory that group 54321 shares has mode 2770 and that group; chgrp 54321 {0} && chmod 2770 {0}"

STRANGER = "{0} belongs to uid 54003, who is not in group 54321 and could change what is read; chown root {0}"


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (_wrong_mode, CHMOD),
        (_not_handed_on, CHMOD),
        (_wrong_group, CHMOD),
        (_a_stranger, STRANGER),
        (_of_one_user, "{0}/v1 was not made with --cache-group 54321; delete {0}/v*"),
        (_led_away, "{0}/v1/3f is not a directory; name another place"),
    ],
)
def test_what_a_group_cannot_share(work: Path, spoil: Callable[[Path], None], says: str) -> None:
    """With --cache-group a directory that others than the group could change, or members could not, is refused with
    what to do about it.
    """
    directory = shared_directory(work)
    spoil(directory)
    with pytest.raises(BadOption) as raised:
        DiskCache(DiskCacheConfig((directory,), group=GROUP), ORIGIN)
    assert str(raised.value) == f"--cache {directory}: {says.format(directory)}"


def test_a_member_may_own_it(work: Path) -> None:
    """A directory that belongs to a member of the group is shared as one of root."""
    directory = shared_directory(work, group=1)
    os.chown(directory, 1, -1)  # daemon, whose group is daemon on every Debian
    directory.chmod(0o2770)
    DiskCache(DiskCacheConfig((directory,), group=1), ORIGIN)
