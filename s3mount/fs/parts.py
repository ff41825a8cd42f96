"""One part of a multipart upload under way, from its first byte to what S3 says of it.

    filling     bytes come; not sent, unless the writer ends here
    closed      no byte is added; it is sent, and sent again when it was patched meanwhile or later
    offered     S3 has it as it is; the bytes stay for patches and reads, and go to the disk when the room is short
    kept        the disk has them, too, or nobody wants it to: they go when the room is needed
    dropped     S3 has it, and nobody else

INVARIANT: a part that S3 does not have as it is now (`is_sent`) has its buffer, or a version to be copied from.
INVARIANT: the bytes of the buffer are held in the writer's allowance.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import trio

from s3mount.core.attrs import ObjectId
from s3mount.core.part_buffer import PartBuffer
from s3mount.core.ranges import ByteRange
from s3mount.errors import StoreError
from s3mount.fs.write_room import Allowance, WriteRoom
from s3mount.store.writing import Body, Part, Upload, Writer


@dataclass
class StreamStatistics:
    """Counts of all streams of a mount: objects by one PUT, by parts; parts sent, again, copied; uploads dropped."""

    puts: int = 0
    uploads: int = 0
    parts: int = 0
    resent: int = 0
    copied: int = 0
    aborted: int = 0


class StreamedPart:
    """A part.

    Args:
        start: of its first byte in the object.
        limit: bytes it may have.
        source: where S3 takes it from, when it is all there; else it begins empty.

    Attributes:
        sent: what S3 has, of some state of it.
        is_busy: a task sends it.
    """

    def __init__(
        self, number: int, start: int, limit: int, allowance: Allowance, room: WriteRoom, source: ObjectId | None = None
    ) -> None:
        self.number = number
        self.start = start
        self.limit = limit
        self._source = source
        self._allowance = allowance
        self._room = room
        self._buffer = None if source else PartBuffer()
        self._length = limit if source else 0
        self._revision = 1
        self._sent_revision = self._stowed_revision = 0
        self.sent: Part | None = None
        self.is_busy = False
        self.scope = trio.CancelScope()

    @property
    def span(self) -> ByteRange:
        """In the object."""
        return ByteRange(self.start, self.start + self._length)

    @property
    def is_here(self) -> bool:
        """Whether its bytes are in memory."""
        return self._buffer is not None

    @property
    def is_sent(self) -> bool:
        """Whether S3 has it as it is now."""
        return self._sent_revision == self._revision

    @property
    def room(self) -> int:
        """Bytes it still takes."""
        return self.limit - self._length

    def append(self, data: memoryview) -> None:
        """More bytes, no more than there is room for; the allowance has them."""
        if self._buffer is None:
            raise ValueError(f"part {self.number} takes no more bytes")
        self._buffer.append(data)
        self._length += len(data)
        self._revision += 1

    def patch(self, offset: int, data: bytes | memoryview) -> None:
        """Other bytes at an offset in the object; the part has to be sent again if it was."""
        if self._buffer is None:
            raise ValueError(f"part {self.number} is not here")
        self._buffer.patch(offset - self.start, data)
        self._revision += 1
        self._room.unkeep(self)

    def read(self, span: ByteRange) -> bytes:
        """Bytes of the object that lie in it; nothing when it is not here."""
        if self._buffer is None:
            return b""
        return self._buffer.read(max(0, span.start - self.start), span.stop - self.start)

    async def send(self, writer: Writer, upload: Upload, counts: StreamStatistics) -> None:
        """Let S3 have it as it is at the end.

        Raises:
            StoreError: as `Writer.upload_part` and `Writer.copy_part`.
        """
        while not self.is_sent:
            revision, was_sent = self._revision, self.sent is not None
            if self._buffer is not None:
                self.sent = await writer.upload_part(upload, self.number, self._buffer.body())
            elif self._source is not None:
                self.sent = await writer.copy_part(upload, self.number, self._source, self.span)
                counts.copied += 1
            else:
                raise StoreError("a part of the upload is lost", key=upload.key)
            self._sent_revision = revision
            counts.parts += 1
            counts.resent += was_sent

    @property
    def is_stowed(self) -> bool:
        """Whether `stow` was given it as it is now."""
        return self._stowed_revision == self._revision

    async def stow(self, write: Callable[[int, Body], Awaitable[None]]) -> None:
        """Give (offset, bytes) to the disk, if it has not got them, and they are here.  Raises what `write` raises."""
        revision = self._revision
        if self._buffer is not None and not self.is_stowed:
            await write(self.start, self._buffer.body())
            self._stowed_revision = revision

    def offer(self, start: Callable[[], None]) -> None:
        """The bytes are to be stowed when the room is short: `start` begins that, and `keep` ends it."""
        if self._buffer is not None:
            self._room.offer(self, self._length, start)

    def body(self) -> list[bytes | memoryview]:
        """All of it, to be sent as an object; nothing when it is not here."""
        return [] if self._buffer is None else self._buffer.body()

    def keep(self) -> None:
        """The bytes may go when the room is needed."""
        if self._buffer is not None:
            self._room.keep(self, self._length, self.drop)

    def drop(self) -> None:
        """Let go of the bytes."""
        self._room.unkeep(self)
        if self._buffer is not None:
            self._buffer = None
            self._allowance.give(self._length)

    def check_invariants(self) -> None:
        """Raises ValueError when bytes are nowhere."""
        if self._buffer is not None and self._buffer.size != self._length:
            raise ValueError(f"part {self.number} has {self._buffer.size} bytes of {self._length}")
        if self._buffer is None and self._source is None and not self.is_sent:
            raise ValueError(f"part {self.number} is neither here nor in S3")


def covering(parts: list[StreamedPart], span: ByteRange) -> list[StreamedPart] | None:
    """Those of a range; None when one is not here."""
    found = [part for part in parts if part.span.overlaps(span)]
    covered = sum(part.span.intersection(span).length for part in found if part.is_here)
    return found if covered == span.length else None
