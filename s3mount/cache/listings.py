"""Whole directories as they were listed, and what contradicts them.

A listing is one object with one time for all its names.  A MARK on a directory says that something in it changed at a
time: a listing asked for before is not whole.  It answers for single names, by their age, but not for the directory;
and a page of one that is still being read is compared with what is known of its names (fs.shown_entries).

Bounded by names and by marks: the least recently used go first.  A listing larger than all the room is not kept.
"""

import math
from collections.abc import Callable

from cachetools import LRUCache

from s3mount.cache.ages import Ages
from s3mount.cache.answers import Listing
from s3mount.core.entry_pages import EntryPages
from s3mount.core.keys import is_directory_key


class Listings:
    """By the directory's key.

    Args:
        timer: of the metadata cache.
        max_names, max_marks: names in listings, and directories with a mark, that there is room for.

    Attributes:
        changes: how often a listing was kept.
        not_before: what was asked for earlier counts no more.
    """

    def __init__(self, timer: Callable[[], float], ages: Ages, max_names: int, max_marks: int) -> None:
        self._timer = timer
        self._ages = ages
        self._listings: LRUCache[str, Listing] = LRUCache(max_names, getsizeof=lambda listing: len(listing.entries) + 1)
        self._marks: LRUCache[str, float] = LRUCache(max_marks)
        self.changes = 0
        self.not_before = -math.inf

    def may_keep(self, n_entries: int) -> bool:
        """Whether a directory of so many names would be kept as a whole."""
        return n_entries < self._listings.maxsize

    def put(self, directory_key: str, entries: EntryPages, asked_at: float) -> Listing | None:
        """Record a whole directory, as of when its first page was asked for; returns the older one that it replaces."""
        held = self._listings.get(directory_key)
        is_newest = asked_at >= self.not_before and (held is None or held.asked_at <= asked_at)
        if is_newest and self.may_keep(len(entries)):
            self.changes += 1
            is_whole = not self._has_mark_after(directory_key, asked_at)
            self._listings[directory_key] = Listing(entries, asked_at, is_whole)
            return held
        return None

    def last(self, directory_key: str) -> Listing | None:
        """What was listed last, however long ago, and whatever contradicts it."""
        return self._listings.get(directory_key)

    def current(self, directory_key: str, *, is_walked: bool = False) -> Listing | None:
        """A directory that was listed within the time to live, and not contradicted since.

        Args:
            is_walked: the listing was made for this reader; else there is none in the minimal mode.
        """
        if not is_walked and self._ages.is_minimal(directory_key):
            return None
        listing = self._listings.get(directory_key)
        if listing is None or not listing.is_whole or not self._ages.is_good(directory_key, listing.asked_at):
            return None
        return listing

    def may_join(self, directory_key: str, asked_at: float) -> bool:
        """Whether a listing on its way, whose first page was asked for at a time, may answer for its directory."""
        is_contradicted = asked_at < self.not_before or self._has_mark_after(directory_key, asked_at)
        if is_contradicted or self._ages.is_minimal(directory_key):
            return False
        return self._ages.is_good(directory_key, asked_at)

    def mark(self, directory_key: str, at: float) -> None:
        """Something in a directory changed then."""
        if self._marks.get(directory_key, -math.inf) < at:
            self._marks[directory_key] = at
        listing = self._listings.get(directory_key)
        if listing is not None:
            listing.is_whole = False

    def may_differ(self, directory_key: str, asked_at: float) -> bool:
        """Whether something in a directory changed after a page of it was asked for, or at that time."""
        return self._marks.get(directory_key, -math.inf) >= asked_at or asked_at < self.not_before

    def _has_mark_after(self, directory_key: str, asked_at: float) -> bool:
        return self._marks.get(directory_key, -math.inf) > asked_at

    def drop_below(self, prefix: str) -> None:
        """Forget those whose key starts with a prefix; none that is on its way is kept."""
        self.not_before = self._timer()
        for key in [key for key in self._listings if key.startswith(prefix)]:
            self._listings.pop(key, None)
        for key in [key for key in self._marks if key.startswith(prefix)]:
            self._marks.pop(key, None)

    @property
    def n_names(self) -> int:
        """Names in listings."""
        return int(self._listings.currsize) - len(self._listings)

    def __len__(self) -> int:
        """Listings."""
        return len(self._listings)

    def check_invariants(self) -> None:
        """Raises ValueError when a listing is from the future, not of a directory, or not in order."""
        for key, listing in self._listings.items():
            listing.entries.check_invariants()
            if listing.asked_at > self._timer() or not is_directory_key(key):
                raise ValueError(f"the listing of {key!r} is from the future, or not of a directory")
