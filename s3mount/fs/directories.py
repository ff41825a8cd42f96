"""An open directory: pages, and offsets that stay.

An open directory is a growing list of entries; the offset of an entry is its place in that
list plus one.  The list only grows until the reader rewinds, so every offset the kernel ever got
is good: a repeated or interrupted readdir, telldir and seekdir all work.  Reading from the start
again (offset 0, after something was read) lists anew, as rewinddir asks.

With a TTL a directory that was read to its end is kept as a whole, as old as its first page, and
answers the handles that start at offset 0 until it expires or something contradicts it.  Without
one, and of a directory too large to keep, each name is recorded by itself.

A page that fails is not remembered: that readdir fails, and the next one asks again.
"""

import logging
from bisect import bisect_right
from dataclasses import dataclass

import trio

from s3mount.cache.metadata import MetadataCache
from s3mount.core.keys import child_key
from s3mount.core.listing import Entry, HiddenKey, ListingFold, ListPage
from s3mount.store.base import MAX_PAGE, ObjectStore

log = logging.getLogger(__name__)

#: Directories whose hidden keys were logged; forgotten all at once when it is full.
_MAX_WARNED = 10_000


@dataclass(frozen=True)
class DirectoryStatistics:
    """Directories open now, and LIST pages read for directories since the start."""

    open: int
    pages: int


class OpenDirectory:
    """One handle on one directory."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.lock = trio.Lock()
        self.entries: list[Entry] = []
        self.fold: ListingFold | None = None
        self.next_token: str | None = None
        self.is_complete = False
        #: (offset of a page's first entry, when it was asked for), one per page.
        self._stamps: list[tuple[int, float]] = []

    @property
    def is_started(self) -> bool:
        """Whether anything was read, be it that there is nothing."""
        return bool(self._stamps)

    @property
    def first_asked_at(self) -> float:
        """When the first page was asked for."""
        return self._stamps[0][1]

    def append(self, entries: list[Entry], asked_at: float) -> None:
        """Add what one page made final."""
        self._stamps.append((len(self.entries), asked_at))
        self.entries += entries

    def asked_at(self, offset: int) -> float:
        """When the page was asked for that the entry at an offset came with."""
        return self._stamps[bisect_right(self._stamps, (offset, float("inf"))) - 1][1]

    def rewind(self) -> None:
        """Forget what was listed; the next read asks S3 again."""
        self.entries = []
        self._stamps = []
        self.fold = None
        self.next_token = None
        self.is_complete = False


class DirectoryLister:
    """Reads directories for their handles, and remembers what it saw for lookups."""

    def __init__(self, store: ObjectStore, cache: MetadataCache) -> None:
        self._store = store
        self._cache = cache
        self._warned: set[str] = set()
        self._open = 0
        self._pages = 0

    def open(self, key: str) -> OpenDirectory:
        """A new handle; pair it with `close`."""
        self._open += 1
        return OpenDirectory(key)

    def close(self, directory: OpenDirectory) -> None:
        """The handle is gone."""
        directory.rewind()
        self._open -= 1

    async def entries_from(self, directory: OpenDirectory, offset: int) -> list[Entry]:
        """Some entries from an offset on; empty only at the end of the directory.

        Raises:
            StoreError: the page could not be listed; the next call tries again.
        """
        async with directory.lock:
            if offset == 0:
                self._start(directory)
            while len(directory.entries) <= offset and not directory.is_complete:
                await self._read_page(directory)
            return directory.entries[offset : offset + MAX_PAGE]

    def _start(self, directory: OpenDirectory) -> None:
        if directory.entries or directory.is_complete:
            directory.rewind()
        listing = None if directory.is_started else self._cache.listing(directory.key)
        if listing is not None:
            directory.append(list(listing.entries), listing.asked_at)
            directory.is_complete = True

    async def _read_page(self, directory: OpenDirectory) -> None:
        if directory.fold is None:
            directory.fold = ListingFold(directory.key, is_ordered=self._store.is_ordered)
        asked_at = self._cache.now()
        page = await self._store.list_page(directory.key, token=directory.next_token, max_keys=MAX_PAGE)
        self._pages += 1
        fresh = directory.fold.add(page)
        directory.append(fresh, asked_at)
        directory.next_token = page.next_token
        directory.is_complete = page.next_token is None
        self._remember(directory, fresh, asked_at)
        if directory.is_complete:
            self._warn_once(directory.key, directory.fold.hidden)

    def remember_page(self, directory_key: str, page: ListPage, asked_at: float) -> None:
        """Record a first page that was listed for another purpose: the probe of the bucket."""
        directory = OpenDirectory(directory_key)
        fold = ListingFold(directory_key, is_ordered=self._store.is_ordered)
        directory.append(fold.add(page), asked_at)
        directory.is_complete = page.next_token is None
        self._remember(directory, directory.entries, asked_at)
        if self._cache.listing(directory_key) is not None:  # so it may never be listed
            self._warn_once(directory_key, fold.hidden)

    def _remember(self, directory: OpenDirectory, fresh: list[Entry], asked_at: float) -> None:
        """Record what a LIST just proved, so that a lookup need not ask again."""
        if not self._cache.may_keep_listing(len(directory.entries)):
            for entry in fresh:
                self._cache.put(child_key(directory.key, entry.name), entry.found, asked_at)
        elif directory.is_complete:
            self._cache.put_listing(directory.key, directory.entries, directory.first_asked_at)

    def _warn_once(self, directory_key: str, hidden: list[HiddenKey]) -> None:
        if not hidden or directory_key in self._warned:
            return
        if len(self._warned) >= _MAX_WARNED:
            self._warned.clear()
        self._warned.add(directory_key)
        first = hidden[0]
        log.warning(
            "%d keys in %r cannot be shown as files; the first is %r: %s",
            len(hidden), directory_key, first.key, first.reason,
        )  # fmt: skip

    def statistics(self) -> DirectoryStatistics:
        """A snapshot of the counters."""
        return DirectoryStatistics(self._open, self._pages)

    def check_invariants(self) -> None:
        """Raises ValueError when more handles were closed than opened."""
        if self._open < 0:
            raise ValueError("more directory handles were closed than opened")
