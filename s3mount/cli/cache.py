"""Flags → `DiskCacheConfig`: where content is kept on local disks, and how much of it."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from s3mount.cache.disk import DEFAULT_MIN_FREE_PERCENT, DiskCacheConfig
from s3mount.cli.values import GROUP, POLICY, size_in
from s3mount.core.epochs import CachePolicy
from s3mount.errors import BadOption
from s3mount.units import KIB, MIB

#: In the order --help shows them.
CACHE_FLAGS = [
    click.option("--cache", multiple=True, metavar="DIR", type=click.Path(),
                 help="Keep content in this directory on a local disk; once for each disk."),
    click.option("--max-cache-size", type=size_in(MIB), metavar="MIB",
                 help="The most that all of them hold.  [default: what --cache-min-free leaves]"),
    click.option("--cache-min-free", type=float, metavar="PERCENT",
                 help=f"What stays free of each disk.  [default: {DEFAULT_MIN_FREE_PERCENT:g}]"),
    click.option("--cache-block-size", type=size_in(KIB), metavar="KIB",
                 help="Size of the largest file in them.  [default: 8 MiB]"),
    click.option("--cache-policy", multiple=True, type=POLICY, metavar="[PREFIX=]POLICY",
                 help="What a full cache keeps: auto sees epochs, lru, pin: what is in it; off: nothing.  "
                 "Again for keys that begin with PREFIX.  [default: auto]"),
    click.option("--cache-group", type=GROUP, metavar="GROUP",
                 help="Share the directories with the members of this unix group.  [default: nobody]"),
]  # fmt: skip


def cache_config(flags: Mapping[str, Any], mount_point: str, queue_bytes: int) -> DiskCacheConfig | None:
    """What the flags say of the disk cache; None for none.

    Args:
        mount_point: without symbolic links.
        queue_bytes: that may wait for each disk.

    Raises:
        BadOption: they contradict each other, or cannot be meant.
    """
    chosen = {
        "max_bytes": flags["max_cache_size"],
        "min_free_percent": flags["cache_min_free"],
        "block_size": flags["cache_block_size"],
        "group": flags["cache_group"],
    } | _policies(flags["cache_policy"])
    chosen = {name: value for name, value in chosen.items() if value is not None}
    if not flags["cache"]:
        if chosen:
            raise BadOption(
                "--max-cache-size, --cache-min-free, --cache-block-size, --cache-policy and --cache-group "
                "need --cache DIR"
            )
        return None
    directories = tuple(_directory(each, mount_point) for each in flags["cache"])
    return DiskCacheConfig(directories, max_queued=queue_bytes, **chosen)


def _policies(given: tuple[tuple[str, CachePolicy], ...]) -> dict[str, Any]:
    """The policy without a prefix, and those with one."""
    by_prefix = dict(given)
    if len(by_prefix) < len(given):
        raise BadOption("--cache-policy is given twice for the same prefix, or twice without one")
    policy = by_prefix.pop("", None)
    return {"policy": policy, "prefix_policies": tuple(by_prefix.items()) or None}


def _directory(given: str, mount_point: str) -> Path:
    directory = Path(os.path.realpath(given))
    if directory.is_relative_to(mount_point):
        raise BadOption(f"--cache {given}: it lies inside the mount point {mount_point}; choose another directory")
    if Path(mount_point).is_relative_to(directory):
        raise BadOption(f"--cache {given}: the mount point {mount_point} lies inside it; choose another directory")
    return directory
