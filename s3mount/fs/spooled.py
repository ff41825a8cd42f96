"""A file in the spool: what was written is local, the rest is in the version it is based on.

    read        local bytes from the spool, those of the base from S3 when they are wanted, holes are zeros
    publish     S3 copies what did not change, from 5 MiB up; the rest is sent, each part read when it goes
                where the bucket can append, what was only appended is sent alone (fs.appending)

The spool's file is made with the first byte; a file that is only cut off, or that nobody wrote to, has none.

Not safe for two calls at once, but for reads, and writes to different bytes: of the parts of a stream.  `fs.draft`
sees to that.

INVARIANT: what `extents` calls local is in the spool's file.
"""

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import trio

from s3mount.core.attrs import ObjectId, ObjectStat
from s3mount.core.extents import Extents, Source
from s3mount.core.ranges import ByteRange, split
from s3mount.core.spool_record import SpoolRecord
from s3mount.core.uploads import PlannedPart, plan_parts
from s3mount.errors import NotSupported, ObjectChanged, ObjectTooLarge
from s3mount.fs.appending import Appender
from s3mount.fs.part_sender import StreamTools
from s3mount.fs.spool import Spool, SpoolFile
from s3mount.store.copying import abort_quietly, send_all
from s3mount.store.writing import Attributes, Body, Condition, Part, Upload, Written, size_of
from s3mount.units import MIB

#: Bytes of one version of an object: `store.base.RangeReader.get_range`, or what caches it.
ReadBase = Callable[[ObjectId, ByteRange], Awaitable[bytes]]
#: Parts of one file on their way at once.
_AT_ONCE = 8
#: One read of the spool.
_STEP = 1 * MIB
MAX_HELD = 8 * MIB  #: Bytes that are worth a GET for who has a file open whose name is taken.


@dataclass(frozen=True)
class SpoolTools:
    """What all spooled files of a mount share; the appender where the bucket can append, and that is wanted."""

    spool: Spool
    read_base: ReadBase
    streams: StreamTools
    appender: Appender | None = None


