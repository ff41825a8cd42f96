"""The bytes of one file being written, streamed or spooled.

    stream      written in order from the start: parts go to S3 meanwhile (fs.streaming)
    spool       everything else: local bytes over a version in S3 (fs.spooled)

A stream becomes a spooled file, for good, when a call needs that: a patch or a gap it cannot do, a truncation, O_RDWR,
memory for writers that does not come before its first part was sent.  What it has sent is in memory or in the spool
(fs.write_room), so nothing is fetched; where it is not (`keeps_streamed`, or no room) such a call is `NotKept`, and
the stream goes on.

Not safe for two calls at once; `fs.draft` sees to that.

INVARIANT: parts go to the spool one by one, and none while a stream is left, emptied, published or closed.
INVARIANT: of a stream, the spool's content has the last published version for a base, and nothing wrong over it.
"""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from s3mount.core.attrs import ObjectStat
from s3mount.core.ranges import ByteRange, gaps
from s3mount.errors import NotKept, SpoolFailed, SpoolFull
from s3mount.fs.draft_attributes import NO_STAMPS, Stamps
from s3mount.fs.draft_watch import NOBODY, DraftWatch
from s3mount.fs.losses import Losses
from s3mount.fs.parts import StreamedPart
from s3mount.fs.spooled import SpooledContent, SpoolTools
from s3mount.fs.streaming import StreamingWriter
from s3mount.store.writing import Attributes, Condition, Written

log = logging.getLogger(__name__)

#: Seconds a stream that has sent nothing waits for memory: then all of it is idle, and the disk is not.
_PATIENCE_S = 5.0


@dataclass(frozen=True)
class DraftTools:
    """What all drafts of a mount share.

    Attributes:
        clock: seconds since the epoch.
        keeps_streamed: whether parts that were sent go to the spool, too.
        watch: is told what becomes of drafts.  stamps: know what programs set of files.
        losses: what could not be saved.
    """

    spool: SpoolTools
    clock: Callable[[], float]
    keeps_streamed: bool = True
    watch: DraftWatch = NOBODY
    stamps: Stamps = NO_STAMPS
    losses: Losses = field(default_factory=Losses)


