"""Uploads that follow a close: of what was acknowledged, here or by a daemon that is dead.

    last close of an append      the upload comes `SETTLE_S` after the first close that waits for one
    opened again to append       the same draft goes on, and the upload comes at its time
    the daemon dies              the next one finds the journal, and uploads at once

An upload that fails is tried again, for as long as it may pass.  One that is refused (the object was changed by
somebody else, the permission is gone) is left in the spool, with an error that names the file: nothing that was
acknowledged is thrown away.  Another start tries it again.

INVARIANT: one task at most uploads a draft.
"""

import logging
from collections.abc import Awaitable, Callable

import trio

from s3mount.core.attrs import ObjectStat
from s3mount.errors import S3MountError, StoreError
from s3mount.fs.draft import Draft
from s3mount.fs.draft_content import DraftTools
from s3mount.fs.spooled import SpooledContent
from s3mount.store.retries import may_pass

log = logging.getLogger(__name__)

#: Seconds from the first close of an append to its upload: with that, a HEAD and a PUT, about one.
SETTLE_S = 0.7
#: Seconds between uploads that fail, at first and at most.
_RETRY_S = 1.0
_MAX_RETRY_S = 30.0


class Settler:
    """The uploads that follow.

    Args:
        nursery: the mount's.
        ended: called with a draft that nothing follows any more.

    Attributes:
        refused: drafts that S3 did not take, since the start.
    """

    def __init__(self, nursery: trio.Nursery, ended: Callable[[Draft], Awaitable[None]]) -> None:
        self._nursery = nursery
        self._ended = ended
        self._drafts: dict[Draft, None] = {}
        self.refused = 0

    def __contains__(self, draft: Draft) -> bool:
        """Whether an upload of it follows."""
        return draft in self._drafts

    def follow(self, draft: Draft, after_s: float = SETTLE_S) -> None:
        """Upload a draft that is acknowledged, unless that follows already."""
        if draft not in self._drafts:
            self._drafts[draft] = None
            self._nursery.start_soon(self._upload, draft, after_s)

    async def _upload(self, draft: Draft, after_s: float) -> None:
        pause_s = _RETRY_S
        try:
            await trio.sleep(after_s)
            while draft.is_acknowledged:
                try:
                    await draft.fsync()
                except S3MountError as error:
                    if not (isinstance(error, StoreError) and may_pass(error)):
                        self._note_refusal(draft, error)
                        break
                    await trio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _MAX_RETRY_S)
        finally:
            del self._drafts[draft]
            with trio.CancelScope(shield=True):
                await self._ended(draft)

    def _note_refusal(self, draft: Draft, error: S3MountError) -> None:
        self.refused += 1
        log.error("what was appended to %s is kept there, and is not in S3: %s", draft, error)


async def recovered(tools: DraftTools, is_known: Callable[[str], bool]) -> list[Draft]:
    """What dead daemons had acknowledged, oldest first.

    Args:
        is_known: whether there is a draft of a key already; then what was found is left on disk.

    Raises:
        SpoolFailed: the spool's disk.
    """
    drafts: dict[str, Draft] = {}
    for file, record in await tools.spool.spool.recover():
        if record.key in drafts or is_known(record.key):
            log.error("%s holds another state of %r; it is left there", file.path, record.key)
            file.abandon()
            tools.losses.add(record.key, is_spooled=True)
            continue
        base = ObjectStat(record.key, record.base_etag, record.base_size, 0)
        content = SpooledContent(tools.spool, base, file, record.extents)
        drafts[record.key] = Draft(tools, record.key, base, recovered=(content, record.mark))
    return list(drafts.values())
