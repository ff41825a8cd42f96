"""Where every chunk of the process is filed by what it is worth, and dropped from.

    pending, wanted            never dropped while its object is open
    pending, speculative       cancelled last, newest first: it is the one needed last
    ready, not read to the end dropped before those, oldest first
    ready, read to the end     dropped first, oldest first; beyond `keep_read` bytes at once

A pinned chunk is in none of these queues, so nothing can drop it under its reader.

Methods that drop return the bytes that became free at once; the caller gives them to the
budget.  A cancelled GET still holds its bytes until it ended; `ended` returns them then.

INVARIANT: a chunk is in at most one queue, and in none while it is pinned or gone.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import TypedDict

from s3mount.core.ranges import ByteRange
from s3mount.fs.chunks import Chunk, ChunkList, ChunkState

#: Pieces of a part that are fetched again with it, so that it is one GET and not three: at most 1/32.
_PIECES_SHARE = 16


class ShelfStatistics(TypedDict):
    """Chunks in flight and held, bytes of both, and bytes fetched that nobody read."""

    pending: int
    ready: int
    held_bytes: int
    wasted_bytes: int


@dataclass(frozen=True)
class BlockStatistics:
    """Objects open, chunks in flight and held, bytes of both, and bytes nobody read.

    Attributes:
        windows, window_bytes, widest_bytes: readers that are read ahead for, how far in all, and the furthest.
    """

    objects: int
    windows: int
    window_bytes: int
    widest_bytes: int
    pending: int
    ready: int
    held_bytes: int
    wasted_bytes: int


class ChunkShelf:
    """Files chunks, and gives bytes back when the budget asks (`fs.budget.Reclaimer`).

    Args:
        keep_read: bytes of chunks read to the end that may stay for readers that lag behind.
    """

    def __init__(self, *, keep_read: int) -> None:
        self._keep_read = keep_read
        self._speculative: OrderedDict[Chunk, None] = OrderedDict()
        self._unread: OrderedDict[Chunk, None] = OrderedDict()
        self._read: OrderedDict[Chunk, None] = OrderedDict()
        self._read_bytes = 0
        self._cancelling_bytes = 0
        self._pending = 0
        self._ready = 0
        self._held_bytes = 0
        self._wasted_bytes = 0

    def put(self, chunk: Chunk) -> None:
        """A GET starts; its bytes were taken from the budget."""
        chunk.owner.add(chunk)
        self._pending += 1
        self._held_bytes += chunk.span.length
        self._file(chunk)

    def ended(self, chunk: Chunk) -> int:
        """A GET ended, one way or another."""
        self._pending -= 1
        self._unfile(chunk)
        if chunk.state is ChunkState.GONE:
            self._cancelling_bytes -= chunk.span.length
            return self._let_go(chunk)
        if chunk.flight.is_failed:
            chunk.state = ChunkState.GONE
            chunk.owner.remove(chunk)
            return self._let_go(chunk)
        chunk.state = ChunkState.READY
        self._ready += 1
        self._file(chunk)
        return 0

    def pin(self, chunk: Chunk) -> None:
        """A reader waits for the chunk, or copies from it."""
        self._unfile(chunk)
        chunk.pins += 1
        chunk.is_wanted = True

    def pin_all(self, chunks: ChunkList, wanted: ByteRange) -> list[Chunk]:
        """Keep the chunks of a range from being dropped, until each is unpinned."""
        pinned = chunks.overlapping(wanted)
        for chunk in pinned:
            self.pin(chunk)
        return pinned

    def drop_pieces(self, chunks: ChunkList, part: ByteRange) -> int:
        """Remove small pieces that would cut one GET of a part in several."""
        pieces = [chunk for chunk in chunks.overlapping(part) if chunk.is_idle]
        if sum(chunk.span.length for chunk in pieces) > part.length // _PIECES_SHARE:
            return 0
        return sum(self.drop(chunk) for chunk in pieces)

    def unpin(self, chunk: Chunk) -> int:
        """The reader is done with it."""
        chunk.pins -= 1
        return self.read_to_end(chunk)

    def read_to_end(self, chunk: Chunk) -> int:
        """File a chunk anew after a reader got bytes of it."""
        self._unfile(chunk)
        self._file(chunk)
        freed = 0
        while self._read_bytes > self._keep_read:
            freed += self.drop(next(iter(self._read)))
        return freed

    def drop(self, chunk: Chunk) -> int:
        """Remove a chunk, whoever wants it; a pending one is cancelled."""
        if chunk.state is ChunkState.GONE:
            return 0
        self._unfile(chunk)
        was_ready = chunk.state is ChunkState.READY
        chunk.state = ChunkState.GONE
        chunk.owner.remove(chunk)
        if was_ready:
            self._ready -= 1
            self._wasted_bytes += chunk.span.length - chunk.read.length
            return self._let_go(chunk)
        self._cancelling_bytes += chunk.span.length
        chunk.scope.cancel()
        return 0

    def cancel_speculation(self, chunk: Chunk) -> bool:
        """Drop a chunk that is on its way for a reader who went elsewhere, unless another one wants it."""
        if chunk not in self._speculative:
            return False
        self.drop(chunk)
        return True

    def reclaim(self, n_bytes: int, *, for_demand: bool) -> int:
        """See `Reclaimer.reclaim`."""
        freed = self._drop_oldest(self._read, n_bytes)
        if not for_demand:
            return freed
        freed += self._drop_oldest(self._unread, n_bytes - freed)
        while self._speculative and freed + self._cancelling_bytes < n_bytes:
            self.drop(next(reversed(self._speculative)))
        return freed

    def _drop_oldest(self, queue: OrderedDict[Chunk, None], n_bytes: int) -> int:
        freed = 0
        while queue and freed < n_bytes:
            freed += self.drop(next(iter(queue)))
        return freed

    def _file(self, chunk: Chunk) -> None:
        if chunk.pins or chunk.state is ChunkState.GONE:
            return
        if chunk.state is ChunkState.PENDING:
            if not chunk.is_wanted:
                self._speculative[chunk] = None
        elif chunk.is_read:
            self._read[chunk] = None
            self._read_bytes += chunk.span.length
        else:
            self._unread[chunk] = None

    def _unfile(self, chunk: Chunk) -> None:
        self._speculative.pop(chunk, None)
        self._unread.pop(chunk, None)
        if self._read.pop(chunk, chunk) is None:
            self._read_bytes -= chunk.span.length

    def _let_go(self, chunk: Chunk) -> int:
        self._held_bytes -= chunk.span.length
        return chunk.span.length

    def statistics(self) -> ShelfStatistics:
        """A snapshot of the counters."""
        return ShelfStatistics(
            pending=self._pending,
            ready=self._ready,
            held_bytes=self._held_bytes,
            wasted_bytes=self._wasted_bytes,
        )

    def check_invariants(self) -> None:
        """Raises ValueError when a chunk is filed twice, or where it does not belong."""
        queues = {"speculative": self._speculative, "unread": self._unread, "read": self._read}
        chunks = [chunk for queue in queues.values() for chunk in queue]
        if len(chunks) != len(set(chunks)):
            raise ValueError("a chunk is filed twice")
        if any(chunk.pins or chunk.state is ChunkState.GONE for chunk in chunks):
            raise ValueError("a pinned or dropped chunk is filed")
        if self._read_bytes != sum(chunk.span.length for chunk in self._read):
            raise ValueError("the bytes of read chunks are miscounted")
        if min(self._pending, self._ready, self._held_bytes, self._cancelling_bytes) < 0:
            raise ValueError("a gauge is negative")
