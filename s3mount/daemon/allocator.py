"""Keep the memory of parts instead of giving it back to the kernel after each one, up to a limit.

glibc maps every block of a part's size afresh and unmaps it when it is freed, so that each part
costs two thousand page faults, on new virtual machines slow ones.  Told to keep such blocks in
its heap, it reuses them: page faults per GB fall from 80,000 to 500 and the CPU per GB by a fifth
(measured).  One arena, because parts are allocated on the CRT's threads and freed on ours; since a thread
may run before, the command also says so before the interpreter starts (`cli.entry`).

A heap has holes: what is free in it lies between what is used, and a hole is of no use to what is larger.  With all of
the budget in use the process was twice as large as what it used (measured).  `HeapLimit` looks at the process's
size as parts arrive, and gives all holes back when it is over its limit.  Below it they would stay for good: a process
that does little would be as large in its second hour as the limit lets it (seen).  So it gives them back then, too.

To give back 100 MiB takes 11 ms, and a GiB 110 (measured).  A thread would not help: meanwhile it has the lock of the
heap, and who allocates waits as long (measured).  So it is done where nobody asks for anything, if there is such a
moment.

Another C library without mallopt(3) is left alone.
"""

import ctypes
import gc
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import trio

from s3mount.units import MIB

log = logging.getLogger(__name__)

# <malloc.h>; mallopt(3).
_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
#: mallopt(3): the largest M_MMAP_THRESHOLD that 64-bit glibc takes.
_MMAP_THRESHOLD = 32 * MIB
#: Bytes that arrive between two looks at the size: a look costs 20 µs.
_LOOK_EVERY = 8 * MIB
#: Growth from one trim to the next: each costs some milliseconds, and page faults afterwards.
_STEP = 32 * MIB
#: Seconds from one look at what the process does to the next, and the share of a processor up to which that is little:
#: what is given back must be faulted in again, at a quarter of a second for each GiB.
_REST_S = 120.0
_LITTLE = 0.25
#: Seconds of the processor, in one second, up to which nobody asks for anything; seconds to wait for such a one.
_IDLE_S = 0.01
_PATIENCE_S = 60
_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")


def keep_memory(n_bytes: int) -> None:
    """Let the heap hold on to up to `n_bytes` that are free."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        log.debug("this C library has no mallopt; parts are allocated afresh")
        return
    mallopt(_M_ARENA_MAX, 1)
    mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD)
    mallopt(_M_TRIM_THRESHOLD, min(n_bytes, 2**31 - 1))
    mallopt(_M_TOP_PAD, 64 * MIB)


def trim() -> None:
    """Give back what is free, after much became free at once.

    A full collection empties CPython's lists of free tuples, each of which keeps a MiB from going back.
    """
    gc.collect()
    _trim_heap()


def _trim_heap() -> None:
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except AttributeError:
        log.debug("this C library has no malloc_trim")


def resident_bytes() -> int:
    """The size of this process in memory (proc(5), statm)."""
    return int(Path("/proc/self/statm").read_bytes().split()[1]) * _PAGE_SIZE


async def _pause() -> None:
    """Wait for a second in which next to nothing was done; not for ever."""
    for _ in range(_PATIENCE_S):
        used_s = time.process_time()
        await trio.sleep(1)
        if time.process_time() - used_s < _IDLE_S:
            return


@dataclass(frozen=True)
class HeapStatistics:
    """Bytes above which the heap is trimmed next, and how often it was."""

    next_trim_at: int
    trims: int


class HeapLimit:
    """Trims the heap while the process is larger than it should be, and while it rests.

    INVARIANT: after a look the process is no larger than the limit, or by at most `_STEP` larger than what it was
    after the last trim, that is than what it uses.

    Args:
        n_bytes: resident memory up to which the heap may keep all it has.
    """

    def __init__(self, n_bytes: int) -> None:
        self._limit = n_bytes
        self._next_trim_at = n_bytes
        self._arrived = 0
        self._trims = 0

    def grew(self, n_bytes: int) -> None:
        """So many bytes were allocated since the last call."""
        self._arrived += n_bytes
        if self._arrived < _LOOK_EVERY:
            return
        self._arrived = 0
        resident = resident_bytes()
        if resident > self._next_trim_at:
            _trim_heap()
            self._trims += 1
            resident = resident_bytes()
            self._next_trim_at = resident + _STEP
        self._next_trim_at = max(self._limit, min(self._next_trim_at, resident + _STEP))

    async def rest(self, let_go: Callable[[], None]) -> None:
        """Give holes back whenever the process has done little for a while; until cancelled.

        Args:
            let_go: of what others keep for the next time.
        """
        while True:
            used_s = time.process_time()
            await trio.sleep(_REST_S)
            if time.process_time() - used_s < _LITTLE * _REST_S:
                await _pause()
                let_go()
                _trim_heap()
                self._trims += 1

    def statistics(self) -> HeapStatistics:
        """A snapshot of the counters."""
        return HeapStatistics(self._next_trim_at, self._trims)

    def check_invariants(self) -> None:
        """Raises ValueError when the next trim would come too early."""
        if self._next_trim_at < self._limit:
            raise ValueError(f"a trim is due below the limit of {self._limit} bytes")
