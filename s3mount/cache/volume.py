"""One directory of the disk cache, put together: reads that may miss, writes that never wait.

The index, the policy, the counters and the queue belong to the loop; threads get what they need as
arguments and hand back what they found.
"""

import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import trio

from s3mount.cache.descriptors import OpenBlock, OpenBlocks
from s3mount.cache.directory import BlockDirectory
from s3mount.cache.faults import Faults
from s3mount.cache.patience import PatientReader
from s3mount.cache.space import Limits, SpaceKeeper, WriteJob
from s3mount.cache.stock import Stock
from s3mount.cache.upkeep import Upkeep
from s3mount.cache.verification import BlockCounts, OnProgress, verify_directory
from s3mount.cache.writing import MAX_QUEUED, BlockWriter
from s3mount.core.blockfile import HEADER_BYTES
from s3mount.core.epochs import EvictionPolicy
from s3mount.core.lru import BlockIndex, KnownBlock
from s3mount.units import MIB, counted, format_size

#: Descriptors of this process: sockets to S3 need up to 1,024 more.
_OPEN_BLOCKS = 512
#: The reads of one pass over a block are one use; no epoch is shorter.
USE_GRAIN_S = 1.0
#: A stop waits no longer than that for a disk that hangs.
_LAST_TOUCHES_S = 1.0
#: Removed in one go when a user asks for room.
_EVICT_STEP = 64 * MIB
#: How often, and after how many seconds each, it is tried again while another process evicts, which takes milliseconds.
_EVICT_TRIES = 20
_EVICT_AGAIN_S = 0.1


@dataclass
class VolumeStatistics:
    """Counters of one directory; sizes in bytes.

    Attributes:
        blocks, n_bytes: known to be on disk.
        hits, misses: reads answered, or not, as a whole.
        bypassed: reads not tried, because the disk is slow or failing; late: given up.
        corrupt: blocks that were wrong and were removed.
        dropped: blocks not written, because the disk is slower than the network, or failing.
        refused: blocks not written, because those that are here are worth more.
        errors: by verb and errno.
    """

    blocks: int
    n_bytes: int
    hits: int
    misses: int
    bypassed: int
    late: int
    corrupt: int
    written: int
    evicted: int
    dropped: int
    refused: int
    open_blocks: int
    queued_bytes: int
    errors: dict[str, int]

    def __str__(self) -> str:
        """One line for people."""
        counts = {
            name: getattr(self, name) for name in ("written", "evicted", "dropped", "refused", "bypassed", "corrupt")
        }
        told = ", ".join(f"{count} {name}" for name, count in (counts | self.errors).items())
        size = f"{counted(self.blocks, 'block')}, {format_size(self.n_bytes)}"
        return f"{size}; {counted(self.hits, 'hit')}, {self.misses} missed; {told}"


