"""A file system over a store in memory: everything but FUSE and S3."""

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from s3mount.cache.ages import MetadataConfig
from s3mount.cache.disk import DiskCache
from s3mount.cache.metadata import MetadataCache
from s3mount.core.attrs import FileAttrs, Ownership
from s3mount.core.inodes import InodeTable
from s3mount.core.ledger import Ledger
from s3mount.core.policies import PathPolicies
from s3mount.core.posix import Posix
from s3mount.errors import NameNotFound, StaleInode
from s3mount.fs.blocks import BlockStore
from s3mount.fs.budget import ByteBudget
from s3mount.fs.content import ContentReader
from s3mount.fs.directories import DirectoryLister
from s3mount.fs.filesystem import S3FileSystem
from s3mount.fs.misses import MissCounter
from s3mount.fs.notifier import KernelNotifier, NoNotifier
from s3mount.fs.probing import NameProbe
from s3mount.fs.resolver import Resolver
from s3mount.fs.stored_attributes import Describe, StoredAttributes
from s3mount.fs.versions import VersionCheck
from s3mount.fs.waits import ReaderWaits
from s3mount.store.base import ObjectStore
from s3mount.units import MIB

ROOT = 1
OWNER = Ownership(uid=1000, gid=1000, directory_mtime_s=1_700_000_000)
#: Seconds since the epoch, when files are written and asked for.
NOW = 1_800_000_000.0
#: By whom and how files are made.
MADE = Posix(0o644, 1000, 1000)


class Mounted:
    """The file system and its parts, with the verbs a program would use."""

    def __init__(
        self, filesystem: S3FileSystem, budget: ByteBudget, blocks: BlockStore, content: ContentReader
    ) -> None:
        self.fs = filesystem
        self.budget = budget
        self.blocks = blocks
        self.content = content

    async def walk(self, path: str) -> FileAttrs:
        """Stat a path as the kernel does, and keep the references of the components.

        What a look-up gave no time for is asked for again, and a stale inode is looked up once more.
        """
        *parents, name = path.split("/")
        ino = ROOT
        for parent in parents:
            ino = (await self._look_up(ino, parent)).ino
        for _ in range(2):
            attrs = await self._look_up(ino, name)
            if attrs.ttl_s > 0:
                return attrs
            with contextlib.suppress(StaleInode):
                return await self.fs.getattr(attrs.ino)
        raise StaleInode(path)

    async def _look_up(self, ino: int, name: str) -> FileAttrs:
        attrs = await self.fs.lookup(ino, name.encode())
        if attrs.ino == 0:
            raise NameNotFound(name)
        return attrs

    async def names(self, ino: int = ROOT, batch: int = 1000) -> list[str]:
        """All names of a directory, in replies of at most `batch` entries."""
        handle = await self.fs.opendir(ino)
        found: list[str] = []
        offset = 0
        while True:
            reply: list[tuple[str, int]] = []

            def emit(name: bytes, _: FileAttrs, next_offset: int, into: list[tuple[str, int]] = reply) -> bool:
                if len(into) == batch:
                    return False
                into.append((name.decode(), next_offset))
                return True

            await self.fs.readdir(handle, offset, emit)
            if not reply:
                break
            found += [name for name, _ in reply]
            offset = reply[-1][1]
        self.fs.releasedir(handle)
        return found

    async def read_file(self, path: str, step: int = 128 * 1024) -> bytes:
        """Open, read to the end in steps, close."""
        attrs = await self.walk(path)
        handle = await self.fs.open(attrs.ino)
        try:
            pieces = []
            offset = 0
            while piece := await self.read(handle, offset, step):
                pieces.append(bytes(piece))
                offset += len(piece)
            return b"".join(pieces)
        finally:
            self.fs.release(handle)

    async def read(self, handle: int, offset: int, length: int) -> memoryview:
        """As the FUSE handler reads: at once if it can be."""
        content = self.fs.read_nowait(handle, offset, length)
        return await self.fs.read(handle, offset, length) if content is None else content


@asynccontextmanager
async def file_system(
    store: ObjectStore,
    *,
    prefix: str = "",
    budget_bytes: int = 256 * MIB,
    part_size: int = 8 * MIB,
    metadata: MetadataConfig | None = None,
    notifier: KernelNotifier | None = None,
    disk: DiskCache | None = None,
    ledger: Ledger | None = None,
    policies: PathPolicies | None = None,
    describe: Describe | None = None,
) -> AsyncIterator[Mounted]:
    """A file system on `store`; every invariant is checked, and every gauge is zero, when it ends.

    Args:
        disk: that runs.
        ledger: has what a file system before this one left, and notes for the next.
        policies: of some paths; `disk` has its own.
        describe: as with --posix-metadata.
    """
    async with trio.open_nursery() as nursery:
        cache = MetadataCache(trio.current_time, metadata, policies)
        budget = ByteBudget(budget_bytes)
        lister = DirectoryLister(store, cache, nursery)
        waits = ReaderWaits()
        content = ContentReader(store, disk)
        blocks = BlockStore(content, budget, nursery, part_size, waits, policies=policies)
        resolver = Resolver(NameProbe(store, lister), cache, MissCounter(lister, nursery))
        stored = StoredAttributes(cache, describe, nursery=nursery, clock=lambda: NOW)
        filesystem = S3FileSystem(
            InodeTable(prefix, ledger),
            lister=lister,
            cache=cache,
            blocks=blocks,
            versions=VersionCheck(resolver, lister, cache, store, waits, stored),
            notifier=NoNotifier() if notifier is None else notifier,
            owner=OWNER,
        )
        yield Mounted(filesystem, budget, blocks, content)
        filesystem.check_invariants()
        budget.check_invariants()
        nursery.cancel_scope.cancel()
    filesystem.check_invariants()
    if filesystem.statistics().open_files == 0:
        assert budget.statistics().used == 0, "bytes are held though no file is open"
