"""The streams of one object: which reads go on from which.

A stream is a run of bytes that were asked for, from `start` to the `frontier`, and it belongs to
the object, not to a descriptor.  A read belongs to a stream when it starts at most the stream's
slack beyond the frontier, or at most `DISORDER` reads behind it.

    evidence              slack: how far beyond the frontier a read still belongs
    --------------------  ---------------------------------------------------------------------
    one read              `LARGEST_UNIT` (256 KiB): to fetch the gap costs less than to jump it
    more                  what the stream advanced, at most `DISORDER` of its longest read

So random reads of an object cannot be taken for streams by its being small, and kernel read-ahead
in any order is one stream: early on, because runs that come to touch are merged (also one that
grows downward), later because the slack spans all that the kernel keeps in flight.

A stream is left when its readers made `patience` reads elsewhere and none in it; patience grows
with what it advanced.  The least recently used of `MAX_STREAMS` goes.

INVARIANT: 0 <= start < frontier, and neither frontier nor reach is past the object's end.
"""

from dataclasses import dataclass

from s3mount.core.distance import LARGEST_UNIT
from s3mount.core.ranges import ByteRange
from s3mount.units import MIB

#: Reads that the kernel's read-ahead has in flight, in any order (measured: 9 to 12).
DISORDER = 12
#: Readers of one object that are told apart: the worker threads of a host.  A jump scans them.
MAX_STREAMS = 32
#: Reads elsewhere until a stream is given up: a few, or as many as a round trip's worth of them.
_LEAST_PATIENCE, _MOST_PATIENCE = 3, 8


