"""Names changed over a bucket in memory: the verbs of `fs.namespace` as a program uses them, by paths."""

import stat
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from s3mount.cache.ages import MetadataConfig
from s3mount.core.attrs import FileAttrs
from s3mount.core.keys import split_key
from s3mount.core.ttl import TimeToLive
from s3mount.errors import NameNotFound, NotADirectory
from s3mount.fs.budget import ByteBudget
from s3mount.fs.draft_content import DraftTools
from s3mount.fs.drafts import Drafts, Opening
from s3mount.fs.interrupted import InterruptedCall, InterruptedCalls
from s3mount.fs.names import Names
from s3mount.fs.namespace import Namespace, NamespaceConfig
from s3mount.fs.object_headers import ObjectHeaders
from s3mount.fs.part_sender import StreamTools
from s3mount.fs.parts import StreamStatistics
from s3mount.fs.repeated_files import RepeatedFiles
from s3mount.fs.repeated_names import RepeatedNames
from s3mount.fs.spool import Spool
from s3mount.fs.spooled import SpoolTools
from s3mount.fs.stamps import PosixStamps
from s3mount.fs.write_policy import WritePolicy
from s3mount.fs.write_room import WriteRoom
from s3mount.fs.written import WrittenInodes
from s3mount.store.conditions import Conditions
from s3mount.store.writing import Writer
from s3mount.units import MIB
from tests.fs.harness import MADE, NOW, ROOT, Mounted, file_system
from tests.fs.write_harness import PART, Inline, no_fault
from tests.support.fake_store import FakeStore
from tests.support.fake_writer import FakeWriter, FaultyWriter, Loss

RW = WritePolicy(is_read_only=False, is_rw=True)
#: What --rw makes of the times to live.
FRESH = MetadataConfig(TimeToLive(1.0), TimeToLive(1.0))
#: What S3 does.
GOOD = Conditions(of_puts=True, of_copies=True)


class MountedNames:
    """One mount, by paths.

    Attributes:
        is_killed: its end is that of kill -9: nothing more is said to S3.
    """

    def __init__(
        self, mounted: Mounted, store: FakeStore, names: Namespace, files: RepeatedFiles, drafts: Drafts
    ) -> None:
        self.mounted = mounted
        self.store = store
        self.names = names
        self.files = files
        self.drafts = drafts
        self.is_killed = False

    async def at(self, path: str) -> tuple[int, bytes]:
        """The directory that a path is in, and the name there."""
        directory_key, name = split_key(path)
        if not directory_key:
            return ROOT, name.encode()
        parent = await self.mounted.walk(directory_key[:-1])
        if not stat.S_ISDIR(parent.mode):
            raise NotADirectory(directory_key)
        return parent.ino, name.encode()

    async def known(self, *paths: str) -> None:
        """Look paths up, as the kernel does before a call."""
        for path in paths:
            await self.exists(path)

    async def exists(self, path: str) -> bool:
        try:
            await self.mounted.walk(path)
        except NameNotFound:
            return False
        return True

    async def mkdir(self, path: str, mode: int = 0o755) -> FileAttrs:
        return await self.names.mkdir(*await self.at(path), mode)

    async def rmdir(self, path: str) -> None:
        await self.names.rmdir(*await self.at(path))

    async def unlink(self, path: str) -> None:
        await self.names.unlink(*await self.at(path))

    async def rename(self, path: str, new_path: str, *, may_replace: bool = True) -> None:
        await self.names.rename(*await self.at(path), *await self.at(new_path), may_replace=may_replace)

    async def link(self, path: str, new_path: str) -> FileAttrs:
        return await self.names.link((await self.mounted.walk(path)).ino, *await self.at(new_path))

    async def symlink(self, path: str, target: str) -> FileAttrs:
        return await self.names.symlink(*await self.at(path), target.encode())

    async def readlink(self, path: str) -> str:
        return (await self.names.readlink((await self.mounted.walk(path)).ino)).decode()

    async def create(self, path: str, content: bytes = b"") -> int:
        """A handle on a new file with some content, not closed."""
        opening = Opening(is_truncating=True)
        handle, _ = await self.files.create(*await self.at(path), opening, MADE, 0)
        if content:
            await self.files.write(handle, 0, content)
        return handle

    async def mknod(self, path: str) -> FileAttrs:
        return await self.files.make(*await self.at(path), MADE, 0)

    async def close(self, handle: int) -> None:
        await self.files.flush(handle)
        await self.files.release(handle)

    async def write(self, path: str, content: bytes) -> None:
        await self.close(await self.create(path, content))

    async def write_over(self, path: str, content: bytes) -> None:
        """A file that is there gets new content."""
        handle = await self.files.open((await self.mounted.walk(path)).ino, Opening(is_truncating=True), 0)
        await self.files.write(handle, 0, content)
        await self.close(handle)

    async def read(self, path: str) -> bytes:
        attrs = await self.mounted.walk(path)
        handle = await self.mounted.fs.open(attrs.ino)
        try:
            return bytes(await self.mounted.read(handle, 0, attrs.size))
        finally:
            await self.files.release(handle)

    async def read_directory(self, handle: int) -> list[str]:
        """What is left of an open directory."""
        names: list[str] = []
        n_before = -1

        def emit(name: bytes, _attrs: FileAttrs, _next_offset: int) -> bool:
            names.append(name.decode())
            return True

        while len(names) > n_before:
            n_before = len(names)
            await self.mounted.fs.readdir(handle, n_before, emit)
        return sorted(names)

    async def listed(self, path: str = "") -> list[str]:
        ino = (await self.mounted.walk(path)).ino if path else ROOT
        return sorted(await self.mounted.names(ino))

    async def tree(self, path: str = "") -> dict[str, bytes | str | None]:
        """Everything below: content of files, targets of links, None for directories."""
        found: dict[str, bytes | str | None] = {}
        for name in await self.listed(path):
            each = f"{path}/{name}" if path else name
            mode = (await self.mounted.walk(each)).mode
            if stat.S_ISDIR(mode):
                found[each] = None
                found.update(await self.tree(each))
            else:
                found[each] = await self.readlink(each) if stat.S_ISLNK(mode) else await self.read(each)
        return found

    def check_invariants(self) -> None:
        self.names.check_invariants()
        self.files.check_invariants()
        self.mounted.fs.check_invariants()


