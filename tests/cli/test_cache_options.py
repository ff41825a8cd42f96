"""The flags of the disk cache: what they mean, and what is refused by the command."""

import os
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from s3mount.cache.ages import MetadataConfig
from s3mount.cache.disk_config import DiskCacheConfig
from s3mount.core.epochs import CachePolicy
from s3mount.core.ttl import INDEFINITE, MINIMAL, TimeToLive
from s3mount.daemon.exits import ExitCode
from s3mount.errors import BadOption
from s3mount.units import GIB, KIB, MIB
from tests.cli.test_options import configured
from tests.support.namespaces import NOBODY
from tests.support.refusals import refusal

ONE = ("--cache", "/fast")


def test_without_it_there_is_none() -> None:
    """No flag, no cache: nothing of the memory target is for a disk, and the metadata is as it was."""
    config = configured("--memory-target", "1024")
    assert config.cache is None
    assert (config.read.disk_queue_bytes, config.read.budget_bytes) == (0, 640 * MIB)
    assert config.metadata == MetadataConfig(MINIMAL, MINIMAL)


@pytest.mark.parametrize(
    ("flags", "path", "expected"),
    [
        ([], "cache", DiskCacheConfig((Path("/fast"),))),
        (["--cache", "/more"], "cache.directories", (Path("/fast"), Path("/more"))),
        (["--cache", "/fast/x/../y"], "cache.directories", (Path("/fast"), Path("/fast/y"))),
        (["--max-cache-size", "2048"], "cache.max_bytes", 2 * GIB),
        (["--max-cache-size", "100GiB"], "cache.max_bytes", 100 * GIB),
        (["--cache-min-free", "12.5"], "cache.min_free_percent", 12.5),
        (["--cache-min-free", "0"], "cache.min_free_percent", 0),
        (["--cache-block-size", "1024"], "cache.block_size", MIB),
        (["--cache-block-size", "64KiB"], "cache.block_size", 64 * KIB),
        (["--cache-policy", "pin"], "cache.policy", CachePolicy.PIN),
        (["--cache-policy", "lru"], "cache.policy", CachePolicy.LRU),
        (["--cache-policy", "off", "--cache-policy", "train/=auto"], "cache.policy", CachePolicy.OFF),
        (["--cache-policy", "a=b/=pin"], "cache.prefix_policies", (("a=b/", CachePolicy.PIN),)),
        (["--cache-policy", "a=b/=pin"], "cache.policy", CachePolicy.AUTO),
        (["--cache-group", "users"], "cache.group", 100),
        (["--cache-group", "12345"], "cache.group", 12_345),
        ([], "metadata", MetadataConfig(TimeToLive(60), TimeToLive(60))),
        (["--metadata-ttl", "minimal"], "metadata", MetadataConfig(MINIMAL, MINIMAL)),
        (["--metadata-ttl", "indefinite"], "metadata", MetadataConfig(INDEFINITE, INDEFINITE)),
        (["--negative-metadata-ttl", "0"], "metadata", MetadataConfig(TimeToLive(60), MINIMAL)),
        ([], "s3.origin", "https://s3.amazonaws.com/bucket"),
        (["--region", "eu-west-1", "--prefix", "a/"], "s3.origin", "https://s3.amazonaws.com/bucket"),
        (["--endpoint-url", "https://s3.example/"], "s3.origin", "https://s3.example/bucket"),
    ],
    ids=str,
)
def test_what_a_flag_means(flags: list[str], path: str, expected: Any) -> None:
    """Each flag of the cache arrives at the one place of the configuration that it is about."""
    assert attrgetter(path)(configured(*ONE, *flags)) == expected


