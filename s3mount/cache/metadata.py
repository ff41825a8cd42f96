"""What the bucket said a moment ago about single keys.

One record per key: the object, or the fact that it is a directory.  A record is good for
`FRESH_S` after S3 said it, and the kernel is told only what is left of that, so that daemon and
kernel together are never older than that: what another client wrote is seen within a second.

Absence is not recorded: unknown names always ask.

Synchronous and without a clock of its own: the timer is injected.
"""

from collections.abc import Callable
from dataclasses import dataclass

from cachetools import TTLCache

from s3mount.core.attrs import ObjectStat

#: Seconds a record, and the kernel's copy of it, may be used without asking S3.
FRESH_S = 1.0
#: Records kept; at about 600 bytes each this is 60 MB at worst, and only for a second.
MAX_RECORDS = 100_000


@dataclass(frozen=True, slots=True)
class Record:
    """What is under a path.

    Attributes:
        found: the object, or None for a directory.
        expires_at: on the injected timer.
    """

    found: ObjectStat | None
    expires_at: float


@dataclass(frozen=True)
class MetadataStatistics:
    """Records held now, and look-ups answered and not answered by them since the start."""

    records: int
    hits: int
    misses: int


class MetadataCache:
    """Records by path: the key without a trailing slash.

    Args:
        timer: monotonic seconds.
        fresh_s: for how long a record is good.
    """

    def __init__(self, timer: Callable[[], float], *, fresh_s: float = FRESH_S) -> None:
        self._timer = timer
        self._fresh_s = fresh_s
        self._records: TTLCache[str, Record] = TTLCache(MAX_RECORDS, fresh_s, timer=timer)
        self._dropped_at: TTLCache[str, float] = TTLCache(MAX_RECORDS, fresh_s, timer=timer)
        self._hits = 0
        self._misses = 0

    @property
    def fresh_s(self) -> float:
        """For how long an answer is good, in seconds."""
        return self._fresh_s

    def get(self, path: str) -> Record | None:
        """What is known about a path, if it is fresh."""
        record: Record | None = self._records.get(path)
        # The table counts a record's time from when it was put, which is later than asked_at.
        if record is None or record.expires_at <= self._timer():
            self._misses += 1
            return None
        self._hits += 1
        return record

    def put(self, path: str, found: ObjectStat | None, asked_at: float) -> Record:
        """Record an answer; its age counts from when S3 was asked, not from when it answered.

        An answer to an earlier question does not replace one to a later question, nor one that was
        dropped after it was asked.
        """
        record = Record(found, asked_at + self._fresh_s)
        held = self._records.get(path)
        is_newest = held is None or held.expires_at <= record.expires_at
        is_newest = is_newest and asked_at >= self._dropped_at.get(path, asked_at)
        if is_newest and record.expires_at > self._timer():
            self._records[path] = record
        return record

    def remaining(self, record: Record) -> float:
        """Seconds the kernel may still use a record for."""
        return max(0.0, record.expires_at - self._timer())

    def remaining_since(self, asked_at: float) -> float:
        """Seconds the kernel may still use what S3 said when it was asked at that time."""
        return max(0.0, asked_at + self._fresh_s - self._timer())

    def drop(self, path: str) -> None:
        """Forget one path: something contradicted it, or this mount changed it.

        An answer to a question asked before does not bring the record back.
        """
        self._records.pop(path, None)
        self._dropped_at[path] = self._timer()

    def now(self) -> float:
        """The injected timer, for `put`."""
        return self._timer()

    def statistics(self) -> MetadataStatistics:
        """A snapshot of the counters."""
        return MetadataStatistics(len(self._records), self._hits, self._misses)

    def check_invariants(self) -> None:
        """Raises ValueError when a record outlived its time, or a path names a directory by slash."""
        now = self._timer()
        for path, record in self._records.items():
            if record.expires_at > now + self._fresh_s:
                raise ValueError(f"the record of {path!r} is fresh for longer than allowed")
            if path.endswith("/"):
                raise ValueError(f"the record path {path!r} ends in a slash")
