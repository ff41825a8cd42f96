"""A daemon over a store in memory, driven line by line: `python -m tests.mount.notified MOUNTPOINT [OPTION…]`.

Each line on stdin is a command (the methods of `Commands`), each line on stdout its answer in JSON; the
first line says that the mount is served.  The end of stdin stops the daemon as a signal stops the real one.
"""

import argparse
import dataclasses
import json
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pyfuse3
import trio

from s3mount.cache import metadata
from s3mount.cache.ages import MetadataConfig
from s3mount.core.attrs import ObjectId
from s3mount.core.inodes import ROOT
from s3mount.core.listing import ListPage
from s3mount.core.ranges import ByteRange
from s3mount.core.ttl import INDEFINITE, parse_ttl
from s3mount.core.waits import Arrival
from s3mount.daemon import mountpoint
from s3mount.fs.filesystem import S3FileSystem
from s3mount.fuse import session
from s3mount.fuse.boundary import Boundary
from s3mount.fuse.device import unmount
from s3mount.fuse.notify import ThreadNotifier
from s3mount.fuse.operations import Operations
from tests.fs.harness import file_system
from tests.support.content import make_content
from tests.support.fake_store import FakeStore

#: Seconds that calls in flight get when the daemon stops.
_GRACE_S = 1.0


class StallingStore(FakeStore):
    """S3 answers about a stalled key at once, but the bytes are on their way until it is resumed.

    Of a stalled key a GET, and of `list:` and a prefix a LIST.
    """

    def __init__(self) -> None:
        super().__init__()
        self._stalled: dict[str, trio.Event] = {}

    def stall(self, key: str) -> None:
        self._stalled[key] = trio.Event()

    def resume(self, key: str) -> None:
        self._stalled.pop(key).set()

    async def get_range(self, wanted: ObjectId, span: ByteRange, arrival: Arrival | None = None) -> bytes:
        content = await super().get_range(wanted, span, arrival)
        await self._on_the_way(wanted.key)
        return content

    async def list_page(self, prefix: str, **how: Any) -> ListPage:
        page = await super().list_page(prefix, **how)
        await self._on_the_way(f"list:{prefix}")
        return page

    async def _on_the_way(self, key: str) -> None:
        if key in self._stalled:
            await self._stalled[key].wait()


class CountingOperations(Operations):
    """Counts what reaches the daemon: an answer out of the kernel's own caches does not."""

    def __init__(self, filesystem: S3FileSystem, boundary: Boundary) -> None:
        super().__init__(filesystem, boundary)
        self.calls: Counter[str] = Counter()
        self.reads_in_flight = 0

    async def lookup(self, *arguments: Any) -> pyfuse3.EntryAttributes:
        self.calls["lookups"] += 1
        return await super().lookup(*arguments)

    async def read(self, *arguments: Any) -> bytes:
        self.reads_in_flight += 1
        try:
            return await super().read(*arguments)
        finally:
            self.reads_in_flight -= 1


class LoopNotifier(ThreadNotifier):
    """The fault that the tests must be able to see: it calls into the kernel on trio's thread."""

    def forget_name(self, parent_ino: int, name: bytes) -> None:
        pyfuse3.invalidate_entry(pyfuse3.InodeT(parent_ino), pyfuse3.FileNameT(name))  # noqa: TID251  the fault

    def forget_inode(self, ino: int) -> None:
        pyfuse3.invalidate_inode(pyfuse3.InodeT(ino))  # noqa: TID251  the fault


@dataclasses.dataclass
class Commands:
    """One method for each command; paths are keys, because the bucket's root is mounted."""

    store: StallingStore
    filesystem: S3FileSystem
    notifier: ThreadNotifier
    operations: CountingOperations
    boundary: Boundary

    async def put(self, key: str, seed: str, size: str) -> None:
        """What another client does."""
        self.store.put(key, make_content(seed, int(size)))

    async def delete(self, key: str) -> None:
        self.store.delete(key)

    async def stall(self, key: str) -> None:
        self.store.stall(key)

    async def resume(self, key: str) -> None:
        self.store.resume(key)

    async def forget_inode(self, path: str) -> None:
        self.notifier.forget_inode(await self._number_of(path))

    async def forget_name(self, path: str) -> None:
        directory, _, name = path.rpartition("/")
        self.notifier.forget_name(await self._number_of(directory), name.encode())

    async def refresh(self, path: str = "") -> None:
        await self.filesystem.refresh(path)

    async def statistics(self) -> dict[str, Any]:
        self.filesystem.check_invariants()
        self.notifier.check_invariants()
        kernel = {**self.operations.calls, "reads_in_flight": self.operations.reads_in_flight}
        return {"store": self.store.counts, "kernel": kernel, **dataclasses.asdict(self.notifier.statistics())}

    async def _number_of(self, path: str) -> int:
        """By the file system's own verbs, so that no reference stays."""
        ino = ROOT
        for name in filter(None, path.split("/")):
            parent, ino = ino, (await self.filesystem.lookup(ino, name.encode())).ino
            self.filesystem.forget([(parent, 1)] if parent != ROOT else [])
        self.filesystem.forget([(ino, 1)] if ino != ROOT else [])
        return ino


@asynccontextmanager
async def composed(options: argparse.Namespace) -> AsyncIterator[Commands]:
    """The file system of the tests over the store in memory, with a kernel to notify."""
    metadata.MAX_ENTRIES = metadata.MAX_ANSWERS = options.room
    store = StallingStore()
    notifier = LoopNotifier() if options.on_loop else ThreadNotifier()
    ttl = MetadataConfig(options.ttl, options.ttl)
    async with file_system(store, metadata=ttl, notifier=notifier) as mounted:
        boundary = Boundary(60.0)
        yield Commands(store, mounted.fs, notifier, CountingOperations(mounted.fs, boundary), boundary)


async def obey(commands: Commands, mount_point: str) -> None:
    """Answer each line; at the end of stdin detach the mount, and give the calls in flight their time.

    A notification that is stuck in the kernel would keep the process for good: then the connection is aborted.
    """
    _say(mountpoint.mounted_on(mount_point).device)
    pending = b""
    async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as lines:
        async for piece in lines:
            *whole, pending = (pending + piece).split(b"\n")
            for line in whole:
                name, *arguments = line.decode().split(" ")
                _say(await getattr(commands, name.replace("-", "_"))(*arguments))
    if not await trio.to_thread.run_sync(commands.notifier.close):
        await trio.run_process(["umount", "-f", mount_point], check=False, capture_stderr=True)
    await trio.to_thread.run_sync(unmount, mount_point)
    with trio.move_on_after(_GRACE_S):
        await commands.boundary.wait_idle()


def _say(answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mount_point")
    parser.add_argument("--ttl", type=parse_ttl, default=INDEFINITE)
    parser.add_argument("--room", type=int, default=metadata.MAX_ENTRIES)
    parser.add_argument("--on-loop", action="store_true")
    options = parser.parse_args()
    async with composed(options) as commands:
        config = session.FuseConfig(options.mount_point, "notified")
        with session.mounted(commands.operations, config):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.serve)
                await obey(commands, options.mount_point)
                nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
