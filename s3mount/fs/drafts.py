"""All files being written, by key: every handle on a file shares one draft.

A draft is there from the first handle that may write to the last handle of any kind, and while it is acknowledged and
not in S3: small appends are not uploaded one by one (decision 0038, fs.settling).  An fsync, a rename, and an open
that does not append bring the upload at once.

INVARIANT: no two drafts of `find` have the same key; an orphan is never found.
INVARIANT: a draft without users is acknowledged, or was a moment ago.
"""

import logging
from dataclasses import dataclass
from typing import NamedTuple

import trio

from s3mount.core.attrs import ObjectStat
from s3mount.errors import AlreadyExists, S3MountError
from s3mount.fs.draft import Copy, Draft
from s3mount.fs.draft_content import DraftTools
from s3mount.fs.settling import Settler, recovered
from s3mount.store.writing import PLAIN, Attributes

log = logging.getLogger(__name__)


class Opening(NamedTuple):
    """How a file is opened to be written.

    Attributes:
        is_random: it may be read, or written elsewhere than at its end: O_RDWR.
        is_append: O_APPEND.
        is_truncating: O_TRUNC, or the file is new.
        is_exclusive: O_EXCL.
    """

    is_random: bool = False
    is_append: bool = False
    is_truncating: bool = False
    is_exclusive: bool = False


@dataclass(frozen=True)
class DraftStatistics:
    """Files being written, of which streams, of which acknowledged and not in S3; refused since the start."""

    drafts: int
    streams: int
    acknowledged: int
    refused: int


