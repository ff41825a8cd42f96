"""Is this still the version under that name?  Who asks, when, and with which request.

The kernel looks a name up before it opens or stats it, and does not say which it will do.  So a look-up
answers with the last record, however old, as long as nobody has the file open; the step after it
asks S3, if the record is too old for that step:

    step           minimal mode                        with a TTL
    -------------  ----------------------------------  -------------------------------------------
    getattr        record older than 1 s: LIST         record older than the TTL: LIST
    open           always, by the cheapest of:         record older than the TTL, by the cheapest of:
      content not   the content's own GET, If-Match     a small file's GET, If-Match; else LIST, which
      delivered                                         makes the record new
      delivered     HEAD, If-Match                      LIST
      O_DIRECT      LIST                                LIST, whatever the record's age

A look-up that had to ask S3 vouches for the open that follows it, once.  A HEAD or GET proves the version but
not that no directory hides the file, so it makes no record new.

A file that is open shows its own version's attributes (getattr), so a look-up of it asks.  A name that was a
file and is a directory now can fail one path through it with ENOTDIR: there the kernel asks nothing but
look-ups, and the second of them in a row asks S3.

A version that changed or is gone is `StaleInode` or `ObjectChanged`: the kernel gets ESTALE, looks
the name up again and opens what it finds.
"""

import math

from s3mount.cache.answers import Record
from s3mount.cache.metadata import MetadataCache
from s3mount.core.attrs import ObjectStat
from s3mount.core.inode import Inode
from s3mount.core.keys import SEPARATOR
from s3mount.core.ttl import MINIMAL
from s3mount.errors import ArchivedObject, IsADirectory, NameNotFound, StaleInode
from s3mount.fs.directories import DirectoryLister
from s3mount.fs.reader import FileReader
from s3mount.fs.resolver import Resolver
from s3mount.fs.stored_attributes import StoredAttributes
from s3mount.fs.waits import ReaderWaits
from s3mount.store.base import RangeReader


