"""One byte budget for the whole process: demand waits, speculation only takes what is free.

Everything that holds object content draws on it: parts in flight, parts read ahead, small
files held for the kernel.  Nothing is sized per handle.

Who waits is served in order.  Before anybody waits, the `Reclaimer` is asked to give bytes
back; it drops what nobody is reading, the most useless first.

While memory is short less than the total is handed out (`limit`).  A demand larger than that is still
met, when nothing else is held.

INVARIANT: 0 <= used <= total; a waiter is in the queue only while `used + n > limit`.

No deadlock: a reader acquires all the bytes it needs in one call, and before it pins anything.
"""

from collections import deque
from dataclasses import dataclass
from typing import Protocol

import trio


class Reclaimer(Protocol):
    """Holds bytes that can be given back."""

    def reclaim(self, n_bytes: int, *, for_demand: bool) -> int:
        """Give up bytes, `n_bytes` if it can; returns how many are free at once.

        More may come by `ByteBudget.release` when cancelled requests have ended.

        Args:
            for_demand: whether unread speculation may be dropped too.
        """
        ...


@dataclass(frozen=True)
class BudgetStatistics:
    """Bytes in all, what is handed out of them now, and in use; readers that wait, and how often one had to."""

    total: int
    limit: int
    used: int
    waiting: int
    waits: int


class ByteBudget:
    """Bytes that may be held at once.

    Args:
        total: bytes; more than the largest single demand.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._limit = total
        self._used = 0
        self._queue: deque[tuple[int, trio.Event]] = deque()
        self._waits = 0
        self.reclaimer: Reclaimer | None = None

    @property
    def total(self) -> int:
        """Bytes that may be held at once."""
        return self._total

    @property
    def limit(self) -> int:
        """Bytes that may be held now."""
        return self._limit

    @limit.setter
    def limit(self, n_bytes: int) -> None:
        self._limit = n_bytes
        self.serve_waiters()

    @property
    def used(self) -> int:
        """Bytes held now."""
        return self._used

    def shed(self) -> None:
        """Give up all that no reader waits for."""
        if self.reclaimer is not None:
            self._used -= self.reclaimer.reclaim(self._total, for_demand=True)
            self.serve_waiters()

    def acquire_nowait(self, n_bytes: int, *, for_demand: bool) -> bool:
        """Take bytes if that needs no waiting; speculation never overtakes a waiting reader."""
        if self._queue:
            return False
        self._make_room(n_bytes, for_demand=for_demand)
        if self._short_of(n_bytes, for_demand=for_demand) > 0:
            return False
        self._used += n_bytes
        return True

    async def acquire(self, n_bytes: int) -> None:
        """Take bytes for a reader, waiting until there are enough.

        Raises:
            ValueError: more than the budget can ever hold.
        """
        if n_bytes > self._total:
            raise ValueError(f"{n_bytes} bytes can never fit a budget of {self._total}")
        if self.acquire_nowait(n_bytes, for_demand=True):
            return
        self._waits += 1
        granted = trio.Event()
        ticket = (n_bytes, granted)
        self._queue.append(ticket)
        try:
            await granted.wait()
        except trio.Cancelled:
            if granted.is_set():
                self.release(n_bytes)
            else:
                self._queue.remove(ticket)
                self.serve_waiters()
            raise

    def release(self, n_bytes: int) -> None:
        """Give bytes back."""
        self._used -= n_bytes
        self.serve_waiters()

    def serve_waiters(self) -> None:
        """Grant what now fits, in order; call it when something became reclaimable."""
        while self._queue:
            n_bytes, granted = self._queue[0]
            self._make_room(n_bytes, for_demand=True)
            if self._short_of(n_bytes, for_demand=True) > 0:
                return
            self._queue.popleft()
            self._used += n_bytes
            granted.set()

    def _make_room(self, n_bytes: int, *, for_demand: bool) -> None:
        short = self._short_of(n_bytes, for_demand=for_demand)
        if short > 0 and self.reclaimer is not None:
            self._used -= self.reclaimer.reclaim(short, for_demand=for_demand)

    def _short_of(self, n_bytes: int, *, for_demand: bool) -> int:
        return self._used + n_bytes - (max(self._limit, n_bytes) if for_demand else self._limit)

    def statistics(self) -> BudgetStatistics:
        """A snapshot of the counters."""
        return BudgetStatistics(self._total, self._limit, self._used, len(self._queue), self._waits)

    def check_invariants(self) -> None:
        """Raises ValueError when more is used than there is, or less than nothing."""
        if not 0 <= self._used <= self._total:
            raise ValueError(f"{self._used} of {self._total} bytes are in use")
