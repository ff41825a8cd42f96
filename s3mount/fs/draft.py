"""The unsaved content of one file: what every handle on it writes, reads and cuts off, until S3 has it.

    unsaved       S3 does not have it                                              fsync, close: publish
    acknowledged  unsaved, but safe in the spool's journal: only appends came      an upload follows soon
    saved         S3 has it; the next write makes it unsaved again, over the version that was written

What S3 refuses (decision 0037): a stream is over, its next calls raise what was the matter until it is cut
off to nothing; a spooled file is as it was, the next fsync or close tries again; what was acknowledged stays on disk.

INVARIANT: one call at a time changes it or makes it durable; a write waits for the upload of those before it.
INVARIANT: what is acknowledged was only appended to since it was saved, and is spooled.
INVARIANT: every object is written with the condition that nobody else wrote the key since `base` was seen.
"""

import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable

import trio

from s3mount.core.attrs import ObjectStat
from s3mount.errors import AlreadyExists, ObjectChanged, ObjectNotFound, S3MountError, SpoolFailed, SpoolFull
from s3mount.fs.draft_attributes import DraftAttributes, own_write
from s3mount.fs.draft_content import DraftContent, DraftTools
from s3mount.fs.spooled import SpooledContent
from s3mount.store.writing import NEW, PLAIN, Attributes, Condition, Written

log = logging.getLogger(__name__)

#: To another key; returns what is there then.
Copy = Callable[[ObjectStat], Awaitable[ObjectStat]]


