"""Reads of one directory that never fail, and never take much longer than S3.

Errors are misses.  A disk that is slower than S3, or that fails, is left alone for a while
(core.standstill); a read that hangs is given up, and its thread ends when the disk lets it.

Everything but `_read_and_clear` runs on the loop; threads get what they need as arguments.
"""

import math
from collections.abc import Callable

import trio

from s3mount.cache.descriptors import OpenBlock, OpenBlocks
from s3mount.cache.directory import BlockDirectory
from s3mount.cache.faults import Faults
from s3mount.cache.reading import NOTHING, BlockReader, Outcome
from s3mount.cache.threads import CallThreads
from s3mount.core.cells import CachedContent
from s3mount.core.lru import BlockIndex
from s3mount.core.ranges import ByteRange
from s3mount.core.standstill import Slowness
from s3mount.units import MIB

#: Reads in threads at once: what an NVMe serves in parallel, at 10 us of the GIL each.
_READERS = 16
#: Of large reads, which are the disk's bandwidth and not its latency: more would wait for each other there, and be
#: taken for a slow disk.
_LARGE_READERS = 4
_LARGE = MIB
#: A disk that takes four times as long as S3 is not waited for; below half a second it may be the scheduler.
_GIVE_UP_AFTER = 4
_LEAST_GIVE_UP_S = 0.5
_MISS = Outcome(NOTHING, NOTHING, [], [], [], is_hit=False)
#: An attempt on the loop that fails starts the read there, 200 us on a virtual machine; one that succeeds saves a
#: hand-over, 80 us.  When not most of them succeed, one in so many is made.
_ATTEMPT_EVERY = 16


class PatientReader:
    """Reads of one directory.

    Args:
        timer: monotonic seconds, callable in any thread.
        on_use: told each block that a read got bytes of.

    Attributes:
        hits, misses: reads answered or not.
        bypassed: misses that were not tried; late: given up; corrupt: wrong blocks found and removed.
    """

    def __init__(
        self,
        directory: BlockDirectory,
        opened: OpenBlocks,
        index: BlockIndex,
        faults: Faults,
        timer: Callable[[], float],
        on_use: Callable[[OpenBlock], None],
    ) -> None:
        self._directory = directory
        self._opened = opened
        self._reader = BlockReader(directory, opened)
        self._index = index
        self._faults = faults
        self._timer = timer
        self._on_use = on_use
        self._slowness = Slowness()
        self._turn = 0
        self._threads = CallThreads(_READERS, "disk cache")
        self._large = CallThreads(_LARGE_READERS, "disk cache")
        self.hits = self.misses = self.bypassed = self.late = self.corrupt = 0

    def get_nowait(self, content: CachedContent, span: ByteRange) -> memoryview | None:
        """Bytes of one block that is open and in the kernel's memory; None says nothing: `get` tells."""
        self._turn += 1
        is_vain = not self._reader.attempts.are_most and self._turn % _ATTEMPT_EVERY
        if is_vain or not self.is_on:
            return None
        try:
            outcome = self._reader.read_nowait(content, span)
        except OSError:
            return None
        if outcome is None:
            return None
        self._note(outcome)
        return outcome.before

    async def find(self, content: CachedContent, span: ByteRange, patience_s: float = math.inf) -> Outcome:
        """What this disk has at the two ends of a range; nothing for a miss, whatever the reason.

        Args:
            patience_s: what the same read would take from S3.
        """
        if not self._faults.may_read() or not self._slowness.lets_through(self._timer()):
            self.bypassed += 1
            self.misses += 1
            return _MISS
        give_up_s = max(_GIVE_UP_AFTER * patience_s, _LEAST_GIVE_UP_S)
        outcome, took_s = None, 0.0
        try:
            threads = self._large if span.length >= _LARGE else self._threads
            outcome, took_s, failure = await threads.run_for(give_up_s, self._read_and_clear, content, span)
            self._faults.note_good(self._faults.reading)
            if failure is not None:
                self._faults.note("remove", failure)
        except OSError as error:
            self._faults.note("read", error, self._faults.reading)
        except trio.TooSlowError:
            self.late += 1
            self._slowness.note(give_up_s, patience_s, self._timer())
        if outcome is None:
            self.misses += 1
            return _MISS
        if outcome.is_hit:
            self._slowness.note(took_s, patience_s, self._timer())
        self._note(outcome)
        return outcome

    async def watch(self) -> None:
        """Give up what hangs, for ever."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._threads.watch)
            nursery.start_soon(self._large.watch)

    def _read_and_clear(self, content: CachedContent, span: ByteRange) -> tuple[Outcome, float, OSError | None]:
        """What the disk has, how long it took without waiting for a thread, and why a wrong block is still there."""
        began_at = self._timer()
        outcome = self._reader.read(content, span)
        took_s = self._timer() - began_at
        failure = None
        for name in outcome.wrong:
            self._opened.drop(name)
            try:
                self._directory.remove(name)
            except OSError as error:  # a disk that is read-only now goes on being read
                failure = error
        return outcome, took_s, failure

    def _note(self, outcome: Outcome) -> None:
        for block in outcome.used:
            self._on_use(block)
        if outcome.is_hit:
            self.hits += 1
            return
        self.misses += 1
        self.corrupt += len(outcome.wrong)
        for name in (*outcome.absent, *outcome.wrong):  # another process removed it, or it was wrong
            self._index.discard(name)

    @property
    def is_on(self) -> bool:
        """Whether reads are tried at all: the disk is neither slow nor failing."""
        return not (self._slowness.is_on or self._faults.reading.is_on)

    def close(self) -> None:
        """End the threads."""
        self._threads.close()
        self._large.close()
