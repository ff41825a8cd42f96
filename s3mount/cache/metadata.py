"""What the bucket said: single paths, absent names, whole directories.

* A record says what is under one path: the object, or that it is a directory.
* An absence says that nothing is.  Kept only with a negative TTL: in the minimal mode unknown names
  always ask.
* A listing is a whole directory, one object with one time for all its names.
  It answers for every name in the directory, and with a negative TTL for every name that is not in it.

Of two answers about a path the NEWER one counts, by when S3 was asked; if that has expired, an older
answer with a longer life does not come back.  So an expired absence stays in the table, and a
dropped path leaves a mark: an absence that expired when it was made.  A mark on a directory's own key
says that a listing asked for before is not whole: it answers for single names, by their age, but not
for the directory.

An expired record is not thrown away.  `get` does not give it, but `last_record` does: a look-up may
answer with it, because the kernel's next step (open, getattr) asks S3 about exactly that version.

A hit never extends anything (cache.ages says how old an answer may be).
Bounded by entries: the least recently used go first.  A listing larger than all the room is not kept.
Synchronous and without a clock of its own: the timer is injected.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from cachetools import LRUCache

from s3mount.cache.ages import Ages, MetadataConfig
from s3mount.cache.answers import Absence, Listing, Record
from s3mount.cache.local_names import LocalNames
from s3mount.core.attrs import ObjectStat
from s3mount.core.entry_pages import EntryPages
from s3mount.core.keys import SEPARATOR, is_directory_key, paths_above, split_key
from s3mount.core.policies import PathPolicies

#: Names kept in listings: 65 bytes each.  And answers about single paths, 400 bytes each.
MAX_ENTRIES = 2_000_000
MAX_ANSWERS = 500_000
#: In the minimal mode what is kept only saves a look-up's request, so it gets less memory.
MAX_MINIMAL_ENTRIES = 250_000
MAX_MINIMAL_ANSWERS = 50_000


@dataclass(frozen=True)
class MetadataStatistics:
    """Answers about single paths, listings and their names held now; look-ups answered and not, since the start."""

    records: int
    listings: int
    listed_names: int
    hits: int
    misses: int


class MetadataCache:
    """Answers by path: the key without a trailing slash.  Listings go by the directory's key.

    Args:
        timer: monotonic seconds.
        policies: see `Ages`.

    Attributes:
        ages: how old answers may be.
        local: what this mount knows better than S3, and so comes first.
        changes: how often something new was said of a path; while it stays, so does what is known of any.
    """

    def __init__(
        self, timer: Callable[[], float], config: MetadataConfig | None = None, policies: PathPolicies | None = None
    ) -> None:
        self._timer = timer
        self.ages = Ages(timer, config or MetadataConfig(), policies or PathPolicies())
        self.local = LocalNames(timer)
        is_minimal = self.ages.is_minimal_everywhere
        room = MAX_MINIMAL_ENTRIES if is_minimal else MAX_ENTRIES
        self._answers: LRUCache[str, Record | Absence] = LRUCache(MAX_MINIMAL_ANSWERS if is_minimal else MAX_ANSWERS)
        self._listings: LRUCache[str, Listing] = LRUCache(room, getsizeof=lambda listing: len(listing.entries) + 1)
        self._not_before = -math.inf
        self.changes = 0
        self._hits = 0
        self._misses = 0

    def now(self) -> float:
        """The injected timer, for `put`."""
        return self._timer()

    def get(self, path: str) -> Record | Absence | None:
        """What is known about a path; None when S3 must be asked."""
        known = self._newest(path)
        if known is None or known.expires_at <= self._timer():
            self._misses += 1
            return None
        self._hits += 1
        return known

    def last_record(self, path: str) -> Record | None:
        """What was there when S3 was last asked about a path, however long ago; None when nothing is known."""
        newest = self._newest(path)
        return newest if isinstance(newest, Record) else None

    def is_not_listed(self, path: str, since: float) -> bool:
        """Whether a listing asked for since a time lacks a path, and nothing newer is known of it."""
        newest = self._newest(path)
        return isinstance(newest, Absence) and newest.asked_at >= since and newest is not self._answers.get(path)

    def recall(self, path: str, found: ObjectStat | None, asked_at: float) -> Record | None:
        """The record of an inode that there was no room for; None when it has expired or anything is known here."""
        record = self.ages.record(path, found, asked_at)
        is_too_old = asked_at < self._not_before or record.expires_at <= self._timer()
        return None if is_too_old or self._newest(path) is not None else record

    def _newest(self, path: str) -> Record | Absence | None:
        """The last answer about a path, whether it is still good or not."""
        ours = self.local.answer(path)
        if ours is not None:
            return ours
        alone: Record | Absence | None = self._answers.get(path)
        listed = self._listed(path)
        if alone is None or listed is None:
            return listed if alone is None else alone
        return listed if listed.asked_at > alone.asked_at else alone

    def _listed(self, path: str) -> Record | Absence | None:
        directory_key, name = split_key(path)
        listing = self._listings.get(directory_key)
        if listing is None:
            return None
        entry = listing.entries.get(name)
        if entry is not None and self.local.ghosts.has(directory_key, entry):
            return None  # whether there is anything below it was not asked
        if entry is not None:
            return self.ages.record(path, entry.found, listing.asked_at)
        return self.ages.absence(path, listing.asked_at)

    def put(self, path: str, found: ObjectStat | None, asked_at: float) -> Record:
        """Record what is under a path.

        An answer to an earlier question does not replace one to a later question, nor one that was
        dropped after it was asked.
        """
        record = self.ages.record(path, found, asked_at)
        self.local.ghosts.forget(path)
        self._keep(path, record)
        return record

    def put_absent(self, path: str, asked_at: float) -> Absence:
        """Record that nothing is under a path; without a negative TTL only what it contradicts is forgotten."""
        absence = self.ages.absence(path, asked_at)
        self._keep(path, absence)
        return absence

    def _keep(self, path: str, answer: Record | Absence) -> None:
        """Keep the newest answer, if it is good or contradicts another."""
        newest = self._newest(path)
        if answer.asked_at < (self._not_before if newest is None else max(newest.asked_at, self._not_before)):
            return
        is_news = newest is not None and not newest.says_the_same_as(answer)
        if answer.expires_at > self._timer() or is_news:
            self.changes += is_news or newest is None
            self._answers[path] = answer
        listed = self._listed(path)
        if is_news or (listed is not None and not listed.says_the_same_as(answer)):
            self._mark_directory(split_key(path)[0], answer.asked_at)

    def may_keep_listing(self, n_entries: int) -> bool:
        """Whether a directory of so many names would be kept as a whole."""
        return n_entries < self._listings.maxsize

    def put_listing(self, directory_key: str, entries: EntryPages, asked_at: float) -> None:
        """Record a whole directory, as of when its first page was asked for."""
        held, mark = self._listings.get(directory_key), self._answers.get(directory_key)
        is_newest = asked_at >= self._not_before and (held is None or held.asked_at <= asked_at)
        if is_newest and self.may_keep_listing(len(entries)):
            is_whole = mark is None or mark.asked_at <= asked_at
            self.changes += 1
            self._listings[directory_key] = Listing(entries, asked_at, is_whole)

    def listing(self, directory_key: str, *, is_walked: bool = False) -> Listing | None:
        """A directory that was listed within the time to live, and not contradicted since.

        Args:
            is_walked: the listing was made for this reader; else there is none in the minimal mode.
        """
        if not is_walked and self.ages.is_minimal(directory_key):
            return None
        listing = self._listings.get(directory_key)
        if listing is None or not listing.is_whole or not self.ages.is_good(directory_key, listing.asked_at):
            return None
        return listing

    def may_join(self, directory_key: str, asked_at: float) -> bool:
        """Whether a listing on its way, whose first page was asked for at a time, may answer for its directory."""
        mark = self._answers.get(directory_key)
        is_contradicted = asked_at < self._not_before or (mark is not None and mark.asked_at > asked_at)
        if is_contradicted or self.ages.is_minimal(directory_key):
            return False
        return self.ages.is_good(directory_key, asked_at)

    def drop(self, path: str) -> None:
        """Forget one path, and that its directory's listing is whole: something contradicted it.

        An answer to a question asked before does not bring it back.
        """
        now = self._timer()
        self.changes += 1
        self._answers[path] = Absence(now, now)
        self._mark_directory(split_key(path)[0], now)

    def _mark_directory(self, directory_key: str, at: float) -> None:
        mark = self._answers.get(directory_key)
        if mark is None or mark.asked_at < at:
            self._answers[directory_key] = Absence(at, at)
        listing = self._listings.get(directory_key)
        if listing is not None:
            listing.is_whole = False

    def drop_below(self, directory_key: str) -> None:
        """Forget a directory, everything in it, and why it cannot be; with an empty key all: what a refresh does.

        Takes time in proportion to what is kept.  Answers on their way to any path are not kept.
        """
        self.changes += 1
        for table in (self._answers, self._listings):
            for key in [key for key in table if key.startswith(directory_key)]:
                table.pop(key, None)
        if directory_key:
            self.drop(directory_key.removesuffix(SEPARATOR))
        for path in paths_above(directory_key):
            known = self._newest(path)
            if known is not None and (isinstance(known, Absence) or known.found is not None):
                self.drop(path)
        self._not_before = self._timer()

    def statistics(self) -> MetadataStatistics:
        """A snapshot of the counters."""
        listed = int(self._listings.currsize) - len(self._listings)
        return MetadataStatistics(len(self._answers), len(self._listings), listed, self._hits, self._misses)

    def check_invariants(self) -> None:
        """Raises ValueError when an answer is good for too long or misfiled, or a listing is not in order."""
        self.local.check_invariants()
        for path, answer in self._answers.items():
            self.ages.check(path, answer)
            if isinstance(answer, Record) and path.endswith(SEPARATOR):
                raise ValueError(f"the record path {path!r} ends in a slash")
        for key, listing in self._listings.items():
            listing.entries.check_invariants()
            if listing.asked_at > self._timer() or not is_directory_key(key):
                raise ValueError(f"the listing of {key!r} is from the future, or not of a directory")
