"""What was appended to an object goes to S3 alone, where the bucket can append (decision 0058).

The object's version and size are the condition: an append after somebody else's is refused, and nothing is lost
silently.  But a refusal may also be the echo of an append that was done and whose answer was lost, or that a daemon
did which died before it noted it.  Appended bytes carry no token, as objects do, so then the object tells: it has a
size that an attempt would have left, and ends with the same bytes.
"""

from collections.abc import Awaitable, Callable, Collection

from s3mount.core.attrs import ObjectId, ObjectStat
from s3mount.core.ranges import ByteRange
from s3mount.errors import ObjectChanged, ObjectNotFound
from s3mount.store.writing import Body, Condition, Writer, Written


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
            whole = b"".join(body)
            sizes = {*tried, offset + len(whole)} if refusal.is_in_doubt else tried
            found = await self._begun(version.key, offset, whole, sizes) if sizes else None
            if found is None:
                raise
            rest = whole[found.size - offset :]
            written = Written(found.id, found.mtime_s)
            if rest:
                written = await self._writer.put(version.key, [rest], Condition(found.etag), offset=found.size)
        self.appended += 1
        return written

    async def _begun(self, key: str, offset: int, whole: bytes, sizes: Collection[int]) -> ObjectStat | None:
        """What is there, if it has one of the sizes, and ends with the first of the bytes, or all."""
        try:
            found = (await self._writer.describe(key)).stat
            if found.size not in sizes or not offset < found.size <= offset + len(whole):
                return None
            there = await self._read(found.id, ByteRange(offset, found.size))
        except (ObjectChanged, ObjectNotFound):
            return None
        return found if whole.startswith(there) else None
