"""What the bucket said: single paths, absent names, whole directories.

* A record says what is under one path: the object, or that it is a directory.
* An absence says that nothing is.  Kept only with a negative TTL: in the minimal mode unknown names
  always ask.
* A listing is a whole directory, one object with one time for all its names.  Kept only with a TTL.
  It answers for every name in the directory, and for every name that is not in it.

Of two answers about a path the NEWER one counts, by when S3 was asked; if that has expired, nothing
is known: an older answer with a longer life does not come back.  So an expired absence stays in the
table as long as anything older could be good, and a dropped path leaves a mark: an absence that
expired when it was made.  A mark on a directory's own key says that a listing asked for before is
not whole: it answers for single names, by their age, but not for the directory.

The kernel is told only what is left of an answer's time, so daemon and kernel together are never
older than the TTL.  A hit never extends anything.

Bounded by entries: the least recently used go first.  A listing larger than all the room is not kept.

Synchronous and without a clock of its own: the timer is injected.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cachetools import TTLCache

from s3mount.cache.answers import Absence, Listing, Record
from s3mount.core.attrs import ObjectStat
from s3mount.core.keys import SEPARATOR, is_directory_key
from s3mount.core.listing import Entry
from s3mount.core.ttl import MINIMAL, TimeToLive

#: Names kept in listings, and answers about single paths: under 500 bytes for each name listed.
MAX_ENTRIES = 1_000_000
#: In the minimal mode everything is gone after a second; more would only be memory.
MAX_RECORDS = 100_000


@dataclass(frozen=True)
class MetadataConfig:
    """Attributes: for how long to believe what is there, and what is not."""

    ttl: TimeToLive = MINIMAL
    negative_ttl: TimeToLive = MINIMAL


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
    """

    def __init__(self, timer: Callable[[], float], config: MetadataConfig | None = None) -> None:
        config = config or MetadataConfig()
        self._timer = timer
        self._ttl = config.ttl
        self._negative_ttl = config.negative_ttl
        is_minimal = config.ttl.is_minimal and config.negative_ttl.is_minimal
        room = MAX_RECORDS if is_minimal else MAX_ENTRIES
        kept_s = max(config.ttl.seconds, config.negative_ttl.seconds)
        self._answers: TTLCache[str, Record | Absence] = TTLCache(room, kept_s, timer=timer)
        self._listings: TTLCache[str, Listing] = TTLCache(
            room, kept_s, timer=timer, getsizeof=lambda listing: len(listing.entries) + 1
        )
        self._not_before = -math.inf
        self._hits = 0
        self._misses = 0

    @property
    def fresh_s(self) -> float:
        """For how long the kernel may use an answer that cannot become wrong, in seconds."""
        return self._ttl.kernel_limit_s

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

    def _newest(self, path: str) -> Record | Absence | None:
        """The last answer about a path, whether it is still good or not."""
        alone: Record | Absence | None = self._answers.get(path)
        listed = self._listed(path)
        if alone is None or listed is None:
            return listed if alone is None else alone
        return listed if listed.asked_at > alone.asked_at else alone

    def _listed(self, path: str) -> Record | Absence | None:
        if self._ttl.is_minimal:  # no listings; every name of every page passes here
            return None
        directory_key, name = _split(path)
        listing = self._listings.get(directory_key)
        if listing is None:
            return None
        entry = listing.get(name)
        if entry is not None:
            return Record(entry.found, listing.asked_at, listing.asked_at + self._ttl.seconds)
        return self._absence(listing.asked_at)

    def _absence(self, asked_at: float) -> Absence:
        return Absence(asked_at, asked_at if self._negative_ttl.is_minimal else asked_at + self._negative_ttl.seconds)

    def put(self, path: str, found: ObjectStat | None, asked_at: float) -> Record:
        """Record what is under a path.

        An answer to an earlier question does not replace one to a later question, nor one that was
        dropped after it was asked.
        """
        record = Record(found, asked_at, asked_at + self._ttl.seconds)
        self._keep(path, record)
        return record

    def put_absent(self, path: str, asked_at: float) -> Absence:
        """Record that nothing is under a path; without a negative TTL only what it contradicts is forgotten."""
        absence = self._absence(asked_at)
        self._keep(path, absence)
        return absence

    def _keep(self, path: str, answer: Record | Absence) -> None:
        """Keep the newest answer, if it is good or contradicts another."""
        newest = self._newest(path)
        if answer.asked_at < (self._not_before if newest is None else max(newest.asked_at, self._not_before)):
            return
        is_news = newest is not None and not newest.says_the_same_as(answer)
        if answer.expires_at > self._timer() or is_news:
            self._answers[path] = answer
        listed = self._listed(path)
        if listed is not None and not listed.says_the_same_as(answer):
            self._mark_directory(_split(path)[0], answer.asked_at)

    def may_keep_listing(self, n_entries: int) -> bool:
        """Whether a directory of so many names would be kept as a whole."""
        return not self._ttl.is_minimal and n_entries < self._listings.maxsize

    def put_listing(self, directory_key: str, entries: Sequence[Entry], asked_at: float) -> None:
        """Record a whole directory, as of when its first page was asked for."""
        held, mark = self._listings.get(directory_key), self._answers.get(directory_key)
        is_newest = asked_at >= self._not_before and (held is None or held.asked_at <= asked_at)
        if is_newest and self.may_keep_listing(len(entries)):
            is_whole = mark is None or mark.asked_at <= asked_at
            self._listings[directory_key] = Listing(entries, asked_at, is_whole=is_whole)

    def listing(self, directory_key: str) -> Listing | None:
        """A directory that need not be listed again yet."""
        listing = self._listings.get(directory_key)
        if listing is None or not listing.is_whole or listing.asked_at + self._ttl.seconds <= self._timer():
            return None
        return listing

    def remaining(self, answer: Record | Absence) -> float:
        """Seconds the kernel may still use an answer for."""
        limit = self._ttl if isinstance(answer, Record) else self._negative_ttl
        return min(max(0.0, answer.expires_at - self._timer()), limit.kernel_limit_s)

    def remaining_since(self, asked_at: float) -> float:
        """Seconds the kernel may still use what S3 said is there when it was asked at that time."""
        return min(max(0.0, asked_at + self._ttl.seconds - self._timer()), self._ttl.kernel_limit_s)

    def drop(self, path: str) -> None:
        """Forget one path, and that its directory's listing is whole: something contradicted it.

        An answer to a question asked before does not bring it back.
        """
        now = self._timer()
        self._answers[path] = Absence(now, now)
        self._mark_directory(_split(path)[0], now)

    def _mark_directory(self, directory_key: str, at: float) -> None:
        if self._ttl.is_minimal:
            return
        self._answers[directory_key] = Absence(at, at)
        listing = self._listings.get(directory_key)
        if listing is not None:
            listing.is_whole = False

    def drop_below(self, directory_key: str) -> None:
        """Forget a directory and everything in it, or with an empty key all: what a refresh does.

        Takes time in proportion to what is kept.  Answers on their way to any path are not kept.
        """
        for table in (self._answers, self._listings):
            for key in [key for key in table if key.startswith(directory_key)]:
                table.pop(key, None)
        if directory_key:
            self.drop(directory_key.removesuffix(SEPARATOR))
        self._not_before = self._timer()

    def statistics(self) -> MetadataStatistics:
        """A snapshot of the counters."""
        listed = int(self._listings.currsize) - len(self._listings)
        return MetadataStatistics(len(self._answers), len(self._listings), listed, self._hits, self._misses)

    def check_invariants(self) -> None:
        """Raises ValueError when an answer is good for too long or misfiled, or a listing is not in order."""
        for path, answer in self._answers.items():
            ttl = self._ttl if isinstance(answer, Record) else self._negative_ttl
            if answer.expires_at > self._timer() + ttl.seconds:
                raise ValueError(f"the record of {path!r} is fresh for longer than allowed")
            if isinstance(answer, Record) and path.endswith(SEPARATOR):
                raise ValueError(f"the record path {path!r} ends in a slash")
        for key, listing in self._listings.items():
            listing.check_invariants()
            if listing.asked_at > self._timer() or not is_directory_key(key):
                raise ValueError(f"the listing of {key!r} is from the future, or not of a directory")


def _split(path: str) -> tuple[str, str]:
    """The key of the directory that a path is in, and its name there."""
    parent, separator, name = path.rpartition(SEPARATOR)
    return parent + separator, name
