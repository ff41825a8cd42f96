"""What of a file being changed is here, what is in the version it is based on, and what is zeros.

    local     written since, or fetched; wins over the others
    base      below `base_stop`: the version in S3 shows through where nothing is local
    zeros     everything else below the size: holes of seeks, and what a truncation cut off and a later one gave back

A truncation to less ends the base there for good: what comes after it later is zeros, as on any disk.

Local bytes stay local when they are published; then they are no longer a change.

INVARIANT: base_stop <= size, and no local byte lies beyond the size.
INVARIANT: every changed byte is local.
"""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from s3mount.core.ranges import ByteRange, Coverage, gaps


class Source(Enum):
    """Where bytes are."""

    LOCAL = "local"
    BASE = "base"
    ZEROS = "zeros"


class Piece(NamedTuple):
    """Bytes of the file, all from one source; never empty."""

    span: ByteRange
    source: Source


class Extents:
    """The bytes of one file by where they are.

    Args:
        base_size: bytes of the version it is based on; 0 where there is none.
        base_stop: bytes of it that show through; the whole version if not given.
    """

    def __init__(self, base_size: int = 0, base_stop: int | None = None) -> None:
        self._base_size = base_size
        self._base_stop = base_size if base_stop is None else base_stop
        self._size = self._base_stop
        self._local = Coverage()
        self._changed = Coverage()

    @property
    def size(self) -> int:
        """Bytes of the file now."""
        return self._size

    @property
    def base_size(self) -> int:
        """Bytes of the base version."""
        return self._base_size

    @property
    def base_stop(self) -> int:
        """Bytes of the base version that show through: the `old_size` of `core.uploads.plan_parts`."""
        return self._base_stop

    @property
    def is_changed(self) -> bool:
        """Whether the file differs from its base."""
        return len(self._changed) > 0 or not self._base_stop == self._base_size == self._size

    @property
    def changes(self) -> list[ByteRange]:
        """What was written, in order: the `changed` of `core.uploads.plan_parts`."""
        return list(self._changed)

    @property
    def appended(self) -> ByteRange | None:
        """What was added at the end, if nothing else happened to the base."""
        tail = ByteRange(self._base_size, self._size) if self._size > self._base_size > 0 else None
        is_plain = self._base_stop == self._base_size and all(span.start >= self._base_size for span in self._changed)
        return tail if is_plain else None

    def write(self, span: ByteRange) -> None:
        """Bytes were written here; beyond the end they leave zeros behind."""
        self._local.add(span)
        self._changed.add(span)
        if span.length:
            self._size = max(self._size, span.stop)

    def fetched(self, span: ByteRange) -> None:
        """Bytes of the base are here, too; all of them lie below the size."""
        self._local.add(span)

    def truncate(self, size: int) -> None:
        """The file has that size now."""
        cut = ByteRange(size, max(size, self._size))
        self._local.discard(cut)
        self._changed.discard(cut)
        self._base_stop = min(self._base_stop, size)
        self._size = size

    def published(self) -> None:
        """S3 has the file as it is: that version is the base now."""
        self._base_size = self._base_stop = self._size
        self._changed = Coverage()

    def pieces(self, wanted: ByteRange) -> list[Piece]:
        """Where the bytes of a range are, in order; what lies beyond the end is left out."""
        wanted = ByteRange(min(wanted.start, self._size), min(wanted.stop, self._size))
        missing = self._local.missing(wanted)
        found = [Piece(span, Source.LOCAL) for span in gaps(wanted, missing)]
        base, hole = ByteRange(0, self._base_stop), ByteRange(self._base_stop, self._size)
        found += [Piece(span.intersection(base), Source.BASE) for span in missing if span.overlaps(base)]
        found += [Piece(span.intersection(hole), Source.ZEROS) for span in missing if span.overlaps(hole)]
        return sorted(found, key=lambda piece: piece.span)

    @classmethod
    def restored(cls, base_size: int, base_stop: int, size: int, changes: Iterable[ByteRange]) -> "Extents":
        """The extents that had these properties, with nothing local but the changes."""
        extents = cls(base_size, base_stop)
        extents.truncate(size)
        for span in changes:
            extents.write(span)
        return extents

    def check_invariants(self) -> None:
        """Raises ValueError when an invariant of the module does not hold."""
        self._local.check_invariants()
        self._changed.check_invariants()
        if self._base_stop > min(self._size, self._base_size):
            raise ValueError(f"{self._base_stop} bytes of {self._base_size} show through in {self._size}")
        if self._local.missing(ByteRange(0, self._size)) != gaps(ByteRange(0, self._size), self._local):
            raise ValueError("coverage is not what it iterates over")
        if any(span.stop > self._size for span in self._local):
            raise ValueError(f"local bytes lie beyond the end at {self._size}")
        if not all(self._local.holds(span) for span in self._changed):
            raise ValueError("changed bytes are not local")
