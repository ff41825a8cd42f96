"""What was appended to an object goes to S3 alone, where the bucket can append (decision 0063).

The object's version and size are the condition: an append after somebody else's is refused, and nothing is lost
silently.  But a refusal may also be the echo of an append that was done and whose answer was lost, or that a daemon
did which died before it noted it.  Appended bytes carry no token, as objects do, so then the end of the object tells:
it has the right size, and the same bytes.
"""

from collections.abc import Awaitable, Callable

from s3mount.core.attrs import ObjectId
from s3mount.core.ranges import ByteRange
from s3mount.errors import ObjectChanged, ObjectNotFound
from s3mount.store.writing import Body, Condition, Writer, Written, size_of


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

    async def append(self, version: ObjectId, offset: int, body: Body, *, may_be_done: bool) -> Written:
        """The object with more bytes at its end.

        Args:
            version: that ends at the offset.
            may_be_done: another daemon may have appended just these bytes for this mount.

        Raises:
            ObjectChanged: there is another version.
            ObjectTooLarge: nothing can be appended to it any more; rewritten it can be.
            StoreError.
        """
        try:
            written = await self._writer.put(version.key, body, Condition(version.etag), offset=offset)
        except ObjectChanged as refusal:
            done = await self._done(version.key, offset, body) if refusal.is_in_doubt or may_be_done else None
            if done is None:
                raise
            written = done
        self.appended += 1
        return written

    async def _done(self, key: str, offset: int, body: Body) -> Written | None:
        """The version that is there, if it ends with the bytes."""
        span = ByteRange(offset, offset + size_of(body))
        try:
            found = (await self._writer.describe(key)).stat
            if found.size != span.stop or await self._read(found.id, span) != b"".join(body):
                return None
        except (ObjectChanged, ObjectNotFound):
            return None
        return Written(found.id, found.mtime_s)
