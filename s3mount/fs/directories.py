"""Directories for their handles: which listing answers a handle, and what is remembered of it.

A handle reads one `DirectoryScan`; offsets are places in it, so a repeated or interrupted readdir,
telldir and seekdir all work.  Reading from the start again (offset 0, after something was read)
takes a new scan, as rewinddir asks.

With a TTL a directory that was read to its end is kept as a whole, as old as its oldest page, and
answers handles that start until it expires or something contradicts it; and handles that start while it
is being listed share that listing.  Without one each handle lists for itself; only the names are kept.
In both cases a subtree that a program walks through is listed ahead of it (fs.walks).

Of a directory too large to keep, each name is recorded by itself.
"""

import logging
from collections.abc import Sequence, Set
from dataclasses import dataclass

import trio

from s3mount.cache.metadata import MetadataCache
from s3mount.core.entry_pages import EntryPages
from s3mount.core.fanout import DEFAULT_AHEAD_PAGES
from s3mount.core.keys import SEPARATOR, child_key
from s3mount.core.listing import Entry, HiddenKey, ListingFold, ListPage
from s3mount.core.tree import TreeDirectory
from s3mount.fs.lost_names import LostNames
from s3mount.fs.open_directory import OpenDirectory
from s3mount.fs.pages import PageStream
from s3mount.fs.scans import DirectoryScan
from s3mount.fs.shown_entries import ShownEntries
from s3mount.fs.walks import SubtreeWalks
from s3mount.store.base import Catalogue
from s3mount.units import counted

log = logging.getLogger(__name__)

#: Directories whose hidden keys were logged, or that are too large to keep; forgotten all at once when it is full.
_MAX_NOTED = 10_000


@dataclass(frozen=True)
class DirectoryStatistics:
    """Directories open now; LIST pages read for directories, and subtrees listed for walks, since the start."""

    open: int
    pages: int
    walks: int