class SpooledContent:
    """The content of one file.

    Args:
        base: the version it begins as; None for nothing.
        file: with `extents`, what a journal told of.
    """

    def __init__(
        self,
        tools: SpoolTools,
        base: ObjectStat | None = None,
        file: SpoolFile | None = None,
        extents: Extents | None = None,
    ) -> None:
        self._tools = tools
        self._room = tools.streams.room
        self._base = base.id if base else ObjectId("", "")
        self._file = file
        self._making = trio.Lock()
        self.extents = extents or Extents(base.size if base else 0)
        self._tried = {self.extents.size} if file else set()  # sizes that S3's object may have by an append of ours

    @property
    def size(self) -> int:
        """Bytes."""
        return self.extents.size

    @property
    def where(self) -> str:
        """Path of the spool's file, for messages; empty when there is none."""
        return str(self._file.path) if self._file else ""

    async def write(self, offset: int, body: Body) -> None:
        """Bytes at an offset; beyond the end they leave zeros behind.  Raises SpoolFull, SpoolFailed."""
        await (await self._local()).write(offset, body)
        self.extents.write(ByteRange(offset, offset + size_of(body)))

    async def _local(self) -> SpoolFile:
        async with self._making:  # parts of a stream are kept beside each other
            self._file = self._file or await self._tools.spool.create()
            return self._file

    async def truncate(self, size: int) -> None:
        """The file has that size now; where it grows it has zeros."""
        if self._file is not None and size < self.size:
            await self._file.truncate(size)
        self.extents.truncate(size)

    async def read(self, span: ByteRange) -> bytes:
        """Bytes of a range; fewer at the end.

        Raises:
            ObjectChanged: bytes that were not read yet are gone with the version they were in.
            SpoolFailed, StoreError.
        """
        return b"".join(await self._body(span))

    async def _body(self, span: ByteRange) -> list[bytes]:
        return [await self._piece(*each) for each in self.extents.pieces(span)]

    async def _piece(self, span: ByteRange, source: Source) -> bytes:
        if source is Source.ZEROS:
            return bytes(span.length)
        if source is Source.LOCAL and self._file is not None:
            return b"".join([await self._file.read(step) for step in split(span, _STEP)])
        return await self._tools.read_base(self._base, span)

    async def hold(self) -> None:
        """Have here what only the base has, if it is not much.  Raises as `read` and `write`."""
        missing = [span for span, source in self.extents.pieces(ByteRange(0, self.size)) if source is Source.BASE]
        if not 0 < sum(span.length for span in missing) <= MAX_HELD:
            return
        file = await self._local()
        for step in [step for span in missing for step in split(span, _STEP)]:  # memory for more might not come
            await file.write(step.start, [await self._tools.read_base(self._base, step)])
            self.extents.fetched(step)

    def holds(self, span: ByteRange) -> bool:
        """Whether all bytes of a range were written, or are the base's."""
        found = [piece.span.length for piece in self.extents.pieces(span) if piece.source is not Source.ZEROS]
        return sum(found) == span.length

    # -- to S3 ----------------------------------------------------------------------------------

    async def publish_appended(self) -> Written | None:
        """Send what was appended alone, its attributes stay; None where that cannot be.  Raises as `publish`."""
        appender, span = self._tools.appender, self.extents.appended
        if appender is None or span is None or span.length > self._room.largest_part:
            return None
        with contextlib.suppress(ObjectTooLarge, NotSupported):  # too often: rewritten it is new; or a Local Zone
            return await self._append(appender, span)
        return None

    async def publish(self, key: str, condition: Condition, attributes: Attributes) -> Written:
        """Make the object; tell `published` when it is there.

        Raises:
            AlreadyExists, ObjectChanged: the condition does not hold, or the base is gone.
            SpoolFailed, StoreError.  Nothing is changed here, and nothing left in S3.
        """
        writer, part_size = self._tools.streams.writer, self._tools.streams.part_size
        plan = plan_parts(self.size, self.extents.base_stop, self.extents.changes, part_size)
        if max((part.span.length for part in plan if not part.is_copy), default=0) > self._room.largest_part:
            raise ObjectTooLarge("its parts are larger than the memory for them; give the mount more", key=key)
        if len(plan) <= 1 and not any(part.is_copy for part in plan):
            return await self._put(key, condition, attributes)
        upload = await writer.create_upload(key, attributes)
        is_done = False
        try:
            parts = await send_all(plan, partial(self._send_one, upload), _AT_ONCE)
            written = await writer.complete(upload, parts, condition)
            is_done = True
        finally:
            if not is_done:
                await abort_quietly(writer, upload)
        self._tools.streams.counts.uploads += 1
        return written

    async def _append(self, appender: Appender, span: ByteRange) -> Written:
        tried = self._tried.copy()
        async with self._room.holding(span.length):
            body = await self._body(span)
            self._tried.add(span.stop)
            try:
                return await appender.append(self._base, span.start, body, tried)
            except ObjectChanged:
                self._tried = tried
                raise

    async def _put(self, key: str, condition: Condition, attributes: Attributes) -> Written:
        async with self._room.holding(self.size):
            body = await self._body(ByteRange(0, self.size))
            written = await self._tools.streams.writer.put(key, body, condition, attributes)
            self._tools.streams.remember(written.id, body)
        self._tools.streams.counts.puts += 1
        return written

    async def _send_one(self, upload: Upload, number: int, planned: PlannedPart) -> Part:
        streams = self._tools.streams
        if planned.is_copy:
            streams.counts.copied += 1
            return await streams.writer.copy_part(upload, number, self._base, planned.span)
        async with self._room.holding(planned.span.length):
            streams.counts.parts += 1
            return await streams.writer.upload_part(upload, number, await self._body(planned.span))

    def published(self, found: ObjectStat) -> None:
        """S3 has it as it is, as this version.  Raises ValueError when that has another size."""
        if found.size != self.size:
            raise ValueError(f"{found.key!r} has {found.size} bytes in S3 and {self.size} here")
        self._base = found.id
        self._tried.clear()
        self.extents.published()

    # -- to disk --------------------------------------------------------------------------------

    async def keep(self, key: str, mark: str) -> None:
        """Acknowledge what is there: see `SpoolFile.keep`.  Raises SpoolFull, SpoolFailed: it is not."""
        file = await self._local()
        old, changes = self.extents, tuple((start, stop) for start, stop in self.extents.changes)
        record = SpoolRecord(key, mark, self._base.etag, old.base_size, old.base_stop, old.size, changes)
        await file.keep(record)

    async def forget(self) -> None:
        """What was acknowledged is in S3, or nobody wants it any more."""
        if self._file is not None:
            await self._file.forget()

    async def discard(self) -> None:
        """Nobody needs it any more."""
        if self._file is not None:
            file, self._file = self._file, None
            await file.discard()

    def abandon(self) -> None:
        """Leave on disk what is acknowledged, for another daemon."""
        if self._file is not None:
            self._file.abandon()

    def check_invariants(self) -> None:
        """Raises ValueError when local bytes are nowhere."""
        self.extents.check_invariants()
        if self._file is None and any(self.extents.pieces(span) for span in self.extents.changes):
            raise ValueError("bytes are called local, and there is no file")
