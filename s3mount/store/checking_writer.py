"""A writer for servers that have no conditions, too.

S3 refuses a write whose condition does not hold.  Some compatible servers answer 501 to the condition itself, and
nothing could be written to them.  There the condition is looked at by a HEAD, and the write is made without it: who
wrote between the two is overwritten, and nobody is told.  A server that ignores conditions looks like one that keeps
them.  Appends by offset are not made up for: a bucket that has these has conditions.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence

from s3mount.errors import AlreadyExists, NotSupported, ObjectChanged, ObjectNotFound
from s3mount.store.recording_writer import RecordingWriter, UploadLog
from s3mount.store.retries import Retries
from s3mount.store.writing import ANYTHING, PLAIN, Attributes, Body, Condition, Part, Upload, Writer, Written

log = logging.getLogger(__name__)


class CheckingWriter(RecordingWriter):
    """A `Writer` whose conditions hold as far as the server can."""

    def __init__(self, writer: Writer, retries: Retries, last: Writer | None = None, *, log: UploadLog) -> None:
        super().__init__(writer, retries, last, log=log)
        self._has_none = False

    async def put(
        self, key: str, body: Body, condition: Condition = ANYTHING, attributes: Attributes = PLAIN, offset: int = 0
    ) -> Written:
        """See `Writer.put`."""
        put = super().put
        if offset:
            return await put(key, body, condition, attributes, offset)
        return await self._under(condition, key, "PutObject", lambda kept: put(key, body, kept, attributes))

    async def complete(self, upload: Upload, parts: Sequence[Part], condition: Condition = ANYTHING) -> Written:
        """See `Writer.complete`."""
        complete = super().complete
        return await self._under(
            condition, upload.key, "CompleteMultipartUpload", lambda kept: complete(upload, parts, kept)
        )

    async def _under(
        self, condition: Condition, key: str, operation: str, write: Callable[[Condition], Awaitable[Written]]
    ) -> Written:
        if condition == ANYTHING or not self._has_none:
            try:
                return await write(condition)
            except NotSupported:
                if condition == ANYTHING:
                    raise
        await self._check(condition, key, operation)
        written = await write(ANYTHING)
        if not self._has_none:
            self._has_none = True  # only now it is known that this was what the server does not have
            log.warning("the server has no conditions: of two hosts that write one file at once, one is not told")
        return written

    async def _check(self, condition: Condition, key: str, operation: str) -> None:
        try:
            etag = (await self.describe(key)).stat.etag
        except ObjectNotFound:
            etag = ""
        if condition.is_new and etag:
            raise AlreadyExists("there is one", key=key, operation=operation)
        if condition.etag and etag != condition.etag:
            raise ObjectChanged("another version is there", key=key, operation=operation)
