"""Modes, owners and times that objects say themselves, in their metadata (core.posix), with --posix-metadata.

A listing has no metadata: a HEAD for each file tells, when the kernel asks for its attributes (for several at once:
fs.attributes_ahead).  A look-up or a listing
answers without, and says that these attributes are not all; the name is kept as ever.

    asked for within the time to live                       nothing is asked
    asked for long after the time of change that is listed  nothing is asked: whoever changes metadata writes the object
    being written here                                      nothing is asked
    else                                                    HEAD, which also says whether this is the version still

Directories have none.  What programs set and S3 does not have yet is shown over it (cache.shown).
"""

import stat
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import trio

from s3mount.cache.metadata import MetadataCache
from s3mount.core.attrs import FileAttrs, ObjectStat
from s3mount.core.inode import Inode, Stored
from s3mount.core.posix import NOTHING_SAID, Posix, parsed
from s3mount.errors import AccessDenied, ObjectNotFound, StaleInode, StoreError
from s3mount.fs.attributes_ahead import AttributesAhead
from s3mount.store.writing import Attributes, Description

#: Seconds after a change by which two clocks that are set differ less; times of changes are whole seconds.
_SETTLED_S = 60

#: `store.writing.Writer.describe`.
Describe = Callable[[str], Awaitable[Description]]


@dataclass(frozen=True)
class PosixConfig:
    """Which owners count: not where the user said that every file has one.

    Attributes:
        has_uids, has_gids: of objects.
    """

    has_uids: bool = True
    has_gids: bool = True

    def counting(self, posix: Posix) -> Posix:
        """What counts of it."""
        return posix._replace(uid=posix.uid if self.has_uids else None, gid=posix.gid if self.has_gids else None)


class StoredAttributes:
    """What is known of the metadata of one mount's files.

    Args:
        describe: None for a mount that asks for none.
        nursery: the mount's; None to ask for one file at a time.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        cache: MetadataCache,
        describe: Describe | None = None,
        config: PosixConfig | None = None,
        nursery: trio.Nursery | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._cache = cache
        self._describe = describe
        self.config = config or PosixConfig()
        self._nursery = nursery
        self._clock = clock
        self._ahead = AttributesAhead(self.is_known)
        self._flights: dict[Inode, trio.Event] = {}

    @property
    def is_on(self) -> bool:
        """Whether metadata counts at all."""
        return self._describe is not None

    def is_known(self, inode: Inode) -> bool:
        """Whether `learn` would do nothing."""
        found, stored = inode.found, inode.stored
        if self._describe is None or found is None or inode.unsaved is not None or inode.is_orphan:
            return True
        if stored is None or stored.etag != found.etag:
            return False
        is_same = stored.is_settled and stored.modified_s == found.mtime_s
        return is_same or self._cache.ages.is_good(inode.key, stored.asked_at)

    async def learn(self, inode: Inode) -> None:
        """Ask S3 what a file's object says, unless that is known.

        Raises:
            StaleInode: it is another version, or gone.
            StoreError: S3 could not be asked; but if it may not be asked, nothing is said.
        """
        while inode in self._flights:
            await self._flights[inode].wait()
        if self.is_known(inode):
            return
        if self._nursery is not None:
            for each in self._ahead.wanted(inode):
                if each not in self._flights:
                    self._nursery.start_soon(self._try, each)
        await self._ask(inode)

    async def _try(self, inode: Inode) -> None:
        try:
            if inode.lookups and inode not in self._flights and not self.is_known(inode):
                await self._ask(inode)
        except (StaleInode, StoreError):
            return  # who wants it asks again, and is told

    async def _ask(self, inode: Inode) -> None:
        self._flights[inode] = trio.Event()
        try:
            await self._tell(inode)
        finally:
            self._flights.pop(inode).set()

    async def _tell(self, inode: Inode) -> None:
        found = inode.found
        if self._describe is None or found is None:
            return
        asked_at = self._cache.now()
        try:
            told = await self._describe(found.key)
        except AccessDenied:
            inode.stored = Stored(NOTHING_SAID, found.etag, found.mtime_s, asked_at, is_settled=False, is_proven=False)
            return
        except ObjectNotFound:
            told = None
        if inode.found is not found:  # written or renamed meanwhile
            return
        if told is not None and told.stat.etag == found.etag:
            self._note(inode, told.stat, told.attributes, asked_at)
        elif not inode.handles:
            self._cache.drop(inode.key)
            raise StaleInode(f"{inode.key!r} is another version now")
        else:  # whoever has it open has what was said of it
            posix = inode.stored.posix if inode.stored else NOTHING_SAID
            inode.stored = Stored(posix, found.etag, found.mtime_s, asked_at, is_settled=False, is_proven=False)

    def proven_for(self, inode: Inode) -> float | None:
        """Seconds for which the kernel may use that a file is this version, by what S3 said when it was asked here.

        A HEAD does not say that no directory hides the file; so it is for the attributes of one that the kernel knows.
        """
        stored, found = inode.stored, inode.found
        if stored is None or found is None or not stored.is_proven or stored.etag != found.etag or inode.is_gone:
            return None
        record = self._cache.last_record(inode.key)
        is_contradicted = record is None or record.found is None or record.found.etag != found.etag
        if is_contradicted or not self._cache.ages.is_good(inode.key, stored.asked_at):
            return None
        return self._cache.ages.remaining_since(inode.key, stored.asked_at)

    def _note(self, inode: Inode, version: ObjectStat, attributes: Attributes, asked_at: float) -> None:
        is_settled = self._clock() >= version.mtime_s + _SETTLED_S
        posix = self.config.counting(parsed(attributes.metadata))
        inode.stored = Stored(posix, version.etag, version.mtime_s, asked_at, is_settled)

    def made(self, inode: Inode, found: ObjectStat, attributes: Attributes) -> None:
        """This mount made an object with these."""
        self._note(inode, found, attributes, self._cache.now())

    def written(self, inode: Inode) -> None:
        """A file was written: it has the time of that."""
        if inode.stored is not None:
            inode.stored = inode.stored._replace(posix=inode.stored.posix._replace(mtime_s=None))

    def applied(self, inode: Inode, attrs: FileAttrs) -> FileAttrs:
        """Attributes as the object says; if it was not asked, as it said before, and not all."""
        found, stored = inode.found, inode.stored
        if self._describe is None or found is None:
            return attrs
        if stored is not None:
            attrs = _over(attrs, stored.posix, is_archived=found.is_archived)
        if not self.is_known(inode):
            self._ahead.told(inode)
            return attrs._replace(is_whole=False)
        if stored is not None and not stored.is_settled and inode.unsaved is None:
            left_s = self._cache.ages.remaining_since(inode.key, stored.asked_at)
            attrs = attrs._replace(ttl_s=min(attrs.ttl_s, left_s))
        return attrs

    def check_invariants(self) -> None:
        """Raises ValueError when more is remembered than may be."""
        self._ahead.check_invariants()


def _over(attrs: FileAttrs, posix: Posix, *, is_archived: bool) -> FileAttrs:
    has_mode = posix.mode is not None and stat.S_ISREG(attrs.mode) and not is_archived
    return attrs._replace(
        mode=stat.S_IFREG | posix.mode if has_mode and posix.mode is not None else attrs.mode,
        uid=attrs.uid if posix.uid is None else posix.uid,
        gid=attrs.gid if posix.gid is None else posix.gid,
        mtime_s=attrs.mtime_s if posix.mtime_s is None else posix.mtime_s,
    )