@asynccontextmanager
async def namespace(
    store: FakeStore,
    directory: Path,
    *,
    writer: Writer | None = None,
    policy: WritePolicy = RW,
    config: NamespaceConfig | None = None,
    metadata: MetadataConfig = FRESH,
    fault: Callable[[str, str, int], Loss | None] = no_fault,
    interrupted: Iterable[InterruptedCall] = (),
    is_posix: bool = False,
) -> AsyncIterator[MountedNames]:
    """A mount that may be written to; what was removed is gone in S3 when it ends.

    Args:
        is_posix: with --posix-metadata.
    """
    faulty = FaultyWriter(FakeWriter(store) if writer is None else writer, fault)
    budget = ByteBudget(64 * MIB)
    describe = faulty.describe if is_posix else None
    async with (
        file_system(store, metadata=metadata, describe=describe) as mounted,
        trio.open_nursery() as nursery,
    ):
        tree = mounted.fs.tree
        written = WrittenInodes(tree)
        streams = StreamTools(faulty, WriteRoom(budget), nursery, PART, StreamStatistics())
        spool = Spool(directory, Inline(), min_free_share=0.0)
        stamps = PosixStamps(tree, faulty, lambda: NOW)
        tools = DraftTools(SpoolTools(spool, store.get_range, streams), lambda: NOW, watch=written, stamps=stamps)
        drafts = Drafts(tools, nursery)
        config = config or NamespaceConfig(conditions=GOOD, clock=lambda: NOW)
        names = RepeatedNames(tree, drafts, policy, store, faulty, streams.room, nursery, config)
        names.interrupted = InterruptedCalls(interrupted, trio.current_time)
        files = RepeatedFiles(tree, drafts, written, policy, ObjectHeaders(), names.removals.settle, names.changes)
        files.interrupted, files.names = names.interrupted, Names(tree, policy, names.removals)
        tested = MountedNames(mounted, store, names, files, drafts)
        yield tested
        if not tested.is_killed:
            tested.check_invariants()
            await names.sync()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await drafts.close()