class Volume:
    """The blocks of one directory.

    Args:
        group: gid of those who share it; None for one user.
        clock: seconds since the epoch.
        timer: monotonic seconds, callable in any thread.
        grain_s: uses of a block closer together are one.
        max_queued: bytes that may wait to be written.

    Attributes:
        reads: the reading side.
        stock: the side of who asks on purpose.
    """

    def __init__(
        self,
        path: Path,
        limits: Limits,
        group: int | None = None,
        *,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.perf_counter,
        grain_s: float = USE_GRAIN_S,
        max_queued: int = MAX_QUEUED,
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._directory = BlockDirectory(path, group)
        self._opened = OpenBlocks(_OPEN_BLOCKS)
        self._index = BlockIndex(grain_s)
        self._policy = EvictionPolicy()
        self._keeper = SpaceKeeper(self._directory, self._opened, self._index, limits, self._policy)
        self._faults = Faults(path, timer)
        self._writer = BlockWriter(self._directory, self._keeper, self._index, self._faults, clock, max_queued)
        self._upkeep = Upkeep(
            self._directory, self._opened, self._index, self._keeper, self._writer, self._faults, clock
        )
        self.stock = Stock(self._directory, self._opened, self._index, self._keeper, self._writer, self._upkeep, clock)
        self.reads = PatientReader(self._directory, self._opened, self._index, self._faults, timer, self._note_use)

    def prepare(self) -> None:
        """Make the directory and check it.

        Raises:
            BadOption: it cannot be used.
        """
        self._directory.prepare()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write, evict and scan while the block lasts; then keep the last uses."""
        async with trio.open_nursery() as nursery:
            for task in (self._write, self._upkeep.run, self._upkeep.scan, self.reads.watch):
                nursery.start_soon(task)
            try:
                yield
            finally:
                nursery.cancel_scope.cancel()
                self.reads.close()
                self._opened.close()
        with trio.CancelScope(shield=True, deadline=trio.current_time() + _LAST_TOUCHES_S):
            try:
                await self._upkeep.flush()
            except OSError as error:
                self._faults.note("touch", error)

    async def _write(self) -> None:
        """What is on disk counts in `max_bytes`, so it is looked at first; statvfs knows the disk at once."""
        if math.isfinite(self._limits.max_bytes):
            await self._upkeep.is_scanned.wait()
        await self._writer.run()

    def _note_use(self, block: OpenBlock) -> None:
        now = self._clock()
        if block.name not in self._index:  # another process wrote it, or the scan has not come to it
            self._index.add(KnownBlock(block.name, HEADER_BYTES + block.header.span.length, now))
        elif not self._index.use(block.name, now):
            return
        self._policy.note_hit()
        self._upkeep.note_use(block.name, now)

    def knows(self, name: bytes) -> bool:
        """Whether a block is known to be on disk, and the disk is read from."""
        return name in self._index and self.reads.is_on

    def put(self, job: WriteJob) -> None:
        """Keep a block, if the disk keeps up and the policy gives it room."""
        self._writer.put(job)

    async def drained(self) -> None:
        """Wait until what was put in is written or given up."""
        await self._writer.drained()

    async def evict(self, n_bytes: float = math.inf) -> int:
        """Remove the least recently used blocks, at least so many bytes of them if there are. Returns the bytes.

        What another process used since is asked for again in its turn, and all of it goes in the end.
        """
        removed = refused = 0
        await self._upkeep.is_scanned.wait()
        while removed < n_bytes:
            victims = self._index.take(int(min(n_bytes - removed, _EVICT_STEP)), math.inf)
            try:
                kept = await self._writer.evict(victims)
            except OSError as error:
                self._faults.note("evict", error)
                break
            removed += sum(block.n_bytes for block in victims) - sum(block.n_bytes for block in kept)
            refused = refused + 1 if kept == victims else 0
            if not victims or refused > _EVICT_TRIES:
                break
            if refused:
                await trio.sleep(_EVICT_AGAIN_S)
        return removed

    async def verify(self, on_progress: OnProgress) -> BlockCounts:
        """Read every block that is on disk, and remove those that are wrong."""
        counts = await verify_directory(self._directory, self._opened, self._faults, on_progress)
        for name in counts.removed:
            self._index.discard(name)
        self.reads.corrupt += len(counts.removed)
        return counts

    async def scanned(self) -> None:
        """Wait until everything that was on disk at the start is known."""
        await self._upkeep.is_scanned.wait()

    def give_back(self) -> None:
        """Memory that is kept for the next reads and writes goes to the kernel."""
        self._directory.buffers.give_back()

    def statistics(self) -> VolumeStatistics:
        """A snapshot of the counters."""
        return VolumeStatistics(
            blocks=len(self._index),
            n_bytes=self._index.n_bytes,
            hits=self.reads.hits,
            misses=self.reads.misses,
            bypassed=self.reads.bypassed,
            late=self.reads.late,
            corrupt=self.reads.corrupt,
            written=self._writer.written,
            evicted=self._writer.evicted,
            dropped=self._writer.dropped,
            refused=self._writer.refused,
            open_blocks=len(self._opened),
            queued_bytes=self._writer.queued_bytes,
            errors=self._faults.counts(),
        )

    def check_invariants(self) -> None:
        """Raises ValueError when a part contradicts itself."""
        self._index.check_invariants()
        self._opened.check_invariants()
        self._policy.check_invariants()
        self._writer.check_invariants()
