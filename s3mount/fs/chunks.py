"""Chunks: byte ranges of one object version, in flight or held, and who may drop them.

A chunk is one fetch: a GET, a read of the disk cache, or both.  It is pending until that ended,
then ready or gone.  Readers pin the chunks they wait for or copy from.  What is not pinned can be
given back to the budget, in this order: ready and read to its end, oldest first; ready but unread,
oldest first; still in flight and only speculative, newest first (it is the one needed last).

INVARIANT: the chunks of an object do not overlap; each holds exactly its length in the budget.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from enum import Enum
from itertools import pairwise

import trio

from s3mount.core.ranges import ByteRange, Coverage, gaps
from s3mount.core.waits import Arrival
from s3mount.fs.flight import Flight


class ChunkState(Enum):
    """Where a chunk is in its life."""

    PENDING = "pending"
    READY = "ready"
    #: Failed, cancelled or dropped: no longer in its object's list.
    GONE = "gone"


class Chunk:
    """One range of one version of an object.

    Attributes:
        owner: the list it is in while it is not gone.
        is_wanted: a reader asked for it; else it is speculation and may be cancelled.
        pins: readers that wait for it or copy from it; such a chunk is never dropped.
        flight: the fetch; its result is the bytes.
        arrival: when it got how far.
        scope: cancels it.
    """

    __slots__ = ("arrival", "flight", "is_wanted", "owner", "pins", "read", "scope", "span", "state")

    def __init__(self, owner: "ChunkList", span: ByteRange, *, is_wanted: bool) -> None:
        self.owner = owner
        self.span = span
        self.is_wanted = is_wanted
        self.state = ChunkState.PENDING
        self.pins = 0
        self.read = Coverage()
        self.flight: Flight[bytes | memoryview] = Flight()
        self.arrival = Arrival(trio.current_time())
        self.scope = trio.CancelScope()

    @property
    def is_read(self) -> bool:
        """Whether readers got every byte of it."""
        return self.read.holds(self.span)

    @property
    def is_idle(self) -> bool:
        """Whether it is held, and nobody is about to read it."""
        return self.state is ChunkState.READY and not self.pins

    def view(self, wanted: ByteRange) -> memoryview:
        """The common bytes of an ended chunk and `wanted`, without a copy.

        Raises:
            StoreError: the GET failed.
        """
        common = self.span.intersection(wanted)
        content = memoryview(self.flight.result())
        return content[common.start - self.span.start : common.stop - self.span.start]


class ChunkList:
    """The chunks of one object, in order."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._chunks: list[Chunk] = []

    def __iter__(self) -> Iterator[Chunk]:
        return iter(self._chunks)

    def __len__(self) -> int:
        return len(self._chunks)

    def overlapping(self, wanted: ByteRange) -> list[Chunk]:
        """The chunks that share a byte with `wanted`, in order."""
        first = max(0, bisect_right(self._starts, wanted.start) - 1)
        last = bisect_left(self._starts, wanted.stop)
        return [chunk for chunk in self._chunks[first:last] if chunk.span.overlaps(wanted)]

    def holding(self, wanted: ByteRange) -> Chunk | None:
        """The chunk that has every byte of `wanted`, if one has."""
        at = bisect_right(self._starts, wanted.start) - 1
        if at >= 0 and self._chunks[at].span.stop >= wanted.stop:
            return self._chunks[at]
        return None

    def missing(self, wanted: ByteRange) -> list[ByteRange]:
        """The parts of `wanted` that no chunk has or brings, in order."""
        return gaps(wanted, [chunk.span for chunk in self.overlapping(wanted)])

    def add(self, chunk: Chunk) -> None:
        """Put it where it belongs."""
        at = bisect_left(self._starts, chunk.span.start)
        self._starts.insert(at, chunk.span.start)
        self._chunks.insert(at, chunk)

    def remove(self, chunk: Chunk) -> None:
        """Take it out, if it is in."""
        at = bisect_left(self._starts, chunk.span.start)
        if at < len(self._chunks) and self._chunks[at] is chunk:
            del self._starts[at]
            del self._chunks[at]

    def check_invariants(self) -> None:
        """Raises ValueError when chunks overlap, are out of order, or one is gone."""
        for left, right in pairwise(self._chunks):
            if left.span.stop > right.span.start:
                raise ValueError(f"chunks {left.span} and {right.span} overlap")
        if any(chunk.state is ChunkState.GONE for chunk in self._chunks):
            raise ValueError("a chunk that is gone is still listed")