@pytest.mark.parametrize(
    ("target", "disks", "queue", "budget"),
    [(256, 1, 24, 72), (256, 4, 8, 64), (512, 1, 64, 256), (4096, 1, 64, 2496), (4096, 8, 64, 2048)],
)
def test_what_waits_for_the_disk_is_in_the_memory_target(target: int, disks: int, queue: int, budget: int) -> None:
    """Replies that wait for the disks have their place in the memory target: at least one block for each disk."""
    flags = [flag for number in range(disks) for flag in ("--cache", f"/disk{number}")]
    config = configured("--memory-target", str(target), *flags)
    assert config.cache is not None
    assert config.cache.max_queued == config.read.disk_queue_bytes == queue * MIB
    assert config.read.budget_bytes == budget * MIB


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--max-cache-size", "1"], "need --cache DIR"),
        (["--cache-policy", "lru"], "need --cache DIR"),
        (["--cache-group", "users"], "need --cache DIR"),
        ([*ONE, "--cache-policy", "lru", "--cache-policy", "pin"], "--cache-policy is given twice"),
        ([*ONE, "--cache-policy", "a/=lru", "--cache-policy", "a/=off"], "--cache-policy is given twice"),
        (["--cache", "/mnt/x"], "inside the mount point /mnt/x; choose another"),
        (["--cache", "/mnt/x/y/../z"], "inside the mount point /mnt/x; choose another"),
        (["--cache", "/mnt"], "--cache /mnt: the mount point /mnt/x lies inside it; choose another"),
        ([*ONE, "--cache", "/"], "--cache /: the mount point /mnt/x lies inside it"),
        ([*ONE, "--max-cache-size", "0"], "--max-cache-size must be greater than 0"),
        ([*ONE, "--cache-min-free", "100"], "--cache-min-free must be at least 0 and less than 100"),
        ([*ONE, "--cache-min-free", "nan"], "--cache-min-free must be at least 0 and less than 100"),
        ([*ONE, "--cache-block-size", "16MiB"], "--cache-block-size must be a power of two, 64 KiB to 8 MiB"),
        ([*ONE, "--cache-block-size", "100"], "--cache-block-size must be a power of two, 64 KiB to 8 MiB"),
        ([*ONE, "--part-size", "8000000"], "--part-size must be a multiple of 64 KiB with --cache"),
    ],
    ids=str,
)
def test_contradictions(flags: list[str], says: str) -> None:
    """What cannot be meant of a cache is refused before anything is started."""
    with pytest.raises(BadOption) as raised:
        configured(*flags)
    assert says in str(raised.value)


def test_a_link_into_the_mount_point_is_seen(work: Path) -> None:
    """A cache directory is where its name leads: a symbolic link into the mount point is refused, too."""
    (work / "link").symlink_to("/mnt/x/y")
    with pytest.raises(BadOption, match="inside the mount point"):
        configured("--cache", str(work / "link"))


def _writable_by_others(path: Path) -> None:
    path.mkdir()
    path.chmod(0o770)


def _of_somebody_else(path: Path) -> None:
    path.mkdir(mode=0o700)
    os.chown(path, NOBODY, NOBODY)


@pytest.mark.parametrize(
    ("where", "make", "says"),
    [
        ("cache", _writable_by_others, "others may write to {path} and change what is read; chmod 700 {path}"),
        ("cache", _of_somebody_else, "{path} belongs to uid 65534, who could change what is read"),
        ("cache", Path.touch, "{path} is not a directory; name another place"),
        ("missing/cache", None, "name a directory this user may write to, on a local disk"),
        ("/proc/cache", None, "name a directory this user may write to, on a local disk"),
        ("mnt/cache", None, "it lies inside the mount point {mnt}; choose another directory"),
        ("mnt", None, "it lies inside the mount point {mnt}; choose another directory"),
        (".", None, "the mount point {mnt} lies inside it; choose another directory"),
    ],
)
def test_the_command_refuses_a_cache(work: Path, where: str, make: Callable[[Path], None] | None, says: str) -> None:
    """A cache directory in the mount point, around it, or of no use is refused in one line before S3 is asked."""
    mnt, path = work / "mnt", work / where
    mnt.mkdir()
    if make is not None:
        make(path)
    flags = ["--endpoint-url", "http://127.0.0.1:1", "--cache", str(path)]
    line = refusal(mnt, ExitCode.USAGE, "bucket", str(mnt), *flags)
    assert line.startswith(f"s3mount: --cache {path}: ")
    assert says.format(path=path, mnt=mnt) in line


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--max-cache-size", "much"], "'much' is not a size"),
        (["--cache-min-free", "much"], "--cache-min-free"),
        (["--cache-policy", "fifo"], "'fifo' is not a policy; write auto, lru, pin, off, or PREFIX= and one of them"),
        (["--cache-policy", "=lru"], "'=lru' is not a policy"),
        (["--cache-policy", "a/="], "'a/=' is not a policy"),
        (["--cache-group", "no such"], "there is no group 'no such' on this host"),
        (["--cache-group", str(2**32)], f"there is no group '{2**32}' on this host"),
    ],
    ids=str,
)
def test_nonsense(flags: list[str], says: str) -> None:
    """A value of no use is refused with the name of the option."""
    with pytest.raises(BadOption) as raised:
        configured(*ONE, *flags)
    assert says in str(raised.value)
