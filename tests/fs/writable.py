"""A file system that is written to, over a bucket in memory: everything but FUSE and S3."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from s3mount.cache.ages import MetadataConfig
from s3mount.core.attrs import ObjectId
from s3mount.core.ranges import ByteRange
from s3mount.fs.attribute_changes import AttributeChanges
from s3mount.fs.draft_content import DraftTools
from s3mount.fs.drafts import Drafts, Opening
from s3mount.fs.file_writes import FileWrites
from s3mount.fs.object_headers import ObjectHeaders
from s3mount.fs.part_sender import StreamTools
from s3mount.fs.parts import StreamStatistics
from s3mount.fs.spool import Spool
from s3mount.fs.spooled import SpoolTools
from s3mount.fs.write_policy import WritePolicy
from s3mount.fs.write_room import WriteRoom
from s3mount.fs.written import WrittenInodes
from s3mount.store.patient_writer import PatientWriter
from s3mount.store.retries import Retries
from s3mount.store.writing import Writer
from tests.fs.harness import MADE, NOW, ROOT, Mounted, file_system
from tests.fs.write_harness import PART, Inline, no_fault
from tests.support.fake_store import FakeStore
from tests.support.fake_writer import FakeWriter, FaultyWriter, Loss

RW = WritePolicy(is_read_only=False, is_rw=True)
#: How programs open files.
W = Opening(is_truncating=True)
RDWR = Opening(is_random=True)
APPEND = Opening(is_append=True)


async def nothing_removed(_: str) -> None:
    """Nothing is on its way."""


class Writable:
    """The verbs a program would use, beside those of `Mounted`.

    Attributes:
        now: seconds since the epoch, of files that are written.
    """

    def __init__(
        self, mounted: Mounted, files: FileWrites, drafts: Drafts, store: FakeStore, writer: FakeWriter
    ) -> None:
        self.mounted = mounted
        self.fs = mounted.fs
        self.files = files
        self.drafts = drafts
        self.store = store
        self.writer = writer

    async def create(self, name: str, opening: Opening = W) -> tuple[int, int]:
        """(inode number, handle) of a new file in the root."""
        handle, attrs = await self.files.create(ROOT, name.encode(), opening, MADE, 0)
        return attrs.ino, handle

    async def open(self, path: str, opening: Opening = W) -> int:
        return await self.files.open((await self.mounted.walk(path)).ino, opening, 0)

    async def close(self, handle: int) -> None:
        """As the kernel does it: FLUSH, which the program waits for, and RELEASE."""
        try:
            if not self.files.is_flushed(handle):
                await self.files.flush(handle)
        finally:
            await self.files.release(handle)

    async def save(self, name: str, content: bytes, opening: Opening = W) -> int:
        """A new file, written and closed; its number."""
        ino, handle = await self.create(name, opening)
        await self.files.write(handle, 0, content)
        await self.close(handle)
        return ino

    def content(self, key: str) -> bytes:
        return self.store.objects[key][1]


@asynccontextmanager
async def writable(
    directory: Path,
    store: FakeStore | None = None,
    *,
    policy: WritePolicy = RW,
    metadata: MetadataConfig | None = None,
    fault: Callable[[str, str, int], Loss | None] = no_fault,
    retries: Retries | None = None,
) -> AsyncIterator[Writable]:
    """It; at the end nothing is held, and no upload is left.

    Args:
        retries: of what fails; without it the first failure is final.
    """
    store = store or FakeStore()
    async with file_system(store, metadata=metadata) as mounted, trio.open_nursery() as nursery:
        writer = FakeWriter(store)
        room = WriteRoom(mounted.budget)
        faulty: Writer = FaultyWriter(writer, fault)
        asked = faulty if retries is None else PatientWriter(faulty, retries)
        streams = StreamTools(asked, room, nursery, PART, StreamStatistics())
        spool = Spool(directory, Inline(), min_free_share=0.0)
        written = WrittenInodes(mounted.fs.tree)

        async def read_base(version: ObjectId, span: ByteRange) -> bytes:
            return await store.get_range(version, span)

        tools = DraftTools(SpoolTools(spool, read_base, streams), lambda: NOW, watch=written)
        drafts = Drafts(tools, nursery)
        changes = AttributeChanges(mounted.fs.tree, drafts, policy, nursery)
        files = FileWrites(mounted.fs.tree, drafts, written, policy, ObjectHeaders(), nothing_removed, changes)
        yield Writable(mounted, files, drafts, store, writer)
        files.check_invariants()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await drafts.close()
        files.check_invariants()
        assert room.statistics().used == 0
        assert writer.uploads == {}
