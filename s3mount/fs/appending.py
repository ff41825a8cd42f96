"""What was appended to an object goes to S3 alone, where the bucket can append (decision 0058).

The object's version and size are the condition: an append after somebody else's is refused, and nothing is lost
silently.  But a refusal may also be the echo of an append that was done and whose answer was lost, or that a daemon
did which died before it noted it.  Appended bytes carry no token, as objects do, so then the object tells: it has a
size that an attempt would have left, and ends with the same bytes.
"""

from collections.abc import Awaitable, Callable, Collection

from s3mount.core.attrs import ObjectId, ObjectStat
from s3mount.core.ranges import ByteRange, split
from s3mount.errors import ObjectChanged, ObjectNotFound
from s3mount.store.bodies import PieceStream
from s3mount.store.writing import Body, Condition, Writer, Written, size_of
from s3mount.units import MIB

#: What is compared at once.
_STEP = 1 * MIB


class Appender:
    """Appends for one mount.

    Args:
        read: bytes of one version.

    Attributes:
        appended: requests that were done, since the start.
    """

    def __init__(self, writer: Writer, read: Callable[[ObjectId, ByteRange], Awaitable[bytes]]) -> None:
        self._writer = writer
        self._read = read
        self.appended = 0

    async def append(self, version: ObjectId, offset: int, body: Body, tried: Collection[int] = ()) -> Written:
        """The object with more bytes at its end.

        Args:
            version: that ends at the offset.
            tried: sizes that earlier appends to this version, whose end is not known, would have left.

        Raises:
            ObjectChanged: there is another version.
            ObjectTooLarge: nothing can be appended to it any more; rewritten it can be.
            StoreError.
        """
        try:
            written = await self._writer.put(version.key, body, Condition(version.etag), offset=offset)
        except ObjectChanged as refusal:
            sizes = {*tried, offset + size_of(body)} if refusal.is_in_doubt else tried
            found = await self._begun(version.key, offset, body, sizes) if sizes else None
            if found is None:
                raise
            rest = _from(body, found.size - offset)
            written = Written(found.id, found.mtime_s)
            if rest:
                written = await self._writer.put(version.key, rest, Condition(found.etag), offset=found.size)
        self.appended += 1
        return written

    async def _begun(self, key: str, offset: int, body: Body, sizes: Collection[int]) -> ObjectStat | None:
        """What is there, if it has one of the sizes, and ends with the first of the bytes, or all."""
        sent = PieceStream(body)
        try:
            found = (await self._writer.describe(key)).stat
            if found.size not in sizes or not offset < found.size <= offset + size_of(body):
                return None
            for step in split(ByteRange(offset, found.size), _STEP):
                if await self._read(found.id, step) != sent.read(step.length):
                    return None
        except (ObjectChanged, ObjectNotFound):
            return None
        return found


def _from(body: Body, start: int) -> Body:
    """What comes behind so many bytes."""
    rest = []
    for piece in body:
        rest.append(memoryview(piece)[start:])
        start = max(0, start - len(piece))
    return [piece for piece in rest if piece]
