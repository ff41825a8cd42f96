"""Multipart uploads that a crash left: found by this host's records alone, listed, and aborted when it is asked for.

S3's own listing is never asked: it has the uploads of other hosts, too, and those are alive.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from s3mount.errors import S3MountError
from s3mount.fs.listener import Listener
from s3mount.fs.upload_records import LeftUpload, UploadRecords
from s3mount.store.writing import Upload, Writer
from s3mount.units import counted

log = logging.getLogger(__name__)


@dataclass
class UploadCounts:
    """Of one run: uploads that were left, of those aborted, and those that were told to have failed."""

    uploads: int = 0
    aborted: int = 0
    failed: int = 0


class LeftUploads:
    """What nobody works on any more.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, records: UploadRecords, writer: Writer, clock: Callable[[], float]) -> None:
        self._records = records
        self._writer = writer
        self._clock = clock

    async def report(self, listener: Listener, *, is_aborting: bool) -> UploadCounts:
        """Tell of each, and abort it if that is asked for.

        Raises:
            SpoolFailed: the records cannot be read.
        """
        counts = UploadCounts()
        for left in await self._records.left():
            counts.uploads += 1
            key, upload_id, began_s = left.upload.key, left.upload.upload_id, left.upload.began_s
            error = await self._aborted(left) if is_aborting else None
            if error is not None:
                counts.failed += 1
                await listener.tell("failed", path=key, reason=f"upload {upload_id} is left: {error}")
                continue
            counts.aborted += is_aborting
            age_s = max(0, int(self._clock()) - began_s)
            await listener.tell("upload", key=key, upload_id=upload_id, age_s=age_s, is_aborted=is_aborting)
        return counts

    async def _aborted(self, left: LeftUpload) -> S3MountError | None:
        """What went wrong."""
        try:
            await self._writer.abort(Upload(left.upload.key, left.upload.upload_id))
            await self._records.forget(left)
        except S3MountError as error:
            return error
        return None

    async def at_start(self, *, is_aborting: bool) -> None:
        """Say in the log what is left; abort it if that is configured."""
        try:
            counts = await self.report(_Log(), is_aborting=is_aborting)
        except S3MountError as error:
            log.warning("it is not known which uploads were left: %s", error)
            return
        if counts.aborted:
            log.info("aborted %s that dead daemons left", counted(counts.aborted, "upload"))
        elif counts.uploads and not is_aborting:
            log.info(
                "%s left of daemons that died, and paid for: s3mountctl uploads, or --abort-uploads",
                counted(counts.uploads, "upload"),
            )


class _Log:
    """A listener that only wants to know what failed."""

    def progress(self, **facts: object) -> None:
        """Nobody waits."""

    async def tell(self, event: str, **facts: object) -> None:
        if event == "failed":
            log.warning("%r: %s", facts["path"], facts["reason"])
