"""A mount that is put together, without a kernel, and taken apart again."""

import os
import threading
from pathlib import Path

import pytest

from s3mount.cli.mount import build_config, main
from s3mount.config import MountConfig
from s3mount.core.posix import Posix
from s3mount.daemon.keeper import NoKeeper
from s3mount.daemon.wiring import components
from s3mount.fs.drafts import Opening
from s3mount.mounter.sdnotify import ServiceManager
from tests.support.mounts import aws_environment
from tests.support.servers import Server

pytestmark = pytest.mark.server


def config_of(*arguments: str) -> MountConfig:
    """As the command makes it."""
    flags = main.make_context("s3mount", list(arguments)).params
    return build_config(flags.pop("bucket"), flags.pop("directory"), flags, os.environ)


async def test_no_thread_stays(weed: Server, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a mount ends, the threads end that waited for its cache and its spool."""
    for name, value in aws_environment().items():
        monkeypatch.setenv(name, value)
    flags = ("--rw", "--cache", str(work / "cache"), "--endpoint-url", weed.url, "--force-path-style")
    config = config_of(weed.make_bucket(), str(work / "mnt"), *flags)
    before = set(threading.enumerate())
    async with components(config, NoKeeper(ServiceManager(None))) as parts:
        assert parts.writing is not None
        handle, _ = await parts.writing.files.create(1, b"file", Opening(is_random=True), Posix(mode=0o644), 0)
        await parts.writing.files.write(handle, 5, b"spooled")
        await parts.writing.files.flush(handle)
        await parts.writing.files.release(handle)
        began = {each for each in set(threading.enumerate()) - before if each.name in {"spool", "disk cache"}}
        assert "spool" in {each.name for each in began}
    for each in began:
        each.join(10)
        assert not each.is_alive(), each.name
