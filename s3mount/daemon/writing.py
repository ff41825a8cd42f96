"""What a mount that may be written to has beside the rest: brought to its end (daemon.write_wiring puts it together).

End: who writes gets time to close; what is not in S3 then is saved as it is, as a local file system keeps what a
program wrote before it was killed.  Both are bounded, and the log says what is waited for.
"""

import logging
import math
from collections.abc import Callable

import trio

from s3mount.errors import StoreError
from s3mount.fs.drafts import Drafts
from s3mount.fs.handles import HandleTable
from s3mount.fs.left_uploads import LeftUploads
from s3mount.fs.namespace import Namespace
from s3mount.fs.repeated_files import RepeatedFiles
from s3mount.fs.upload_records import UploadRecords
from s3mount.store.attempts import Attempts

log = logging.getLogger(__name__)

#: Seconds that programs get to close what they write when the mount ends, and then uploads to end.
_CLOSE_S = 20.0
_SAVE_S = 60.0
_SAVE_AGAIN_S = 1.0
#: Seconds for uploads before another daemon serves, while nobody does.
_HAND_OVER_S = 5.0
#: What `finish` may take.
FINISH_S = _CLOSE_S + _SAVE_S
_SAID_EVERY_S = 5.0
#: Names in one line of the log.
_MANY = 5


class Writing:
    """Everything that writes.

    Attributes:
        attempts: its requests.
        is_saved: S3 had everything when the last `save` ended.
        statistics: what counts, by a name for the log.
    """

    def __init__(
        self,
        files: RepeatedFiles,
        names: Namespace,
        drafts: Drafts,
        attempts: Attempts,
        records: UploadRecords,
        left: LeftUploads,
        handles: HandleTable,
        statistics: dict[str, Callable[[], object]],
    ) -> None:
        self.files = files
        self.names = names
        self._drafts = drafts
        self.attempts = attempts
        self._records = records
        self.left = left
        self._handles = handles
        self.statistics = statistics
        self.is_saved = True
        self._was_refused = False
        self._save_until = math.inf

    @property
    def unsaved(self) -> list[str]:
        """Keys of the files that programs write."""
        return [draft.key for draft in self._drafts.below("") if draft.is_unsaved and draft.users]

    def obstacle(self) -> str:
        """Why no other daemon may take over now: it would not have the files that are open to be written."""
        drafts = self._drafts.below("")
        keys = [each.key for each in drafts if each.users or (each.is_unsaved and not each.is_acknowledged)]
        if keys:
            return f"programs have files open to write them, close them first: {_some(keys)}"
        return "programs are opening files to write them; try again" if self._handles.n_opening else ""

    async def finish(self) -> None:
        """Wait for who writes, and save what is not in S3."""
        until = trio.current_time() + _CLOSE_S
        while (keys := self.unsaved) and trio.current_time() < until:
            log.info("waiting for files that are being written: %s", _some(keys))
            with trio.move_on_after(_SAID_EVERY_S):
                await self._drafts.has_ended.wait()
        self._save_until = trio.current_time() + _SAVE_S
        await self.save()

    async def save(self) -> None:
        """Save what is not in S3 as it is; after `finish` there is little time left for it."""
        limit_s = min(_SAVE_S, max(_SAVE_AGAIN_S, self._save_until - trio.current_time()))
        self.is_saved = False
        with trio.move_on_after(limit_s) as limit:
            await self._remove()
            failed = await self._drafts.finish()
            if failed:
                log.error("not in S3: %s", _some(failed))
            self.is_saved = not failed and not self._was_refused
        if limit.cancelled_caught:
            log.error("uploads did not end within %g s: %s", limit_s, _some(self.unsaved))

    async def _remove(self) -> None:
        try:
            await self.names.sync()
        except StoreError as error:  # said once, by whatever settles first
            log.warning("not all that was removed is gone in S3, or has the attributes that were set: %s", error)
            self._was_refused = True

    async def hand_over(self) -> None:
        """Another daemon goes on.  What is not uploaded soon it finds in the spool; a removal that came late could
        remove what was made under the name meanwhile, so that is waited for."""
        await self._remove()
        with trio.move_on_after(_HAND_OVER_S):
            await self._drafts.finish()
        await self._drafts.close()

    async def close(self) -> None:
        """Let go of everything; uploads that go on are aborted."""
        await self._drafts.close()
        await self._records.close()


def _some(keys: list[str]) -> str:
    shown = ", ".join(repr(key) for key in keys[:_MANY])
    return shown if len(keys) <= _MANY else f"{shown} and {len(keys) - _MANY} more"
