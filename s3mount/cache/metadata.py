"""What the bucket said: single paths, absent names, whole directories.

* A record says what is under one path: the object, or that it is a directory.
* An absence says that nothing is.  Kept only with a negative TTL: in the minimal mode unknown names
  always ask.
* A stretch is a part of a directory that this mount fills, without a gap.
* A listing is a whole directory, one object with one time for all its names.
  It answers for every name in the directory, and with a negative TTL for every name that is not in it.

Of two answers about a path the NEWER one counts, by when S3 was asked; if that has expired, an older
answer with a longer life does not come back.  So an expired absence stays in the table, and a
dropped path leaves a mark: an absence that expired when it was made.  What it says of a name that differs
from the directory's listing contradicts that (cache.listings).

What this mount changed is known for sure, and newer than whatever was asked for before: `made`, `gone`.

An expired record is not thrown away.  `get` does not give it, but `last_record` does: a look-up may
answer with it, because the kernel's next step (open, getattr) asks S3 about exactly that version.

A hit never extends anything (cache.ages says how old an answer may be).

Bounded by entries: the least recently used go first.

Synchronous and without a clock of its own: the timer is injected.
"""

from collections.abc import Callable
from dataclasses import dataclass

from cachetools import LRUCache

from s3mount.cache.ages import Ages, MetadataConfig
from s3mount.cache.answers import Absence, Record
from s3mount.cache.listings import Listings
from s3mount.cache.local_names import LocalNames
from s3mount.cache.stretches import Stretches
from s3mount.core.attrs import ObjectStat
from s3mount.core.keys import SEPARATOR, paths_above, split_key
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
    """Answers by path: the key without a trailing slash.

    Args:
        timer: monotonic seconds.
        policies: see `Ages`.

    Attributes:
        ages: how old answers may be.
        local: what this mount knows better than S3, and so comes first.
        listings, stretches: whole directories, and some of their names.
    """

    def __init__(
        self, timer: Callable[[], float], config: MetadataConfig | None = None, policies: PathPolicies | None = None
    ) -> None:
        self._timer = timer
        self.ages = Ages(timer, config or MetadataConfig(), policies or PathPolicies())
        self.local = LocalNames(timer)
        is_minimal = self.ages.is_minimal_everywhere
        room, max_answers = (MAX_MINIMAL_ENTRIES, MAX_MINIMAL_ANSWERS) if is_minimal else (MAX_ENTRIES, MAX_ANSWERS)
        self.listings = Listings(timer, self.ages, room, max_answers)
        self.stretches = Stretches()
        self._answers: LRUCache[str, Record | Absence] = LRUCache(max_answers)
        self._changes = 0
        self._hits = 0
        self._misses = 0

    @property
    def changes(self) -> int:
        """How often something new was said of a path; while it stays, so does what is known of any."""
        return self._changes + self.listings.changes

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
        """Whether a listing or a stretch asked for since a time lacks a path, and nothing newer is known of it."""
        newest = self._newest(path)
        if isinstance(newest, Absence) and newest.asked_at >= since and newest is not self._answers.get(path):
            return True
        stretch = self.stretches.get(split_key(path)[0])
        if stretch is None or stretch.asked_at < max(since, self.listings.not_before):
            return False
        return (newest is None or newest.asked_at < stretch.asked_at) and stretch.lacks(path)

    def recall(self, path: str, found: ObjectStat | None, asked_at: float) -> Record | None:
        """The record of an inode that there was no room for; None when it has expired or anything is known here."""
        record = self.ages.record(path, found, asked_at)
        is_too_old = asked_at < self.listings.not_before or record.expires_at <= self._timer()
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
        listing = self.listings.last(directory_key)
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
        if found is not None or path not in self.local.ghosts:
            self._keep(path, record)
        return record

    def put_absent(self, path: str, asked_at: float) -> Absence:
        """Record that nothing is under a path; without a negative TTL only what it contradicts is forgotten."""
        absence = self.ages.absence(path, asked_at)
        self._keep(path, absence)
        return absence

    def made(self, path: str, found: ObjectStat | None) -> None:
        """This mount put something under a path, None for a directory: no listing asked for before shows it."""
        self.local.ghosts.forget(path)
        self._replace(path, self.ages.record(path, found, self._timer()))

    def gone(self, path: str) -> None:
        """This mount removed what was under a path: listings asked for before may show it."""
        self._replace(path, self.ages.absence(path, self._timer()))

    def newer(self, path: str, asked_at: float) -> Record | Absence | None:
        """The last answer about a path, good or not, if it is to a question of that time or later."""
        newest = self._newest(path)
        return newest if newest is not None and newest.asked_at >= asked_at else None

    def _keep(self, path: str, answer: Record | Absence) -> None:
        """Keep the newest answer, if it is good or contradicts another."""
        newest = self._newest(path)
        if answer.asked_at < self.listings.not_before or (newest is not None and answer.asked_at < newest.asked_at):
            return
        is_news = newest is not None and not newest.says_the_same_as(answer)
        if answer.expires_at > self._timer() or is_news:
            self._changes += is_news or newest is None
            self._answers[path] = answer
        listed = self._listed(path)
        if is_news or (listed is not None and not listed.says_the_same_as(answer)):
            self.listings.mark(split_key(path)[0], answer.asked_at)

    def drop(self, path: str) -> None:
        """Forget one path, and that its directory's listing is whole: something contradicted it.

        An answer to a question asked before does not bring it back.
        """
        now = self._timer()
        self._replace(path, Absence(now, now, is_known=False))

    def _replace(self, path: str, answer: Record | Absence) -> None:
        """Whatever was known, and is known here."""
        self._changes += 1
        self._answers[path] = answer
        self.listings.mark(split_key(path)[0], answer.asked_at)

    def drop_below(self, directory_key: str) -> None:
        """Forget a directory, everything in it, and why it cannot be; with an empty key all: what a refresh does.

        Takes time in proportion to what is kept.  Answers on their way to any path are not kept.
        """
        self._changes += 1
        for path in [path for path in self._answers if path.startswith(directory_key)]:
            self._answers.pop(path, None)
        if directory_key:
            self.drop(directory_key.removesuffix(SEPARATOR))
        for path in paths_above(directory_key):
            known = self._newest(path)
            if known is not None and (isinstance(known, Absence) or known.found is not None):
                self.drop(path)
        self.listings.drop_below(directory_key)

    def statistics(self) -> MetadataStatistics:
        """A snapshot of the counters."""
        listings = self.listings
        return MetadataStatistics(len(self._answers), len(listings), listings.n_names, self._hits, self._misses)

    def check_invariants(self) -> None:
        """Raises ValueError when an answer is good for too long or misfiled."""
        self.local.check_invariants()
        self.listings.check_invariants()
        self.stretches.check_invariants()
        for path, answer in self._answers.items():
            self.ages.check(path, answer)
            if isinstance(answer, Record) and path.endswith(SEPARATOR):
                raise ValueError(f"the record path {path!r} ends in a slash")
