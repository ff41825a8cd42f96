"""The streams of one object: which reads go on from which.

A stream is a run of bytes that were asked for, from `start` to the `frontier`, and it belongs to
the object, not to a descriptor (`core.stream`).

A stream is left when its readers made `patience` reads elsewhere and none in it; those that begin
within half a round trip count as one, since workers start together.  Where readers take turns, the
longest gap that was seen between two reads of one stream must have passed twice, too.  A stream that
was untouched for longer than that gap has ended.  The least recently used of `MAX_STREAMS` goes.

INVARIANT: 0 <= start < frontier, and neither frontier nor reach is past the object's end.
"""

from math import inf

from s3mount.core.ranges import ByteRange
from s3mount.core.stream import DISORDER, Stream

#: Readers of one object that are told apart: the worker threads of a host.  A jump scans them.
MAX_STREAMS = 32
#: How much of the longest gap between two reads of one stream is believed at the next jump.
_GAP_KEPT = 7 / 8
#: Runs that begin between two reads of one reader, when there are several.
_SEVERAL = 3
#: Runs from which the next one's length is expected.
_LEAST_RUNS = 4


class StreamTable:
    """Files each read of an object with its stream.

    Attributes:
        starts: reads that began a stream, less the merged ones: how often readers jumped.
    """

    def __init__(self) -> None:
        self._streams: list[Stream] = []  # least recently used first
        self._evicted: list[ByteRange] = []
        self._elsewhere = 0
        self._waves = 0
        self._wave_at = -inf
        self._gap = 0.0
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
        self._gap = max(self._gap, self._elsewhere - stream.seen_at)
        stream.seen_at, stream.seen_wave = self._elsewhere, self._waves
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

    def ahead(self) -> list[int]:
        """Bytes that are planned beyond the end of the furthest read, of each stream."""
        return [max(0, stream.reach - stream.frontier) for stream in self._streams]

    def side_by_side(self) -> int:
        """Bytes that the last `MAX_STREAMS` runs went through; 0 unless several readers take turns."""
        return sum(stream.advanced for stream in self._streams) if self._gap >= _SEVERAL else 0

    def usual_run(self) -> int:
        """What three of four runs reached at least, bytes; 0 while there are few.

        Runs that may still go on are not counted.
        """
        ended = (stream for stream in self._streams if self._elsewhere - stream.seen_at > self._gap)
        lengths = sorted(stream.frontier - stream.start for stream in ended)
        return lengths[len(lengths) // 4] if len(lengths) >= _LEAST_RUNS else 0

    def follow(self, wanted: ByteRange, now: float = 0.0, beside_s: float = 0.0) -> tuple[Stream, bool]:
        """File a read: its stream, and whether the read moved the frontier (a first read does).

        Args:
            beside_s: runs that begin within such a time leave nobody: workers that start together.
        """
        stream = self.find(wanted.start)
        has_advanced = stream is not None and stream.advance(wanted)
        if stream is None:
            stream = self._grown_downward(wanted)
        if stream is None:
            if now - self._wave_at >= beside_s:
                self._wave_at = now
                self._waves += 1
            return self._begin(wanted), True
        self._touch(stream)
        self._merge(stream)
        return stream, has_advanced

    def _begin(self, wanted: ByteRange) -> Stream:
        self._elsewhere += 1
        self._gap *= _GAP_KEPT
        self.starts += 1
        length = wanted.stop - wanted.start
        stream = Stream(wanted.start, wanted.stop, length, length, self._elsewhere, self._waves, reach=wanted.stop)
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
            is_unread = self._elsewhere - stream.seen_at >= 2 * self._gap
            if stream.reach > stream.frontier and is_unread and self._waves - stream.seen_wave >= stream.patience:
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
