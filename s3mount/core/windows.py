"""How much of a stream is fetched for a read that advances it, and ahead of its frontier.

The rows of the table of `core.readahead` for streams.  A step is a read that advances, and
`READAHEAD` bytes: a small read does not earn what a large one does.

A stream from offset 0 doubles its window at each step, whatever it has read, because the first
second of a long sequential read is most of its delay.  Any other has ahead what it advanced, so that
of a run that ends anywhere at most half is wasted, or a few times that while nobody is known to
jump: a first record of 1 MiB must not bring a window of 64.  Where the runs that ended have a usual
length, that is fetched at once, beside the cell that the reader waits for, and nothing more before
the run is longer.

The bound of a window is 8 parts, and doubles when its reader waits for a part that was planned
under the present bound: it is faster than the window.  Not when connections have slowed down since the
bound was doubled: then the network or the CPU is full, and more in flight only holds more memory.
So a stream has at most twice ahead what it has read, beyond 8 parts.
"""

from s3mount.core.distance import SMALLEST_UNIT, power_of_two
from s3mount.core.ranges import ByteRange, aligned, split
from s3mount.core.stream import Stream
from s3mount.units import KIB, MIB

#: The kernel's default read-ahead, and so the size of a buffered sequential read.
READAHEAD = 128 * KIB
#: Enough to answer the first reads while the window opens; less makes the ramp stall.
HEAD = MIB
#: 128 parts of 8 MiB are 8.7 GB/s at 30 ms and 90 MB/s: no reader takes more, nor are there more connections.
MOST_AHEAD_PARTS = 128
#: Twice the window has brought more only if each connection kept this share of its rate.
_KEPT_RATE = 0.7
#: Bytes ahead for each one read of a stream that is not from offset 0, while starts are few.
TRUSTED_FACTOR = 4
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
        factor: bytes ahead for each one read, of a stream that is not from offset 0.
        usual_run: bytes that such a stream may be expected to read in all; 0 if nothing is known.
    """

    __slots__ = ("_factor", "_part_size", "_stream", "_usual_run")

    def __init__(self, stream: Stream, part_size: int, factor: int, usual_run: int) -> None:
        self._stream = stream
        self._part_size = part_size
        self._factor = factor
        self._usual_run = usual_run

    # -- on demand --------------------------------------------------------------------------

    def demand(self, wanted: ByteRange, cell: ByteRange, size: int) -> ByteRange:
        """What to fetch for a read that advances the stream: at least the cell of a random one."""
        unit = min(self._unit, self._part_size)
        if unit <= cell.length:
            return cell
        grown = aligned(wanted, unit, size)
        return ByteRange(max(grown.start, wanted.start // HEAD * HEAD), grown.stop)

    @property
    def _unit(self) -> int:
        stream = self._stream
        if stream.start == 0:
            return self._part_size if self._steps > 2 else HEAD
        return 0 if stream.advances == 1 or self._is_expected else power_of_two(2 * stream.advanced)

    # -- ahead ------------------------------------------------------------------------------

    def ahead(self, start: int, limit: int, size: int) -> tuple[ByteRange, ...]:
        """What to fetch ahead from an offset on, in pieces of at most a part; notes it in the stream.

        Args:
            limit: bytes from the frontier on.
        """
        stream, part_size = self._stream, self._part_size
        window = self._length
        grain = part_size if window >= part_size else min(MIB, part_size)
        is_full = window == stream.widest * part_size
        step = part_size if is_full else min(MIB, part_size)
        is_steady = stream.advances > 1 and (is_full or stream.start > 0)
        stream.next_plan_at = (stream.frontier // step + 1) * step if is_steady else 0
        reach = stream.frontier + min(window, limit)
        reach = reach // grain * grain if reach < size else size
        if self._is_expected:
            reach = min(self._expected_stop, stream.frontier + limit, size)
        if reach <= start:
            return ()
        stream.reach = max(stream.reach, reach)
        if is_full and stream.widened_to == 0:
            stream.widened_to = stream.reach
        return tuple(split(ByteRange(start, reach), part_size))

    @property
    def _length(self) -> int:
        stream, part_size = self._stream, self._part_size
        if stream.advances == 1 or self._is_expected:
            return 0
        if stream.start > 0:
            earned = min(self._factor * stream.advanced, stream.widest * part_size)
            return earned if earned >= _LEAST_WINDOW else 0
        return min(1 << (self._steps - 1), stream.widest) * part_size if self._steps > 1 else 0

    def widen(self, rate: float) -> None:
        """A reader waits for what is on its way: twice the window, if that was planned under the present one.

        Args:
            rate: of one connection, bytes a second.
        """
        stream = self._stream
        if not 0 < stream.widened_to <= stream.frontier or rate < _KEPT_RATE * stream.rate:
            return
        if stream.widest < MOST_AHEAD_PARTS:
            stream.widest, stream.widened_to, stream.rate = 2 * stream.widest, 0, rate

    # -- evidence ---------------------------------------------------------------------------

    @property
    def _steps(self) -> int:
        return min(self._stream.advances, self._stream.advanced // READAHEAD + 1, MOST_AHEAD_PARTS.bit_length())

    @property
    def _is_expected(self) -> bool:
        return self._usual_run > 0 and self._stream.frontier <= self._expected_stop

    @property
    def _expected_stop(self) -> int:
        stop = self._stream.start + min(self._usual_run, self._part_size)
        return -(-stop // SMALLEST_UNIT) * SMALLEST_UNIT
