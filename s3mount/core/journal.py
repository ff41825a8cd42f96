"""The takeover record as it is written: entries appended, ended in place, and compacted.

Two areas take turns: the record of generation n is in area n modulo 2.  A compaction writes what still holds into
the other area, its heading last, and then clears the area it came from.  So at each moment one area has a
whole record, and the reader takes the newest.

A file's entry is ended when it is closed and revived when it is opened again, by one byte each: an epoch over files
that the record has room for writes nothing else.  A compaction drops what does not hold; whoever wants it
back adds it again.

A place names an entry for good: it counts bytes over all generations, so one of an area that was given up is
less than all that are valid.

INVARIANT: what is live is whole in the area of the current generation, from `commit` on.
INVARIANT: an area has no more than twice the bytes that held when it was begun, or `_MIN_LIMIT`, and one entry.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from s3mount.core.takeover import (
    LIVE,
    LIVE_AT,
    LIVE_UNSAVED,
    Bytes,
    Heading,
    RecordedInode,
    extent,
    hop,
    pack_heading,
    pack_inode,
    read_heading,
    read_inodes,
)
from s3mount.units import MIB

#: Room for 40,000 files, open or closed.  A compaction of it takes 10 ms of the loop; with less an epoch over as many
#: files writes more entries anew.
_MIN_LIMIT = 8 * MIB
#: Places that name no entry are less than all others.
NOWHERE = -1


class Area(Protocol):
    """Memory that outlives the process."""

    @property
    def content(self) -> Bytes:
        """All of it, zero where nothing was written; valid until the next call of `reserve` or `clear`."""
        ...

    def reserve(self, n_bytes: int) -> None:
        """Let it have at least that many bytes."""
        ...

    def clear(self) -> None:
        """Make it short and zero, and give its memory back."""
        ...


@dataclass(frozen=True)
class JournalStatistics:
    """Attributes: generation of the record, its bytes, entries added since the start."""

    generation: int
    bytes: int
    added: int


class Journal:
    """One record being written; not valid before `commit`.

    The heading has the greatest serial of what was dropped since the mount was made: none is given out twice.

    Args:
        heading: its generation is greater than that of any whole record in the areas.
    """

    def __init__(self, areas: tuple[Area, Area], heading: Heading) -> None:
        self._areas = areas
        self._base = self._end = self._added = 0
        self._serial = heading.serial
        self._begin(heading)

    def _begin(self, heading: Heading) -> None:
        self.heading = heading
        self._area = self._areas[heading.generation % 2]
        self._area.clear()
        self._content = self._area.content
        self._base += self._end
        self._end = self._first = len(pack_heading(heading))
        self._limit = _MIN_LIMIT

    def commit(self) -> None:
        """The record is valid, and the one before it is not needed any more."""
        self.heading = self.heading._replace(serial=self._serial)
        self._content[: self._first] = pack_heading(self.heading)
        self._areas[1 - self.heading.generation % 2].clear()
        self._limit = max(_MIN_LIMIT, 2 * self._end)

    def add(self, inode: RecordedInode) -> int:
        """A new entry that holds; returns its place."""
        self._added += 1
        self._serial = max(self._serial, inode.serial)
        place = self._append(pack_inode(*inode[:4]))
        if inode.is_unsaved:
            self.mark(place, is_unsaved=True)
        return place

    def _append(self, entry: bytes | bytearray) -> int:
        at = self._end
        end = self._end = at + len(entry)
        if end > len(self._content):
            self._area.reserve(end)
            self._content = self._area.content
        self._content[at:end] = entry
        return self._base + at

    def revive(self, place: int) -> bool:
        """Let an entry hold again; False when it is not there any more."""
        at = place - self._base
        if at < 0:
            return False
        self._content[at + LIVE_AT] = LIVE
        return True

    def mark(self, place: int, *, is_unsaved: bool) -> None:
        """Say of an entry that holds whether programs wrote what S3 does not have."""
        at = place - self._base
        if at >= 0 and self._content[at + LIVE_AT]:
            self._content[at + LIVE_AT] = LIVE_UNSAVED if is_unsaved else LIVE

    def end(self, place: int) -> None:
        """Let an entry not hold any more, if it is there."""
        at = place - self._base
        if at >= 0:
            self._content[at + LIVE_AT] = 0

    @property
    def is_bloated(self) -> bool:
        """Whether `compact` should be called before more is added."""
        return self._end > self._limit

    def compact(self, moved: Callable[[int, int], None]) -> None:
        """Drop what does not hold.

        Args:
            moved: called with (number of the inode, new place) of each entry that does.
        """
        old, at, end = self._content, self._first, self._end
        self._begin(self.heading._replace(generation=self.heading.generation + 1))
        while at < end:
            stop, is_live, ino = hop(old, at)
            if is_live:
                moved(ino, self._append(old[at:stop]))
            at = stop
        self.commit()

    def inodes(self) -> list[RecordedInode]:
        """What a successor would read."""
        return read_inodes(self._content)

    def statistics(self) -> JournalStatistics:
        """A snapshot of the counters."""
        return JournalStatistics(self.heading.generation, self._end, self._added)

    def check_invariants(self) -> None:
        """Raises ValueError when what a successor would read is not this record, or the other area has one, too."""
        if read_heading(self._content) != self.heading:
            raise ValueError(f"generation {self.heading.generation} has no heading, or a wrong one")
        if read_heading(self._areas[1 - self.heading.generation % 2].content) is not None:
            raise ValueError("there are two whole records")
        whole = extent(self._content)
        if whole != self._end:
            raise ValueError(f"{self._end} bytes were written, of which {whole} can be read")


def newest(areas: tuple[Area, Area]) -> tuple[Heading, Bytes] | None:
    """The valid record; None when no daemon ever finished one."""
    found = [(heading, area.content) for area in areas if (heading := read_heading(area.content)) is not None]
    return max(found, key=lambda each: each[0].generation, default=None)
