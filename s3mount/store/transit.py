"""The memory of parts on their way: between the socket and our callback they lie in the CRT's pool.

The pool is made of blocks of 16 chunks, and a GET takes whole chunks.  The CRT's own limit counts bytes, not
chunks: 128 GETs of 1 MiB took eight blocks of 128 MiB where its limit was one (measured).  So what is in
flight is counted here, in chunks, before the CRT hears of it, until the CRT is done with it.

A body on its way out lies in memory that the CRT allocates for it alone; it is counted here as if it were a GET's.

Who waits is served in order: what is fetched ahead cannot starve what a reader waits for by much, since `fs.budget`
bounds it.

INVARIANT: 0 <= used <= total; somebody waits only while the first in the queue does not fit.
"""

from collections import deque
from dataclasses import dataclass

import trio

from s3mount.units import KIB, MIB

# aws-c-s3, s3_default_buffer_pool.c, version of awscrt 0.38:
#: Chunks of a block, and of the largest buffer that comes out of one.
_CHUNKS = 16
_CHUNKS_OF_A_PART = 4
#: What is not larger is allocated by itself.
_ALONE = 512 * KIB
#: What the CRT takes off its `memory_limit` for all that it does not count.
_RESERVE = 128 * MIB
#: It accepts no `memory_limit` below 256 MiB.
MIN_TRANSIT = 128 * MIB
_PAGE = 4 * KIB


@dataclass(frozen=True)
class TransitStatistics:
    """Bytes in all and on their way, and GETs that wait for others to end."""

    total: int
    used: int
    waiting: int


class Transit:
    """Bytes that may be on their way at once.

    Args:
        total: bytes; at least `MIN_TRANSIT`, and one part.

    Attributes:
        total: as given.
        part_size: the largest GET, bytes.
        pool_part_size: what the CRT is told, of which it makes its chunks.  A quarter of a part: small GETs waste
            little, and a part still comes out of a block.  Where a block would be more than may be on its
            way, a part, for which the CRT has no blocks: it allocates just what each GET brings.
        pool_limit: the CRT's `memory_limit`, with which it never waits for memory.
    """

    def __init__(self, total: int, part_size: int) -> None:
        chunk = -(-part_size // _CHUNKS_OF_A_PART // _PAGE) * _PAGE
        has_blocks = _CHUNKS * chunk <= total
        self.part_size = part_size
        self.pool_part_size = chunk if has_blocks else part_size
        self.pool_limit = -(-(total + (_CHUNKS * chunk if has_blocks else 0) + _RESERVE) // MIB) * MIB
        self._chunk = chunk if has_blocks else 1
        self.total = total
        self._used = 0
        self._queue: deque[tuple[int, trio.Event]] = deque()

    async def enter(self, n_bytes: int) -> int:
        """Wait until a GET of so many bytes fits, with 0 not at all; returns what `leave` is to be called with.

        Raises:
            ValueError: it is more than there can ever be.
        """
        taken = self._taken_by(n_bytes)
        if not taken:
            return 0
        if taken > self.total:
            raise ValueError(f"a GET of {n_bytes} bytes can never be on its way: {self.total} may be")
        if not self._queue and self._used + taken <= self.total:
            self._used += taken
            return taken
        granted = trio.Event()
        ticket = (taken, granted)
        self._queue.append(ticket)
        try:
            await granted.wait()
        except trio.Cancelled:  # never after it was granted: a task that was woken is not cancelled there
            self._queue.remove(ticket)
            self._serve()
            raise
        return taken

    def leave(self, taken: int) -> None:
        """The CRT has let go of a GET's memory."""
        self._used -= taken
        self._serve()

    def _taken_by(self, n_bytes: int) -> int:
        return n_bytes if n_bytes <= _ALONE else -(-n_bytes // self._chunk) * self._chunk

    def _serve(self) -> None:
        while self._queue and self._used + self._queue[0][0] <= self.total:
            taken, granted = self._queue.popleft()
            self._used += taken
            granted.set()

    def statistics(self) -> TransitStatistics:
        """A snapshot of the counters."""
        return TransitStatistics(self.total, self._used, len(self._queue))

    def check_invariants(self) -> None:
        """Raises ValueError when more is on its way than may be, or somebody waits for nothing."""
        if not 0 <= self._used <= self.total:
            raise ValueError(f"{self._used} of {self.total} bytes are on their way")
        if self._queue and self._used + self._queue[0][0] <= self.total:
            raise ValueError("a GET waits that fits")