@dataclass(slots=True, eq=False)
class Stream:
    """One run.

    Attributes:
        start: its lowest byte.
        frontier: the end of the furthest read.
        advanced: bytes by which reads moved the frontier, gaps not counted.
        advances: how many reads did.
        longest: the longest read, bytes.
        slack: how far beyond the frontier a read still belongs.
        low, high: a read that starts between them belongs.
        reach: the end of what was planned ahead; the frontier if nothing was.
        next_plan_at: a read that ends before has nothing new to plan.
        seen_at: the number of reads elsewhere when it was last read.
    """

    start: int
    frontier: int
    advanced: int
    longest: int
    seen_at: int
    advances: int = 1
    slack: int = LARGEST_UNIT
    low: int = 0
    high: int = 0
    reach: int = 0
    next_plan_at: int = 0

    @property
    def patience(self) -> int:
        """Reads elsewhere after which it is left."""
        return min(_LEAST_PATIENCE + self.advanced // (2 * MIB), _MOST_PATIENCE)

    def settle(self) -> None:
        """Where reads belong, after one that changed the stream."""
        self.slack = min(self.advanced, DISORDER * self.longest) if self.advances > 1 else 0
        self.slack = max(LARGEST_UNIT, self.slack)
        self.low = max(self.start, self.frontier - DISORDER * self.longest)
        self.high = self.frontier + self.slack

    def advance(self, wanted: ByteRange) -> bool:
        """Take a read that belongs here; returns whether it moved the frontier."""
        if wanted.stop <= self.frontier:
            return False
        self.advanced += wanted.stop - max(wanted.start, self.frontier)
        self.advances += 1
        self.frontier = wanted.stop
        self.longest = max(self.longest, wanted.stop - wanted.start)
        self.settle()
        return True

    def absorb(self, other: "Stream") -> None:
        """Become one with a run that touches this one."""
        self.start = min(self.start, other.start)
        self.frontier = max(self.frontier, other.frontier)
        self.reach = max(self.reach, other.reach)
        self.longest = max(self.longest, other.longest)
        self.advances += other.advances
        self.advanced += other.advanced
        self.settle()

    def restart(self) -> None:
        """It has to earn everything again."""
        self.advances = 1
        self.advanced = min(self.advanced, self.longest)
        self.reach = self.frontier
        self.settle()


class StreamTable:
    """Files each read of an object with its stream.

    Attributes:
        starts: reads that began a stream, less the merged ones: how often readers jumped.
    """

    def __init__(self) -> None:
        self._streams: list[Stream] = []  # least recently used first
        self._evicted: list[ByteRange] = []
        self._elsewhere = 0
        self.starts = 0

    def find(self, offset: int) -> Stream | None:
        """The stream a read from an offset belongs to; the most recent, or the one it continues exactly."""
        found = None
        for stream in reversed(self._streams):
            if stream.low <= offset <= stream.high:
                if stream.frontier == offset:
                    return stream
                found = found or stream
        return found

    def find_again(self, offset: int) -> Stream | None:
        """As `find`, for a read that needs no plan."""
        stream = self.find(offset)
        if stream is not None:
            self._touch(stream)
        return stream

    def _touch(self, stream: Stream) -> None:
        stream.seen_at = self._elsewhere
        if self._streams[-1] is not stream:
            self._streams.remove(stream)
            self._streams.append(stream)

    def clear(self) -> None:
        """Forget where the readers are, not how often they jumped."""
        self._streams.clear()
        self._evicted.clear()

    def runs(self) -> list[ByteRange]:
        """What the streams went through."""
        return [ByteRange(stream.start, stream.frontier) for stream in self._streams]

    def follow(self, wanted: ByteRange) -> tuple[Stream, bool]:
        """File a read: its stream, and whether the read moved the frontier (a first read does)."""
        stream = self.find(wanted.start)
        has_advanced = stream is not None and stream.advance(wanted)
        if stream is None:
            stream = self._grown_downward(wanted)
        if stream is None:
            return self._begin(wanted), True
        self._touch(stream)
        self._merge(stream)
        return stream, has_advanced

    def _begin(self, wanted: ByteRange) -> Stream:
        self._elsewhere += 1
        self.starts += 1
        length = wanted.stop - wanted.start
        stream = Stream(wanted.start, wanted.stop, length, length, self._elsewhere, reach=wanted.stop)
        stream.settle()
        self._streams.append(stream)
        if len(self._streams) > MAX_STREAMS:
            evicted = self._streams.pop(0)
            if evicted.reach > evicted.frontier:
                self._evicted.append(ByteRange(evicted.frontier, evicted.reach))
        return stream

    def _grown_downward(self, wanted: ByteRange) -> Stream | None:
        for stream in self._streams:
            if wanted.start < stream.start <= wanted.stop <= stream.frontier:
                longest = max(stream.longest, wanted.stop - wanted.start)
                if stream.frontier - stream.start <= DISORDER * longest:
                    stream.start, stream.longest = wanted.start, longest
                    stream.settle()
                    return stream
        return None

    def _merge(self, stream: Stream) -> None:
        """Join runs that came to touch: read-ahead that arrived out of order."""
        for other in self._streams:
            low, high = (stream, other) if stream.start <= other.start else (other, stream)
            is_touching = low.start < high.start <= low.frontier
            if is_touching and abs(high.frontier - low.frontier) <= DISORDER * high.longest:
                self._streams.remove(other)
                self.starts -= 1
                stream.absorb(other)
                return

    def take_left(self) -> tuple[ByteRange, ...]:
        """What was planned ahead for streams that are left, or evicted; they must earn it again."""
        left, self._evicted = self._evicted, []
        for stream in self._streams:
            if stream.reach > stream.frontier and self._elsewhere - stream.seen_at >= stream.patience:
                left.append(ByteRange(stream.frontier, stream.reach))
                stream.restart()
        return tuple(left)

    def __len__(self) -> int:
        return len(self._streams)

    def check_invariants(self, size: int) -> None:
        """Raises ValueError when there are too many streams, or one lies outside the object."""
        if len(self._streams) > MAX_STREAMS:
            raise ValueError(f"{len(self._streams)} streams in one object")
        if any(not 0 <= each.start < each.frontier <= size for each in self._streams):
            raise ValueError("a stream's frontier lies outside its object")
        if any(each.reach > size for each in self._streams):
            raise ValueError("a stream's window lies outside its object")
