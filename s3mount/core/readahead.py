"""The planner: which bytes to fetch for a read, and which to fetch ahead of the next one.

State lives per object, not per file descriptor: descriptors that forked processes share and
processes that read the same file are one set of streams.

A read belongs to a stream when it starts within `SLACK` of the stream's frontier (the end of
the furthest read).  Kernel read-ahead arrives out of order and must not look like seeking.
A read that belongs to no stream starts one; the least recently used of `MAX_STREAMS` goes.

    progress of the stream       demand fetch grows to       ahead of the frontier
    ---------------------------  --------------------------  ---------------------------
    first read, at offset 0      `HEAD` (1 MiB)              nothing
    first read, elsewhere        `RANDOM_UNIT` (128 KiB)     nothing: it may be random
    second read that advances    `HEAD`                      2 parts
    n-th read that advances      to the end of the part      2^(n-1) parts, at most AHEAD_PARTS
    a read that does not         `RANDOM_UNIT`               what the stream had

A demand fetch is aligned to the unit it grows to, but starts at most `HEAD` before the read: a
stream that begins inside a part must not download what it jumped over.

The window ahead is cut to `ahead_limit` bytes, the caller's share of the one byte budget, and
to the end of the object.  A read behind the frontier is given what lies between, too.  Files
of at most `SMALL_FILE` are always fetched whole.

The module decides only; `fs.blocks` subtracts what it has and fetches the rest.
"""

from dataclasses import dataclass
from typing import NamedTuple

from s3mount.core.ranges import ByteRange, aligned, split
from s3mount.units import KIB, MIB

#: One request: below this size the round trip costs more than the bytes (decision 5).
SMALL_FILE = MIB
#: The kernel's default read-ahead, and so the size of a buffered random read.
RANDOM_UNIT = 128 * KIB
#: Enough to answer the first reads while the window opens; less makes the ramp stall.
HEAD = MIB
#: Kernel read-ahead keeps a handful of 128 KiB requests in flight, in any order.
SLACK = MIB
#: Readers of one object that are told apart; more would make a random load look like streams.
MAX_STREAMS = 16
#: 8 parts of 8 MiB keep 25 connections of 90 MB/s busy for 30 ms: one S3 round trip.
AHEAD_PARTS = 8


class Plan(NamedTuple):
    """What to have for a read.

    Attributes:
        fetch: contains the read; what of it is missing is fetched on demand.
        ahead: in order of need; fetched only while the budget has room.
    """

    fetch: ByteRange
    ahead: tuple[ByteRange, ...]


@dataclass(slots=True)
class _Stream:
    """Attributes: end of the furthest read; reads that moved it; where to plan again."""

    frontier: int
    advances: int = 1
    next_plan_at: int = 0

    @property
    def window_parts(self) -> int:
        return min(1 << min(self.advances - 1, 30), AHEAD_PARTS)

    @property
    def is_wide(self) -> bool:
        return self.window_parts == AHEAD_PARTS


class Planner:
    """Plans the reads of one object.

    Args:
        size: of the object, in bytes.
        part_size: the largest single GET, in bytes.
    """

    def __init__(self, size: int, part_size: int) -> None:
        self._size = size
        self._part_size = part_size
        self._streams: list[_Stream] = []  # least recently used first

    def on_open(self) -> ByteRange:
        """What `open` starts to fetch without waiting: a small file whole, else its head."""
        return ByteRange(0, min(self._size, SMALL_FILE if self._size <= SMALL_FILE else HEAD, self._part_size))

    def on_hit(self, wanted: ByteRange) -> bool:
        """Note a read that needs no fetch; False when `on_read` would have more to say.

        It has nothing to say while the frontier stays in the part it is in, once the stream's
        window is open to its full width: the hot path of a sequential reader.
        """
        if self._size <= min(SMALL_FILE, self._part_size):
            return True
        if not self._streams:
            return False
        stream = self._streams[-1]
        if abs(wanted.start - stream.frontier) > SLACK or not stream.is_wide:
            return False
        if wanted.stop >= stream.next_plan_at:
            return False
        if wanted.stop > stream.frontier:
            stream.frontier = wanted.stop
            stream.advances += 1
        return True

    def on_read(self, wanted: ByteRange, ahead_limit: int) -> Plan:
        """Plan one read.

        Args:
            wanted: not empty, within the object.
            ahead_limit: bytes that may be in flight or unread ahead of this reader.
        """
        if self._size <= min(SMALL_FILE, self._part_size):
            return Plan(ByteRange(0, self._size), ())
        stream, has_advanced = self._follow(wanted)
        fetch = self._demand(wanted, stream, has_advanced=has_advanced)
        if stream.advances < 2:
            return Plan(fetch, ())
        stream.next_plan_at = (stream.frontier // self._part_size + 1) * self._part_size
        return Plan(fetch, self._ahead(stream, fetch, ahead_limit))

    def _follow(self, wanted: ByteRange) -> tuple[_Stream, bool]:
        """The stream of a read, and whether the read moved its frontier."""
        for at in reversed(range(len(self._streams))):
            stream = self._streams[at]
            if abs(wanted.start - stream.frontier) <= SLACK:
                self._streams.append(self._streams.pop(at))
                has_advanced = wanted.stop > stream.frontier
                if has_advanced:
                    stream.frontier = wanted.stop
                    stream.advances += 1
                return stream, has_advanced
        stream = _Stream(wanted.stop)
        self._streams.append(stream)
        del self._streams[:-MAX_STREAMS]
        return stream, True

    def _demand(self, wanted: ByteRange, stream: _Stream, *, has_advanced: bool) -> ByteRange:
        if not has_advanced:
            unit = RANDOM_UNIT
        elif stream.advances == 1:
            unit = HEAD if wanted.start == 0 else RANDOM_UNIT
        else:
            unit = HEAD if stream.advances == 2 else self._part_size
        grown = aligned(wanted, min(unit, self._part_size), self._size)
        return ByteRange(max(grown.start, wanted.start // HEAD * HEAD), grown.stop)

    def _ahead(self, stream: _Stream, fetch: ByteRange, ahead_limit: int) -> tuple[ByteRange, ...]:
        reach = stream.frontier + min(stream.window_parts * self._part_size, ahead_limit)
        reach = min(reach // self._part_size * self._part_size, self._size) if reach < self._size else self._size
        if reach <= fetch.stop:
            return ()
        return tuple(split(ByteRange(fetch.stop, reach), self._part_size))

    def check_invariants(self) -> None:
        """Raises ValueError when there are too many streams, or one lies outside the object."""
        if len(self._streams) > MAX_STREAMS:
            raise ValueError(f"{len(self._streams)} streams in one object")
        if any(not 0 < stream.frontier <= self._size for stream in self._streams):
            raise ValueError("a stream's frontier lies outside its object")