class VersionCheck:
    """Compares inodes with what S3 has.

    Args:
        lister: may be on its way to a directory; store: has the versions of objects.
        waits: is told what readers wait for.
        stored: what the objects say of files; None for a mount that does not ask.
    """

    def __init__(
        self,
        resolver: Resolver,
        lister: DirectoryLister,
        cache: MetadataCache,
        store: RangeReader,
        waits: ReaderWaits,
        stored: StoredAttributes | None = None,
    ) -> None:
        self.resolver = resolver
        self.waits = waits
        self.stored = stored or StoredAttributes(cache)
        self._lister = lister
        self._cache = cache
        self._store = store

    def known(self, inode: Inode) -> Record | None:
        """The record of the inode's name, if it is new enough and has this version; else S3 must be asked."""
        inode.is_doubtful = False
        path = inode.key.removesuffix(SEPARATOR)
        if inode.vouched_until > self._cache.now():
            return self._cache.ages.record(path, inode.found, inode.asked_at)
        kept = self._cache.recall(path, inode.found, inode.asked_at) or self._cache.get(path)
        return kept if isinstance(kept, Record) and is_same(inode, kept.found) else None

    async def current(self, inode: Inode, *, not_before: float = -math.inf) -> Record:
        """The record of the inode's name, not older than the cache allows.

        Args:
            not_before: S3 must have been asked then or later, on the cache's timer.

        Raises:
            StaleInode: the name holds something else now.
            NameNotFound, StoreError.
        """
        path = inode.key.removesuffix(SEPARATOR)
        if not_before == -math.inf:
            if (known := self.known(inode)) is not None:
                return known
            if inode.is_directory and self._cache.get(path) is None:
                await self._lister.bring(inode.key)
        record = await self.resolver.resolve(path, not_before=not_before)
        if not is_same(inode, record.found):
            raise StaleInode(f"{path!r} is another version now")
        return record

    async def begin(self, inode: Inode, reader: FileReader, *, is_direct: bool) -> None:
        """Fetch what an open fetches, and prove that the version is the one under the name.

        Raises:
            StaleInode, ObjectChanged: it is not.
            StoreError.
        """
        if is_direct:
            await self._ask_list(inode)
            await reader.begin()
        elif not self._must_ask(inode):
            await reader.begin()
        elif self._cache.ages.is_minimal(inode.key):
            if not await reader.begin(wait=True):
                await self.waits.of_names(self._ask_head(inode))
        elif not (reader.is_small and await reader.begin()):
            await self._ask_list(inode)
            await reader.begin()

    def begin_nowait(self, inode: Inode, reader: FileReader) -> bool:
        """As `begin` not direct, if it needs no request; returns whether it did it; else the reader is closed.

        Raises:
            StaleInode.
        """
        is_begun = False
        try:
            is_begun = reader.needs_no_fetch and not self._must_ask(inode)
        finally:
            if not is_begun:
                reader.close()
        return is_begun

    def _must_ask(self, inode: Inode) -> bool:
        vouched_until, inode.vouched_until = inode.vouched_until, -math.inf
        inode.is_doubtful = False
        if self._cache.ages.is_minimal(inode.key):
            return vouched_until <= self._cache.now()
        if inode.agreed_at == self._cache.changes and self._cache.now() < inode.agreed_until:
            return False
        known = self._cache.get(inode.key) or self._cache.recall(inode.key, inode.found, inode.asked_at)
        if known is not None and not (isinstance(known, Record) and is_same(inode, known.found)):
            raise StaleInode(f"{inode.key!r} is another version now")
        if known is None:
            return True
        inode.agreed_at, inode.agreed_until = self._cache.changes, known.expires_at
        return False

    def looked_up(self, inode: Inode, asked_at: float, began_at: float) -> bool:
        """Note that a look-up, begun at `began_at`, answers with what S3 said at `asked_at`.

        Returns:
            Whether the kernel may keep the name.  Not where the look-up vouches for the open: if the kernel
            asked for something else (a stat), the open that comes later needs a look-up of its own.
        """
        is_news = asked_at >= began_at
        inode.asked_at = max(inode.asked_at, asked_at)
        inode.vouched_until = self._cache.now() + MINIMAL.seconds if is_news else -math.inf
        inode.is_doubtful &= not is_news
        return not (is_news and self._cache.ages.is_minimal(inode.key))

    def may_answer(self, inode: Inode) -> bool:
        """Whether a look-up may answer with an expired record: the next step will ask S3.

        Not for an open file, since getattr shows its own version without asking.  And of a file not twice in a
        row without such a step: the kernel makes none on the way through what it takes for a file.
        """
        is_believed = not inode.handles and not inode.is_doubtful
        inode.is_doubtful = not inode.is_directory
        return is_believed

    async def check(self, inode: Inode, *, not_before: float = -math.inf) -> None:
        """As `current`; a name that is gone is stale, too: only that makes the kernel forget the name it has.

        Raises:
            StaleInode, StoreError.
        """
        try:
            await self.current(inode, not_before=not_before)
        except NameNotFound as error:
            raise StaleInode(f"{inode.key!r} is gone") from error

    async def _ask_list(self, inode: Inode) -> None:
        await self.waits.of_names(self.check(inode, not_before=self._cache.now()))

    async def _ask_head(self, inode: Inode) -> None:
        if inode.found is None or not inode.found.etag:
            await self.check(inode, not_before=self._cache.now())
        else:
            await self._store.confirm(inode.found.id)


def is_same(inode: Inode, found: ObjectStat | None) -> bool:
    """Whether an inode stands for what was found: that version of a file, or a directory."""
    if inode.found is None or found is None:
        return inode.found is None and found is None
    return inode.found.id == found.id


def openable(inode: Inode) -> Inode:
    """A file that may be opened, as far as is known here.

    Raises:
        IsADirectory.
        StaleInode: S3 said that the name has another version.
        ArchivedObject: it must be restored before it can be read.
    """
    found = inode.found
    if found is None:
        raise IsADirectory(f"{inode.key!r} is a directory")
    if inode.is_gone:
        raise StaleInode(f"{inode.key!r} is another version now")
    if found.is_archived:
        raise ArchivedObject(
            f"the object is in storage class {found.storage_class}; restore it before reading "
            "(aws s3api restore-object), then open it again",
            key=found.key,
            operation="open",
        )
    return inode