class Draft:
    """One file being written.

    Args:
        base: the version it replaces or begins as; None for a new file.
        is_empty: it begins with nothing, whatever the base has.  is_in_order: so it is written, and streamed if empty.
        is_exclusive: a new one that somebody else made first is `AlreadyExists`, not `ObjectChanged`.
        recovered: content that another daemon had acknowledged, and its mark.

    Attributes:
        users: handles on it.  is_unsaved, is_acknowledged: see the module.  mtime_s: whole seconds since the epoch.
        is_orphan: its name is gone; it is never published.  is_over_existing: it began as a version that was there.
        is_closed: it is of no use any more.  is_superseded: what is unsaved was refused, since somebody else was first.
    """

    def __init__(
        self,
        tools: DraftTools,
        key: str,
        base: ObjectStat | None,
        *,
        is_empty: bool = False,
        is_in_order: bool = False,
        is_exclusive: bool = False,
        attributes: Attributes = PLAIN,
        recovered: tuple[SpooledContent, str] | None = None,
    ) -> None:
        self._tools = tools
        self.key, self.base = key, base
        self._is_exclusive = is_exclusive
        self._attributes = DraftAttributes(tools.stamps, attributes, None if base is None or is_empty else key)
        spooled, self._mark = recovered or (SpooledContent(tools.spool, None if is_empty else base), "")
        is_stream = is_empty and is_in_order
        self._content = DraftContent(tools, key, spooled, self._attributes.begin, is_stream=is_stream)
        self._lock = trio.Lock()
        self.is_over_existing = self._is_appended = base is not None and not is_empty
        self.users, self.is_acknowledged = 0, recovered is not None
        self.is_unsaved = is_empty or base is None or self.is_acknowledged
        self.is_orphan = self.is_closed = self.is_superseded = False
        self.mtime_s = base.mtime_s if base and not self.is_unsaved else int(tools.clock())

    @property
    def size(self) -> int:
        """Bytes of the file now."""
        return self._content.size

    @property
    def is_stream(self) -> bool:
        """Whether its parts go to S3 while it is written."""
        return self._content.is_stream

    def __str__(self) -> str:
        return f"{self.key!r} ({self._content.spooled.where})"

    # -- changing and reading it ----------------------------------------------------------------

    async def write(self, offset: int, data: bytes | memoryview) -> None:
        """Bytes at an offset.  Raises as `DraftContent.write`."""
        async with self._lock:
            await self._changing()
            await self._content.write(offset, data)

    def append_nowait(self, offset: int, data: bytes) -> bool:
        """As `write`, where it is in order and need not wait; else False, and nothing was done."""
        if self._lock.locked() or self.is_acknowledged or not self._content.append_nowait(offset, data):
            return False
        self._touch()
        return True

    async def append(self, data: bytes | memoryview) -> int:
        """Bytes at the end, wherever that is; returns where it was.  Raises as `write`."""
        async with self._lock:
            offset = self.size
            self._touch()
            await self._content.write(offset, data)
            return offset

    async def truncate(self, size: int) -> None:
        """The file has that size now.  Raises as `write`."""
        async with self._lock:
            if size != self.size:
                await self._changing()
                await self._content.truncate(size)

    async def _changing(self) -> None:
        """What was acknowledged is in S3 before anything but an append happens to it."""
        if self.is_acknowledged:
            await self._publish()
        self._is_appended = False
        self._touch()

    def _touch(self) -> None:
        self.is_unsaved, self.mtime_s = True, int(self._tools.clock())

    async def leave_stream(self) -> None:
        """Be a spooled file: who opens it may write anywhere.  Raises as `write`."""
        async with self._lock:
            await self._content.leave_stream()

    async def read(self, offset: int, length: int) -> bytes:
        """Bytes as they were written; fewer at the end.  Raises as `DraftContent.read`."""
        async with self._lock:
            return await self._content.read(offset, length)

    async def hold(self) -> None:
        """Its name, and so its base, is about to go: who has it open reads on, if the base can be had."""
        async with self._lock:
            with contextlib.suppress(S3MountError):
                await self._content.spooled.hold()

    # -- making it durable ----------------------------------------------------------------------

    async def fsync(self) -> None:
        """S3 has the file as it is now, whole; nothing if it had.

        Raises AlreadyExists: somebody else made it, and it `is_exclusive`; ObjectChanged: or wrote it; StoreError.
        """
        async with self._lock:
            await self._publish()

    async def flush(self) -> None:
        """A handle is closed: make it durable as `fsync` does, or what was appended to an object in the spool."""
        async with self._lock:
            if not self.is_unsaved or self.is_orphan:
                return
            if not self._is_appended:
                await self._publish()
                return
            mark = secrets.token_hex(8)
            await self._content.spooled.keep(self.key, mark)
            self._mark, self.is_acknowledged = mark, True
            self._tools.watch.acknowledged(self)

    async def _publish(self) -> None:
        if self.is_unsaved and not self.is_orphan:
            written, attributes = await self._written()
            self.mtime_s = int(self._tools.clock()) if written.mtime_s is None else written.mtime_s
            self.is_unsaved = self.is_superseded = self._is_exclusive = False
            self._is_appended = not self.is_stream
            kind = attributes.storage_class if attributes else ""
            self._based_on(ObjectStat(self.key, written.id.etag, self.size, self.mtime_s, kind), attributes)
            await self._forget()
        if self.base is not None and not self.is_orphan and self._tools.stamps.is_pending(self.key):
            self._based_on(*await self._tools.stamps.copied(self.key, self.base))

    def _based_on(self, base: ObjectStat, attributes: Attributes | None = None) -> None:
        """S3 has it as it is, as this version."""
        self.base, self.key = base, base.key
        self._content.published(base)
        self._tools.losses.forget(self.key)
        self._tools.watch.saved(self)
        if attributes is not None:
            self._attributes.made(attributes)
            self._tools.stamps.made(self.key, base, attributes)

    async def _forget(self) -> None:
        if self.is_acknowledged:
            self.is_acknowledged = False
            try:
                await self._content.spooled.forget()
            except (SpoolFull, SpoolFailed) as error:  # who finds the journal sees the mark in S3
                log.warning("the journal of %r stays: %s", self.key, error)

    async def _written(self) -> tuple[Written, Attributes | None]:
        mark, attributes = self._mark if self.is_acknowledged else "", None
        try:
            if (appended := await self._content.publish_appended()) is not None:
                return appended, None
            attributes = await self._attributes.publish(self._tools.spool.streams.writer, self.key, mark)
            return await self._content.publish(self._condition, attributes)
        except (AlreadyExists, ObjectChanged) as refusal:
            ours = await own_write(self._tools.spool.streams.writer, self.key, mark, self.size) if mark else None
            if ours is not None:
                return ours, attributes
            self.is_superseded = True
            if isinstance(refusal, ObjectChanged) or self._is_exclusive:
                raise
            raise ObjectChanged("somebody else made it", key=self.key, operation=refusal.operation) from refusal

    @property
    def _condition(self) -> Condition:
        return NEW if self.base is None else Condition(self.base.etag)

    # -- its name and its end -------------------------------------------------------------------

    async def move(self, copy: Copy) -> None:
        """Give it another key: the object is made durable, then copied, and nothing is written meanwhile.

        Raises as `fsync` and `copy`: it has the key it had; ObjectNotFound: it has none any more.
        """
        async with self._lock:
            await self._publish()
            if self.base is None or self.is_orphan:
                raise ObjectNotFound("it has no name any more", key=self.key, operation="rename")
            self._based_on(await copy(self.base))

    async def orphan(self) -> None:
        """Its name is gone: it is used until the last handle is closed, and never published."""
        self._tools.watch.orphaned(self)
        async with self._lock:
            self.is_orphan = True
            await self._forget()

    async def close(self) -> None:
        """Let go of everything but what is acknowledged, which stays on disk."""
        self.is_closed = True
        self._tools.losses.ended(self)
        self._tools.watch.ended(self)
        async with self._lock:
            await self._content.close(is_kept=self.is_acknowledged)

    def check_invariants(self) -> None:
        """Raises ValueError when an invariant does not hold."""
        self._content.check_invariants()
        if self.is_acknowledged and (self.is_stream or not self.is_unsaved or self.is_orphan):
            raise ValueError(f"{self.key!r} is acknowledged, and saved, a stream, or without a name")
