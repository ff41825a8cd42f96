"""What S3 can say about a path, with the time it was asked: something, nothing, or a whole directory."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Union

from s3mount.core.attrs import ObjectStat
from s3mount.core.listing import Entry

_by_name = attrgetter("name")


@dataclass(frozen=True, slots=True)
class Record:
    """What is under a path.

    Attributes:
        found: the object, or None for a directory.
        asked_at, expires_at: on the cache's timer.
    """

    found: ObjectStat | None
    asked_at: float
    expires_at: float

    def says_the_same_as(self, other: Union["Record", "Absence"]) -> bool:
        """Whether the other names the same thing, at whatever time."""
        return isinstance(other, Record) and other.found == self.found


@dataclass(frozen=True, slots=True)
class Absence:
    """Nothing is under a path; when it expired as it was asked, nothing is known."""

    asked_at: float
    expires_at: float

    def says_the_same_as(self, other: Union[Record, "Absence"]) -> bool:
        """Whether the other is an absence too."""
        return isinstance(other, Absence)


class Listing:
    """A whole directory.

    Attributes:
        asked_at: when its first page was asked for, on the cache's timer.
        is_whole: nothing contradicted it since.

    INVARIANT: `entries` is in order of name, each name once.
    """

    __slots__ = ("asked_at", "entries", "is_whole")

    def __init__(self, entries: Sequence[Entry], asked_at: float, *, is_whole: bool = True) -> None:
        self.entries: Sequence[Entry] = sorted(entries, key=_by_name)
        self.asked_at = asked_at
        self.is_whole = is_whole

    def get(self, name: str) -> Entry | None:
        """The entry of a name."""
        at = bisect_left(self.entries, name, key=_by_name)
        return self.entries[at] if at < len(self.entries) and self.entries[at].name == name else None

    def check_invariants(self) -> None:
        """Raises ValueError when the names are not in order, or one is there twice."""
        names = [entry.name for entry in self.entries]
        if names != sorted(set(names)):
            raise ValueError("the listing is not in order, or has a name twice")
