"""A file written in order: its parts go to S3 while it is written.

    append      fills the last part; a full one is sent by a task of the mount's, beside the writer
    patch       changes bytes of parts that are still in memory: the first, the newest, those on their way.  A part
                that S3 has is sent again under its number; beyond them it is `NotKept`
    finish      the object is there, whole and durable, or an error is raised and nothing of it is left
    abort       nothing is left

What fits one part is one PUT, so the first part is sent only when a byte comes that it does not hold, or when the
final size is known to be larger.

After `finish` the writer may go on (decision 0036): S3 copies what it has into the parts of the next upload, as soon as
there is more; less than S3's smallest part stays in memory instead and is sent again.

The first failure of a part is the writer's: every later append and `finish` raises it.

Not safe for two calls at once; `fs.draft` sees to that.  A call may be cancelled: what was appended stays, a finish
that was cut off has failed.

INVARIANT: the parts follow each other from 0 to `size` without a gap; only the last may be filled.
"""

from collections.abc import Awaitable, Callable
from functools import partial

from s3mount.core.attrs import ObjectId
from s3mount.core.ranges import ByteRange
from s3mount.core.uploads import MAX_PARTS, MIN_PART, next_part_size, plan_parts, uniform_part_size
from s3mount.errors import NotKept, ObjectTooLarge, StoreError
from s3mount.fs.part_sender import Begin, PartSender, StreamTools
from s3mount.fs.parts import StreamedPart, covering
from s3mount.fs.write_room import Allowance
from s3mount.store.writing import PLAIN, Attributes, Body, Condition, Written
from s3mount.units import MIB

#: Calls `StreamedPart.stow`, unless it has given up.
Stow = Callable[[StreamedPart], Awaitable[None]]
#: Parts that S3 has and that stay in memory: the first, whose header is patched, and the newest.
_KEPT = 2
_ZEROS = bytes(1 * MIB)  #: One step of filling.


