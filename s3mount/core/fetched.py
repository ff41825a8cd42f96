"""What was fetched of an object before, so that read-ahead does not fetch it for a second time.

Windows of several streams overlap: what one reader had and the kernel keeps, the window of the
reader behind it must not bring again.  Only a read that asks for such bytes, and does not find
them held, shows that they are needed once more; then all that was known is forgotten.

INVARIANT: at most `MAX_RANGES` ranges.
"""

from collections.abc import Iterable

from s3mount.core.ranges import ByteRange, Coverage

#: Cells of random reads do not merge; a stream is one range however long.
MAX_RANGES = 4096


class FetchedRanges:
    """Takes from plans what was fetched before.

    Attributes:
        coverage: what was.
    """

    def __init__(self) -> None:
        self.coverage = Coverage()

    def forget(self) -> None:
        """All of it may be gone."""
        self.coverage = Coverage()

    def never_came(self, span: ByteRange) -> None:
        """The budget had no room, or it was cancelled."""
        self.coverage.discard(span)

    def note_miss(self, wanted: ByteRange) -> None:
        """A read whose bytes are not all held."""
        if len(self.coverage) > MAX_RANGES or self.coverage.holds(wanted):
            self.forget()

    def take_new(
        self, wanted: ByteRange, fetch: ByteRange, ahead: Iterable[ByteRange]
    ) -> tuple[ByteRange, tuple[ByteRange, ...]]:
        """What is new of a demand fetch for `wanted`, and of what lies ahead; both count as fetched then.

        The demand stays one range that holds the read; what of it lies behind a gap comes first ahead.
        """
        start, stop = wanted
        later = []
        for piece in self.coverage.missing(fetch):
            if piece.overlaps(wanted):
                start, stop = min(start, piece.start), max(stop, piece.stop)
            elif piece.start >= stop:
                later.append(piece)
        self.coverage.add(ByteRange(start, stop))
        for span in ahead:
            later += self.coverage.missing(span)
        for piece in later:
            self.coverage.add(piece)
        return ByteRange(start, stop), tuple(later)