class Drafts:
    """The files of one mount that are being written.

    Args:
        nursery: the mount's; uploads that follow a close run in it.

    Attributes:
        has_ended: set, and made anew, when a draft is let go of; stamps, losses, spool: of the tools.
    """

    def __init__(self, tools: DraftTools, nursery: trio.Nursery) -> None:
        self._tools = tools
        self._drafts: dict[str, Draft] = {}
        self._orphans: dict[Draft, None] = {}
        self.stamps, self.losses, self.spool, self.has_ended = tools.stamps, tools.losses, tools.spool, trio.Event()
        self._settler = Settler(nursery, self._end)

    def find(self, key: str) -> Draft | None:
        """The draft of a key, to be looked at."""
        return self._drafts.get(key)

    def below(self, prefix: str) -> list[Draft]:
        """All drafts whose keys start with a prefix."""
        return [draft for key, draft in self._drafts.items() if key.startswith(prefix)]

    # -- opening and closing --------------------------------------------------------------------

    async def open(self, key: str, found: ObjectStat | None, opening: Opening, attributes: Attributes = PLAIN) -> Draft:
        """One more handle that may write; pair it with `release`.

        Args:
            found: the version that S3 has now; None where there is none.
            attributes: of the object, if it is made or replaced.

        Raises:
            AlreadyExists: there is one, and the opening is exclusive.
            NotKept, SpoolFull, SpoolFailed, StoreError: what is being written cannot be opened like that.
        """
        draft = self._drafts.get(key)
        if opening.is_exclusive and (draft is not None or found is not None):
            raise AlreadyExists("there is one", key=key, operation="open")
        if draft is None:
            draft = self._drafts[key] = Draft(
                self._tools,
                key,
                found,
                is_empty=found is None or opening.is_truncating,
                is_in_order=self._may_stream(opening),
                is_exclusive=opening.is_exclusive,
                attributes=attributes,
            )
            draft.users = 1
        else:
            await self._join(draft, opening)
        return draft

    def _may_stream(self, opening: Opening) -> bool:
        """Whether it may be written in order; with O_RDWR, too: safetensors sets the size, and writes to the end."""
        return not opening.is_append and (self._tools.keeps_streamed or not opening.is_random)

    async def _join(self, draft: Draft, opening: Opening) -> None:
        draft.users += 1
        is_open = False
        try:
            if draft.is_acknowledged and not opening.is_append:
                await draft.fsync()
            if opening.is_truncating:
                await draft.truncate(0)
            if opening.is_random:
                await draft.leave_stream()
            is_open = True
        finally:
            if not is_open:
                draft.users -= 1
                with trio.CancelScope(shield=True):
                    await self._end(draft)

    async def open_to_read(self, key: str) -> Draft | None:
        """One more handle on what is being written, if anything is; pair it with `release`.

        Raises:
            StoreError: what was acknowledged could not be written to S3.
        """
        draft = self._drafts.get(key)
        if draft is not None:
            await self._join(draft, Opening())
        return draft

    async def flush(self, draft: Draft) -> None:
        """A descriptor is closed, and it may be the last: what was written is safe when this returns.

        Raises:
            As `Draft.flush`.
        """
        await draft.flush()
        if draft.is_acknowledged:
            self._settler.follow(draft)

    async def release(self, draft: Draft) -> None:
        """A handle is gone.

        Raises:
            As `flush`: something was written after the last one, or it had failed.  Then it is lost.
        """
        draft.users -= 1
        if draft.users:
            return
        try:
            await self.flush(draft)
        finally:
            with trio.CancelScope(shield=True):
                await self._end(draft)

    async def _end(self, draft: Draft) -> None:
        """Let go of a draft that nobody uses and that nothing follows."""
        if draft.users == 0 and draft not in self._settler and not draft.is_closed:
            if self._drafts.get(draft.key) is draft:
                del self._drafts[draft.key]
            self._orphans.pop(draft, None)
            await draft.close()
            self.has_ended.set()
            self.has_ended = trio.Event()

    # -- names ----------------------------------------------------------------------------------

    async def rename(self, old_key: str, copy: Copy) -> None:
        """Copy an object that is being written to another key: handles on it write to that from now on.

        What was written before is in the copy; what is written meanwhile waits.

        Raises:
            KeyError: there is no draft.  And as `Draft.move`.
        """
        draft = self._drafts[old_key]
        await draft.move(copy)
        await self.unlink(draft.key)
        if self._drafts.pop(old_key, None) is draft:
            self._drafts[draft.key] = draft

    async def unlink(self, key: str) -> None:
        """The name is gone, whatever S3 has: what is written through open handles is read by them, and dropped."""
        self._tools.losses.forget(key)
        draft = self._drafts.pop(key, None)
        if draft is not None:
            self._orphans[draft] = None
            await draft.orphan()
            await self._end(draft)

    # -- start and stop -------------------------------------------------------------------------

    async def recover(self) -> int:
        """Take over what dead daemons had acknowledged, and upload it; returns how many files.

        Raises: SpoolFailed.
        """
        found = await recovered(self._tools, self._drafts.__contains__)
        for draft in found:
            self._drafts[draft.key] = draft
            self._settler.follow(draft, after_s=0.0)
        return len(found)

    async def finish(self) -> list[str]:
        """Make everything durable, for a stop; returns the keys of what could not, now or earlier."""
        for key, draft in list(self._drafts.items()):
            try:
                await draft.fsync()
            except S3MountError as error:
                log.warning("%r is not in S3: %s", key, error)
                self._tools.losses.add(key)
        return self._tools.losses.told()

    async def close(self) -> None:
        """Let go of every draft; what is acknowledged stays on disk."""
        for draft in [*self._drafts.values(), *self._orphans]:
            draft.users = 0
            if not draft.is_closed:
                await draft.close()
        self._drafts.clear()
        self._orphans.clear()

    def statistics(self) -> DraftStatistics:
        """A snapshot of the counters."""
        drafts = self._drafts.values()
        streams = sum(draft.is_stream for draft in drafts)
        return DraftStatistics(
            len(drafts), streams, sum(draft.is_acknowledged for draft in drafts), self._settler.refused
        )

    def check_invariants(self) -> None:
        """Raises ValueError when an invariant of the module does not hold."""
        for key, draft in self._drafts.items():
            draft.check_invariants()
            if draft.key != key or draft.is_orphan:
                raise ValueError(f"{draft.key!r} is filed under {key!r}")
            if draft.users < 0 or not (draft.users or draft.is_acknowledged or draft in self._settler):
                raise ValueError(f"{key!r} has {draft.users} users and is not acknowledged")
        if any(not draft.is_orphan or not (draft.users or draft in self._settler) for draft in self._orphans):
            raise ValueError("a draft is an orphan without a user, or with a name")