class StreamingWriter:
    """One object being written.

    Args:
        stow: lets the disk have a part before it would be only in S3; None for never, and it may become that.

    Attributes:
        attributes: that the last finished object has.
        size: bytes written.
        declared: the final size, if it was set before the first byte.
        published: the version that S3 has of an earlier state, and that state's size.
    """

    def __init__(self, tools: StreamTools, key: str, begin: Begin = lambda _: PLAIN, stow: Stow | None = None) -> None:
        self._tools = tools
        self._key = key
        self.attributes = PLAIN
        self._sender = PartSender(tools, key, begin, self._retire)
        self.stow = stow
        self._allowance = Allowance(tools.room)
        self._parts: list[StreamedPart] = []
        self.size = self.declared = 0
        self.published: tuple[ObjectId, int] | None = None

    # -- writing --------------------------------------------------------------------------------

    async def append(self, data: bytes | memoryview) -> None:
        """Bytes at the end; waits for memory, so S3's speed is the writer's.  Raises StoreError, then for good."""
        view = memoryview(data)
        while view:
            part = self._open_part()
            await self._allowance.take(min(part.room, len(view)))
            view = self._put(part, view)

    def append_nowait(self, data: bytes | memoryview) -> bool:
        """As `append`, where it need not wait; else False, and nothing was done."""
        self.raise_failure()
        is_short = 0 < len(self._parts) < MAX_PARTS - 1 and len(data) <= MIN_PART  # it needs one part more at most
        if not (is_short and self._allowance.take_nowait(len(data))):
            return False
        view = memoryview(data)
        while view:
            view = self._put(self._open_part(), view)
        return True

    def _put(self, part: StreamedPart, view: memoryview) -> memoryview:
        piece = view[: part.room]
        part.append(piece)
        self.size += len(piece)
        if part.room == 0 and (part.number > 1 or self.declared > self.size):
            self._sender.start(part)
        return view[len(piece) :]

    def _open_part(self) -> StreamedPart:
        """The part that takes the next byte."""
        self.raise_failure()
        if not self._parts and self.published is not None:
            self._copy_published(*self.published)
        if self._parts and self._parts[-1].room and not self._parts[-1].is_busy:
            return self._parts[-1]
        if self._parts and not self._parts[-1].is_sent and not self._parts[-1].is_busy:
            self._sender.start(self._parts[-1])
        if len(self._parts) >= MAX_PARTS:
            raise ObjectTooLarge(
                "a stream has 10,000 parts; give the mount more memory, which makes them larger", key=self._key
            )
        first = self._tools.part_size
        wanted = uniform_part_size(self.declared, first) if self.declared > self.size else 0
        limit = min(wanted or next_part_size(self.size, first), max(first, self._tools.room.largest_part))
        part = StreamedPart(len(self._parts) + 1, self.size, limit, self._allowance, self._tools.room)
        self._parts.append(part)
        return part

    def _copy_published(self, version: ObjectId, size: int) -> None:
        for number, planned in enumerate(plan_parts(size, size, (), MIN_PART), 1):
            start, length = planned.span.start, planned.span.length
            part = StreamedPart(number, start, length, self._allowance, self._tools.room, version)
            self._parts.append(part)
            self._sender.start(part)

    def patch(self, offset: int, data: bytes | memoryview) -> None:
        """Other bytes in place of written ones.

        Raises:
            NotKept: some of them are not here; nothing was changed.
            StoreError: as `append`.
        """
        self.raise_failure()
        span = ByteRange(offset, offset + len(data))
        parts = covering(self._parts, span)
        if parts is None or span.stop > self.size:
            raise NotKept(f"bytes {span.start} to {span.stop} of {self._key!r} are in S3 and not here any more")
        view = memoryview(data)
        for part in parts:
            common = part.span.intersection(span)
            part.patch(common.start, view[common.start - offset : common.stop - offset])
            if part.sent is not None and not part.is_busy:
                self._sender.start(part)

    def held_in(self, span: ByteRange) -> list[tuple[int, bytes]]:
        """(offset, bytes) of what of a range is in memory, in order."""
        parts = [part for part in self._parts if part.is_here and part.span.overlaps(span)]
        return [(max(part.start, span.start), part.read(span)) for part in parts]

    async def stow_all(self, write: Callable[[int, Body], Awaitable[None]]) -> None:
        """See `StreamedPart.stow`, of all parts."""
        for part in self._parts:
            await part.stow(write)

    @property
    def has_begun(self) -> bool:
        """Whether more than memory and whole objects are concerned: parts were sent, or are."""
        return any(part.is_busy or part.sent for part in self._parts)

    # -- the end --------------------------------------------------------------------------------

    def _retire(self) -> None:
        idle = [part for part in self._parts if part.is_here and part.is_sent and not part.is_busy]
        for part in idle:
            if self.stow is None or part.is_stowed:
                part.keep()
            else:
                part.offer(partial(self._tools.nursery.start_soon, self._put_away, part, self.stow))
        for part in idle[1 : 1 - _KEPT]:
            if self.stow is None or part.is_stowed:
                part.drop()

    async def _put_away(self, part: StreamedPart, stow: Stow) -> None:
        await stow(part)
        self._retire()

    def raise_failure(self) -> None:
        """Raises StoreError if a part could not be sent, or the end failed."""
        if self._sender.failure is not None:
            raise self._sender.failure

    async def finish(self, condition: Condition, attributes: Attributes = PLAIN) -> Written:
        """Make what was written the object; a declared size is kept with zeros.

        Args:
            attributes: if no upload has begun.

        Raises:
            AlreadyExists, ObjectChanged: the condition does not hold.
            StoreError: it could not be written.  After any of them nothing is left of it, as after `abort`.
        """
        is_done = False
        try:
            while self.size < self.declared:
                await self.append(memoryview(_ZEROS)[: self.declared - self.size])
            written = await self._completed(condition, attributes)
            is_done = True
        except StoreError as error:
            self._sender.failure = self._sender.failure or error
            raise
        finally:
            if not is_done:
                await self.abort()
        self.declared = 0
        self.published = (written.id, self.size)
        if self.size >= MIN_PART:
            self._forget_parts()
        return written

    async def _completed(self, condition: Condition, attributes: Attributes) -> Written:
        self.raise_failure()
        if self.published is not None and not self._parts:
            return Written(self.published[0])  # nothing came since: without its parts an object would be empty
        if self.has_begun:
            written = await self._sender.complete([part for part in self._parts if part.span.length], condition)
            self.attributes = self._sender.attributes
            return written
        body = [piece for part in self._parts for piece in part.body()]
        self._tools.counts.puts += 1
        written = await self._tools.writer.put(self._key, body, condition, attributes)
        self.attributes = attributes
        self._tools.remember(written.id, body)
        return written

    def moved(self, version: ObjectId) -> None:
        """What was published, and what will be, has that key now."""
        if self.published is not None:
            self._key = self._sender.key = version.key
            self.published = (version, self.published[1])

    async def abort(self) -> None:
        """Let nothing be left, here or in S3, but for what is published; nothing can be written after it."""
        self._sender.failure = self._sender.failure or StoreError("the upload was given up", key=self._key)
        await self._sender.stop()
        self._forget_parts()

    def _forget_parts(self) -> None:
        for part in self._parts:
            part.drop()
        self._parts = []

    def check_invariants(self) -> None:
        """Raises ValueError when an invariant does not hold."""
        at = 0
        for number, part in enumerate(self._parts, 1):
            part.check_invariants()
            if part.number != number or part.start != at:
                raise ValueError(f"part {part.number} begins at {part.start}, not at {at}")
            at = part.span.stop
        if self._parts and at != self.size:
            raise ValueError(f"the parts have {at} bytes of {self.size}")
        if self._allowance.held != sum(part.span.length for part in self._parts if part.is_here):
            raise ValueError("the allowance is not what is held")
