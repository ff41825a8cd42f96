"""A patient writer that has every multipart upload recorded before S3 can have a part of it.

    create_upload     recorded when its answer is there; the caller gets the id after that
    complete, abort   taken out when S3 says that the upload is gone
    abort that fails  stays, as one that nobody works on any more

What is not recorded: an upload whose creation S3 did and whose answer did not come here, because it was lost or because
the daemon died in that moment.  It has no parts, so nothing is paid for it.
"""

from collections.abc import Sequence
from typing import Protocol

from s3mount.errors import UploadNotFound
from s3mount.store.patient_writer import PatientWriter
from s3mount.store.retries import Retries
from s3mount.store.writing import ANYTHING, PLAIN, Attributes, Condition, Part, Upload, Writer, Written


class UploadLog(Protocol):
    """Where uploads are recorded; never fails, and is not cut short by a cancellation."""

    async def began(self, upload: Upload) -> None:
        """There is an upload; a later daemon knows of it when this returns."""
        ...

    def gave_up(self, upload: Upload) -> None:
        """Nobody works on it any more, and S3 may still have it."""
        ...

    async def ended(self, upload: Upload) -> None:
        """S3 does not have it any more."""
        ...


class RecordingWriter(PatientWriter):
    """A `Writer` that gives up late, and has uploads recorded.

    Args:
        log: told of each.
    """

    def __init__(self, writer: Writer, retries: Retries, last: Writer | None = None, *, log: UploadLog) -> None:
        super().__init__(writer, retries, last)
        self._log = log

    async def create_upload(self, key: str, attributes: Attributes = PLAIN) -> Upload:
        """See `Writer.create_upload`."""
        upload = await super().create_upload(key, attributes)
        await self._log.began(upload)
        return upload

    async def complete(self, upload: Upload, parts: Sequence[Part], condition: Condition = ANYTHING) -> Written:
        """See `Writer.complete`."""
        try:
            written = await super().complete(upload, parts, condition)
        except UploadNotFound:
            await self._log.ended(upload)
            raise
        await self._log.ended(upload)
        return written

    async def abort(self, upload: Upload) -> None:
        """See `Writer.abort`."""
        self._log.gave_up(upload)
        await super().abort(upload)
        await self._log.ended(upload)
