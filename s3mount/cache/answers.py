"""What S3 can say about a path, with the time it was asked: something, nothing, or a whole directory."""

from dataclasses import dataclass
from typing import Union

from s3mount.core.attrs import ObjectStat
from s3mount.core.entry_pages import EntryPages


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
    """Nothing is under a path.

    Attributes:
        is_known: False where something contradicted what was known, and nobody asked since.
    """

    asked_at: float
    expires_at: float
    is_known: bool = True

    def says_the_same_as(self, other: Union[Record, "Absence"]) -> bool:
        """Whether the other is an absence too."""
        return isinstance(other, Absence)


@dataclass(slots=True)
class Listing:
    """A whole directory.

    Attributes:
        asked_at: when its first page was asked for, on the cache's timer.
        is_whole: nothing contradicted it since.
    """

    entries: EntryPages
    asked_at: float
    is_whole: bool = True