class DraftContent:
    """What one file has.

    Args:
        key: under which it is published.
        spooled: what it begins as; of a stream, empty.
        begin: attributes of an upload that begins under a key before it is published.

    Attributes:
        spooled: what it is, when it is no stream.
    """

    def __init__(
        self,
        tools: DraftTools,
        key: str,
        spooled: SpooledContent,
        begin: Callable[[str], Attributes],
        *,
        is_stream: bool,
    ) -> None:
        self._tools = tools
        self._key = key
        self._begin = begin
        self.spooled = spooled
        self._is_keeping = tools.keeps_streamed
        self._stowing = trio.Lock()
        self._stream = self._new_stream() if is_stream else None

    def _new_stream(self) -> StreamingWriter:
        stow = self._stow if self._is_keeping else None
        return StreamingWriter(self._tools.spool.streams, self._key, self._begin, stow)

    async def _stow(self, part: StreamedPart) -> None:
        async with self._stowing:
            try:
                if self._is_keeping:
                    await part.stow(self.spooled.write)
            except (SpoolFull, SpoolFailed) as error:
                self._is_keeping = False
                log.warning("what is sent of %r is not kept, so it can be written in order only: %s", self._key, error)
                if self._stream is not None:
                    self._stream.stow = None

    @property
    def size(self) -> int:
        """Bytes."""
        return self.spooled.size if self._stream is None else max(self._stream.size, self._stream.declared)

    @property
    def is_stream(self) -> bool:
        """Whether its parts go to S3 while it is written."""
        return self._stream is not None

    async def write(self, offset: int, data: bytes | memoryview) -> None:
        """Bytes at an offset; beyond the end they leave zeros behind.

        Raises:
            NotKept, SpoolFull, SpoolFailed: they were not written.
            StoreError: a stream has failed.
        """
        if self._tools.spool.appender is not None and self._tools.keeps_streamed:
            await self._end_published()
        stream, stop = self._stream, offset + len(data)
        if stream is not None and stream.size >= offset:
            split = min(stop, stream.size) - offset
            try:
                if split:
                    stream.patch(offset, data[:split])
                if await self._was_appended(stream, data[split:]):
                    return
            except NotKept:
                pass  # the spool may have it
        await self.leave_stream()
        await self.spooled.write(offset, [data])

    def append_nowait(self, offset: int, data: bytes) -> bool:
        """As `write`, where that is the end of a stream and it need not wait; else False, and nothing was done."""
        stream = self._stream
        is_next = stream is not None and stream.published is None and stream.size == offset
        return stream is not None and is_next and stream.append_nowait(data)

    async def _end_published(self) -> None:
        """What comes after the last published byte is appended to the object, not sent in an upload that copies it."""
        stream = self._stream
        if stream is not None and stream.published is not None and stream.published[1] == self.size:
            self._stream = None
            await stream.abort()

    async def _was_appended(self, stream: StreamingWriter, data: bytes | memoryview) -> bool:
        """Whether a stream had memory for it in time."""
        with trio.move_on_after(math.inf if stream.has_begun else _PATIENCE_S):
            await stream.append(data)
            return True
        return False

    async def truncate(self, size: int) -> None:
        """The file has that size now; one that is set before the first byte is what a stream will have.

        Raises:
            As `write`.
        """
        stream = self._stream
        if stream is not None and size == 0:
            await stream.abort()
            async with self._stowing:
                await self.spooled.truncate(0)
            self._stream = self._new_stream()
            return
        if stream is not None and stream.size == 0:
            stream.declared = size
            return
        await self.leave_stream()
        await self.spooled.truncate(size)

    async def leave_stream(self) -> None:
        """Be a spooled file.  Raises as `write`."""
        stream, size = self._stream, self.size
        if stream is None:
            return
        stream.raise_failure()
        async with self._stowing:  # to the end: what waits for it must find the parts gone
            await stream.stow_all(self.spooled.write)
            if not self.spooled.holds(ByteRange(0, stream.size)):
                raise NotKept(f"{self._key!r} is written in order only: what was sent is not kept in the spool")
            await self.spooled.truncate(size)
            self._stream = None
            await stream.abort()

    async def read(self, offset: int, length: int) -> bytes:
        """Bytes as they were written; fewer at the end.

        Raises:
            NotKept: they are nowhere but in an upload.
            ObjectChanged: they were to come from a version that is gone.
            SpoolFailed, StoreError.
        """
        stream, span = self._stream, ByteRange(min(offset, self.size), min(offset + length, self.size))
        if stream is None:
            return await self.spooled.read(span)
        stream.raise_failure()
        content, here = bytearray(span.length), []
        for start, held in stream.held_in(span):
            content[start - span.start : start - span.start + len(held)] = held
            here.append(ByteRange(start, start + len(held)))
        for gap in gaps(span.intersection(ByteRange(0, stream.size)), here):
            if not self.spooled.holds(gap):
                raise NotKept(f"bytes {gap.start} to {gap.stop} of {self._key!r} are in S3 and not here any more")
            content[gap.start - span.start : gap.stop - span.start] = await self.spooled.read(gap)
        return bytes(content)

    async def publish_appended(self) -> Written | None:
        """See `SpooledContent.publish_appended`."""
        return await self.spooled.publish_appended() if self._stream is None else None

    async def publish(self, condition: Condition, attributes: Attributes) -> tuple[Written, Attributes]:
        """Make the object; then tell `published`.  Raises as `StreamingWriter.finish`, `SpooledContent.publish`.

        Returns:
            Also the attributes that it has: of a stream those that it began with.
        """
        if self._stream is None:
            return await self.spooled.publish(self._key, condition, attributes), attributes
        written = await self._stream.finish(condition, attributes)
        async with self._stowing:
            await self.spooled.truncate(0)  # parts that were patched since they came there
            await self.spooled.truncate(self.size)
        return written, self._stream.attributes

    def published(self, found: ObjectStat) -> None:
        """S3 has it as it is, as this version, which may have another key than before."""
        self._key = found.key
        self.spooled.published(found)
        if self._stream is not None:
            self._stream.moved(found.id)

    async def close(self, *, is_kept: bool) -> None:
        """Let go of everything, or leave it on disk."""
        if self._stream is not None:
            await self._stream.abort()
        async with self._stowing:
            if is_kept:
                self.spooled.abandon()
            else:
                await self.spooled.discard()

    def check_invariants(self) -> None:
        """Raises ValueError when an invariant of a part does not hold."""
        self.spooled.check_invariants()
        if self._stream is not None:
            self._stream.check_invariants()
