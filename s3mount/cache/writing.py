"""Content on its way to one disk: a queue with an end, and the task that empties it.

Putting in never waits: when the disk is slower than the network, the queue is full and blocks are
dropped and counted.  The writer takes several blocks at once, since handing work to a thread costs
as much as writing a small one.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar, TypeVarTuple

import trio

from s3mount.cache.directory import BlockDirectory, Space
from s3mount.cache.faults import Faults, is_full
from s3mount.cache.space import Exchange, SpaceKeeper, WriteJob
from s3mount.core.blockfile import HEADER_BYTES, encode_header
from s3mount.core.lru import BlockIndex, KnownBlock
from s3mount.units import MIB

#: Replies of S3 that wait for one disk, beyond the read budget: eight parts.
MAX_QUEUED = 64 * MIB
#: One block of the largest size, or many small ones, for each hand-over to a thread.
_BATCH_BYTES = 8 * MIB
_BATCH_BLOCKS = 64
#: Between batches that follow each other the room is what the last one left: a hand-over to a thread less for each.
_LOOK_EVERY_S = 0.05

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class BlockWriter:
    """Writes blocks into one directory, into room that is there or made.

    Args:
        clock: seconds since the epoch.
        max_queued: bytes that may wait.
    """

    def __init__(
        self,
        directory: BlockDirectory,
        keeper: SpaceKeeper,
        index: BlockIndex,
        faults: Faults,
        clock: Callable[[], float],
        max_queued: int,
    ) -> None:
        self._max_queued = max_queued
        self._directory = directory
        self._keeper = keeper
        self._index = index
        self._faults = faults
        self._clock = clock
        self._limiter = trio.CapacityLimiter(1)
        self._queue: deque[WriteJob] = deque()
        self._names: dict[bytes, trio.Event] = {}
        self.queued_bytes = 0
        self._arrived = trio.Event()
        self._idle = trio.Event()
        self._space = Space(0, 0)
        self._look_again_at = -math.inf
        self.written = 0
        self.dropped = 0
        self.refused = 0
        self.evicted = 0

    def put(self, job: WriteJob) -> None:
        """Have a block written, unless it is there, or there is no room in the queue."""
        name = job.block.name
        if name in self._index or name in self._names:
            return
        if not self._has_room(len(job.content)) or not self._faults.may_write():
            self.dropped += 1
            return
        if 2 * len(job.content) < memoryview(job.content.obj).nbytes:  # a slice holds all of the reply
            job = replace(job, content=memoryview(bytes(job.content)))
        self._queue.append(job)
        self._names[name] = trio.Event()
        self.queued_bytes += len(job.content)
        self._arrived.set()

    def _has_room(self, n_bytes: int) -> bool:
        return self.queued_bytes + n_bytes <= self._max_queued

    async def wait_room(self, n_bytes: int) -> None:
        """Wait until the queue has room; before the next await nobody else takes it."""
        while not self._has_room(n_bytes) and self._names:
            await next(iter(self._names.values())).wait()

    async def wait_written(self, name: bytes) -> None:
        """Wait until a block that was put in was written, refused or dropped."""
        if (landed := self._names.get(name)) is not None:
            await landed.wait()

    async def drained(self) -> None:
        """Wait until everything put in so far was written, refused or dropped."""
        while self._names:
            await self._idle.wait()

    async def run(self) -> None:
        """Write what is put in, for ever."""
        while True:
            await self._arrived.wait()
            while self._queue:
                batch = self._next_batch()
                try:
                    await self._write(batch)
                finally:
                    for job in batch:
                        self._names.pop(job.block.name).set()
                    self.queued_bytes -= sum(len(job.content) for job in batch)
            self._arrived = trio.Event()
            self._idle.set()
            self._idle = trio.Event()

    def _next_batch(self) -> list[WriteJob]:
        batch = [self._queue.popleft()]
        n_bytes = batch[0].n_bytes
        while self._queue and len(batch) < _BATCH_BLOCKS and n_bytes + self._queue[0].n_bytes <= _BATCH_BYTES:
            batch.append(self._queue.popleft())
            n_bytes += batch[-1].n_bytes
        return batch

    async def _write(self, batch: list[WriteJob]) -> None:
        written: list[KnownBlock] = []
        try:
            if trio.current_time() >= self._look_again_at:
                self._space = await self._in_thread(self._look)
            exchange = self._keeper.plan(batch, self._space, self._clock())
            self.refused += exchange.refused
            kept = await self.evict(exchange.victims)
            if kept:  # less room than planned: the last ones go without
                lost = sum(victim.n_bytes for victim in kept)
                while exchange.jobs and lost > 0:
                    lost -= exchange.jobs.pop().n_bytes
                    self.dropped += 1
            written, failure, self._space = await self._in_thread(self._write_all, exchange.jobs)
            self._look_again_at = trio.current_time() + _LOOK_EVERY_S
        except OSError as error:
            failure, exchange = error, Exchange(batch, [])
        for block in written:
            self._index.add(block)
        self.written += len(written)
        self.dropped += len(exchange.jobs) - len(written)
        if failure is None:
            self._faults.note_good(self._faults.writing)
        else:
            self._look_again_at = -math.inf
            self._faults.note("write", failure, self._faults.writing)
            if is_full(failure):  # of inodes, or of a quota: statvfs did not say so
                await self._free(sum(job.n_bytes for job in exchange.jobs))

    async def _free(self, n_bytes: int) -> None:
        """Evict the oldest blocks for the next ones to come."""
        try:
            await self.evict(self._index.take(n_bytes, math.inf))
        except OSError as error:
            self._faults.note("evict", error)

    async def evict(self, victims: list[KnownBlock]) -> list[KnownBlock]:
        """Remove blocks that were taken from the index. Returns those that are still there, known again."""
        if not victims:
            return []
        try:
            kept, n_removed = await self._in_thread(self._keeper.evict, victims)
            self._keeper.put_back(kept)
        finally:
            self._index.settle(victims)
        self.evicted += n_removed
        return kept

    def _look(self) -> Space:
        if self._faults.writing.is_on:
            self._directory.restore()
        return self._directory.space()

    def _write_all(self, jobs: list[WriteJob]) -> tuple[list[KnownBlock], OSError | None, Space]:
        """The blocks written until one could not be, and the room after them."""
        written: list[KnownBlock] = []
        failure = None
        for job in jobs:
            header = encode_header(job.block, job.content)
            try:
                self._directory.write(job.block.name, header, job.content)
            except OSError as error:
                failure = error
                break
            written.append(KnownBlock(job.block.name, HEADER_BYTES + len(job.content), self._clock()))
        return written, failure, self._directory.space()

    async def _in_thread(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """A stop does not wait for a disk that hangs; what the thread does ends by itself, whole or not at all."""
        return await trio.to_thread.run_sync(function, *args, abandon_on_cancel=True, limiter=self._limiter)

    def check_invariants(self) -> None:
        """Raises ValueError when the queue is larger than it may be, or miscounted."""
        waiting = sum(len(job.content) for job in self._queue)
        if not waiting <= self.queued_bytes <= self._max_queued or len(self._queue) > len(self._names):
            raise ValueError("the queue to the disk is miscounted")
