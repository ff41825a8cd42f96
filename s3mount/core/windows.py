"""How much of a stream is fetched for a read that advances it, and ahead of its frontier.

The rows of the table of `core.readahead` for streams.  A step is a read that advances, and
`READAHEAD` bytes: a small read does not earn what a large one does.

A trusted stream doubles its window at each step, whatever it has read, because the first second
of a long sequential read is most of its delay.  One that is not trusted, in an object whose
readers jump, has ahead what it advanced: of a run that ends anywhere at most half is wasted.
"""

from s3mount.core.distance import power_of_two
from s3mount.core.ranges import ByteRange, aligned, split
from s3mount.core.streams import Stream
from s3mount.units import KIB, MIB

#: The kernel's default read-ahead, and so the size of a buffered sequential read.
READAHEAD = 128 * KIB
#: Enough to answer the first reads while the window opens; less makes the ramp stall.
HEAD = MIB
#: 8 parts of 8 MiB keep 25 connections of 90 MB/s busy for 30 ms: one S3 round trip.
AHEAD_PARTS = 8
#: Below this a window is no larger than the demand fetch beside it.
_LEAST_WINDOW = MIB // 2
#: Smaller GETs cost more CPU than they save memory: 0.2 ms each (docs/performance.md).
_LEAST_PART = MIB // 2


def part_within(part_size: int, limit: int) -> int:
    """The largest GET of a stream that may have `limit` bytes ahead: so much is fetched on demand, too."""
    return part_size if limit >= part_size else min(max(power_of_two(limit), _LEAST_PART), part_size)


class Window:
    """What a stream has earned.

    Args:
        stream: after the read that is planned.
        part_size: the largest single GET, bytes.
        is_trusted: whether it may be given more than it has read.
    """

    __slots__ = ("_is_trusted", "_part_size", "_stream")

    def __init__(self, stream: Stream, part_size: int, *, is_trusted: bool) -> None:
        self._stream = stream
        self._part_size = part_size
        self._is_trusted = is_trusted

    @property
    def _steps(self) -> int:
        return min(self._stream.advances, self._stream.advanced // READAHEAD + 1, AHEAD_PARTS)

    def demand(self, wanted: ByteRange, cell: ByteRange, size: int) -> ByteRange:
        """What to fetch for a read that advances the stream: at least the cell of a random one."""
        unit = self._unit
        if unit <= cell.length:
            return cell
        grown = aligned(wanted, min(unit, self._part_size), size)
        return ByteRange(max(grown.start, wanted.start // HEAD * HEAD), grown.stop)

    @property
    def _unit(self) -> int:
        stream = self._stream
        if stream.advances == 1:
            return HEAD if stream.start == 0 else 0
        if not self._is_trusted:
            return power_of_two(2 * stream.advanced)
        steps = self._steps
        if steps > 2:
            return self._part_size
        return HEAD if steps == 2 or stream.start == 0 else 0

    def ahead(self, start: int, limit: int, size: int) -> tuple[ByteRange, ...]:
        """What to fetch ahead from an offset on, in pieces of at most a part; notes it in the stream.

        Args:
            limit: bytes from the frontier on.
        """
        stream, part_size = self._stream, self._part_size
        window = self._length
        grain = part_size if window >= part_size else min(MIB, part_size)
        is_steady = stream.advances > 1 and (not self._is_trusted or window == AHEAD_PARTS * part_size)
        stream.next_plan_at = (stream.frontier // grain + 1) * grain if is_steady else 0
        reach = stream.frontier + min(window, limit)
        reach = reach // grain * grain if reach < size else size
        if window == 0 or reach <= start:
            return ()
        stream.reach = max(stream.reach, reach)
        return tuple(split(ByteRange(start, reach), part_size))

    @property
    def _length(self) -> int:
        stream = self._stream
        if stream.advances == 1:
            return 0
        if not self._is_trusted:
            return min(stream.advanced, AHEAD_PARTS * self._part_size) if stream.advanced >= _LEAST_WINDOW else 0
        steps = self._steps if stream.start == 0 else self._steps - 1
        return min(1 << (steps - 1), AHEAD_PARTS) * self._part_size if steps >= 2 else 0