class DirectoryLister:
    """Reads directories for their handles, and remembers what it saw for lookups.

    Args:
        nursery: outlives every request; those that are ahead of a reader run in it.

    Attributes:
        lost: is shown what other clients removed.
    """

    def __init__(self, store: Catalogue, cache: MetadataCache, nursery: trio.Nursery) -> None:
        self._store = store
        self._cache = cache
        self._nursery = nursery
        self._scans: dict[str, DirectoryScan] = {}  # those that others may join
        self._walks = SubtreeWalks(store, cache, nursery, self._remember_tree)
        self._noted: set[str] = set()
        self._oversized: set[str] = set()
        self._shown = ShownEntries(store, cache)
        self.lost = LostNames(cache, nursery)
        self._open = 0
        self._pages = 0

    # -- handles --------------------------------------------------------------------------------

    def open(self, key: str) -> OpenDirectory:
        """A new handle; pair it with `close`."""
        self._open += 1
        return OpenDirectory(key)

    def close(self, directory: OpenDirectory) -> None:
        """The handle is gone."""
        self._read_from(directory, None)
        self._open -= 1

    def entries_nowait(self, directory: OpenDirectory, offset: int) -> Sequence[Entry | None] | None:
        """As `entries_from`, if it needs no waiting; else None."""
        if directory.lock.locked():
            return None
        scan = directory.scan
        if scan is None or (offset == 0 and scan.is_started):
            listing = self._cache.listings.current(directory.key)
            if listing is None:
                return None
            scan = DirectoryScan.whole(directory.key, listing.entries, listing.asked_at)
            self._read_from(directory, scan, self._shown.known_here(directory.key))
        if len(scan.entries) <= offset and not scan.is_complete:
            return None
        return self._shown.some_from(directory, scan, offset)

    async def entries_from(self, directory: OpenDirectory, offset: int) -> Sequence[Entry | None]:
        """Some entries from an offset on, None for one that was removed here; empty only at the end of the directory.

        Raises:
            StoreError: the page could not be listed; the next call tries again.
        """
        async with directory.lock:
            scan = directory.scan
            if scan is None or (offset == 0 and self._is_over(scan)):
                known = self._shown.known_here(directory.key)
                scan = await self._scan_for(directory.key)
                self._read_from(directory, scan, known)
            await scan.reach(offset)
            await self._shown.look_for_ghosts(directory.key, scan, offset)
            return self._shown.some_from(directory, scan, offset)

    async def has_key(self, path: str) -> bool:
        """Whether S3 has anything below a path, but for what was removed here a moment ago.  Raises StoreError."""
        return await self._shown.has_key(path)

    def was_removed(self, path: str) -> bool:
        """Whether a directory was removed here, and may be a ghost."""
        return path in self._cache.local.ghosts

    def _is_over(self, scan: DirectoryScan) -> bool:
        """Whether who starts reading needs another."""
        return scan.is_started or not self._cache.ages.is_good(scan.key, scan.started_at)

    def _read_from(self, directory: OpenDirectory, scan: DirectoryScan | None, known: Set[str] = frozenset()) -> None:
        if scan is not None:
            scan.join()
        left = directory.scan
        directory.read_from(scan, known)
        if left is not None:
            self.leave(left)

    def leave(self, scan: DirectoryScan) -> None:
        """One user less; with the last one what is in flight for it is cancelled."""
        scan.users -= 1
        if scan.users == 0:
            scan.close()
            if self._scans.get(scan.key) is scan:
                del self._scans[scan.key]

    async def _scan_for(self, key: str) -> DirectoryScan:
        listing = self._cache.listings.current(key)
        if listing is None:
            listing = await self._walks.listing(key)
        if listing is not None:
            return DirectoryScan.whole(key, listing.entries, listing.asked_at)
        return self.scan(key)

    def scan(self, key: str, *, ahead_pages: int = DEFAULT_AHEAD_PAGES) -> DirectoryScan:
        """The listing that is on its way, if one may be joined, or a new one; `join` and `leave` it."""
        scan = self._scans.get(key)
        if scan is not None and self._cache.listings.may_join(key, scan.started_at):
            return scan
        stream = PageStream(self._store, self._nursery, key, ahead_pages=ahead_pages, clock=self._cache.now)
        scan = DirectoryScan(key, self._cache.now(), stream, self._remember, is_ordered=self._store.is_ordered)
        self._scans[key] = scan
        return scan

    # -- what is known --------------------------------------------------------------------------

    async def bring(self, key: str) -> None:
        """Let a walk that is under way reach a directory, so that its record is new."""
        await self._walks.bring(key)

    def is_oversized(self, key: str) -> bool:
        """Whether a directory was too large to keep as a whole."""
        return key in self._oversized

    def remember_page(self, directory_key: str, page: ListPage, asked_at: float) -> None:
        """Record a first page that was listed for another purpose: the probe of the bucket."""
        if page.next_token is not None:
            return
        fold = ListingFold(directory_key, is_ordered=self._store.is_ordered)
        entries = EntryPages(directory_key, fold.add(page))
        self._keep(directory_key, entries, asked_at)
        self._warn_once(directory_key, fold.hidden)  # it may never be listed

    def _remember(self, scan: DirectoryScan, fresh: list[Entry], asked_at: float) -> None:
        """Record what a LIST just proved, so that a lookup need not ask again."""
        self._pages += 1
        if not self._cache.listings.may_keep(len(scan.entries)):
            _note(self._oversized, scan.key)
            self.remember_names(scan.key, fresh, asked_at)
        elif scan.is_complete:
            self._oversized.discard(scan.key)
            self._keep(scan.key, scan.entries, scan.first_asked_at)
        if scan.is_complete:
            self._warn_once(scan.key, scan.hidden)
            if self._scans.get(scan.key) is scan:
                del self._scans[scan.key]

    def _keep(self, directory_key: str, entries: EntryPages, asked_at: float) -> None:
        before = self._cache.listings.put(directory_key, entries, asked_at)
        if before is not None:
            self.lost.compare(directory_key, before.entries, entries)

    def remember_names(self, directory_key: str, entries: list[Entry], asked_at: float) -> None:
        """Record names one by one."""
        for entry in entries:
            self._cache.put(child_key(directory_key, entry.name), entry.found, asked_at)

    def _remember_tree(self, found: TreeDirectory, asked_at: float) -> None:
        if self._cache.listings.may_keep(len(found.entries)):
            self._keep(found.directory_key, EntryPages(found.directory_key, found.entries), asked_at)
        path = found.directory_key.removesuffix(SEPARATOR)
        if path and self._cache.ages.is_minimal(path):  # else its own directory's listing says so for long enough
            self._cache.put(path, None, asked_at)
        self._warn_once(found.directory_key, found.hidden)

    def _warn_once(self, directory_key: str, hidden: list[HiddenKey]) -> None:
        if not hidden or directory_key in self._noted:
            return
        _note(self._noted, directory_key)
        first = hidden[0]
        log.warning(
            "%s in %r cannot be shown as files; the first is %r: %s",
            counted(len(hidden), "key"), directory_key, first.key, first.reason,
        )  # fmt: skip

    def statistics(self) -> DirectoryStatistics:
        """A snapshot of the counters."""
        return DirectoryStatistics(self._open, self._pages, self._walks.statistics().started)

    def check_invariants(self) -> None:
        """Raises ValueError when more handles were closed than opened, or a listing nobody reads goes on."""
        if self._open < 0:
            raise ValueError("more directory handles were closed than opened")
        for scan in self._scans.values():
            scan.check_invariants()
        self._walks.check_invariants()


def _note(noted: set[str], key: str) -> None:
    if len(noted) >= _MAX_NOTED:
        noted.clear()
    noted.add(key)
