"""What readers leave of connections and memory, for work that nobody waits for.

A share of each is the most that is taken, however much is free, so that a reader that comes finds some.  Of the byte
budget only what is free is taken, or was read and can go: speculation of readers stays.

INVARIANT: the bytes held are at most the share, or one piece that is larger.
"""

from typing import NamedTuple

import trio

from s3mount.fs.budget import ByteBudget

#: Of the connections, one in so many is left to readers; of the budget, all but one in so many.
_LEFT_CONNECTIONS = 16
_BUDGET_SHARES = 4
#: Seconds between two looks whether readers have left room in the budget.
_ROOM_EVERY_S = 0.01


class LeftoverStatistics(NamedTuple):
    """Places for GETs that are taken, and bytes that are held."""

    gets: int
    held_bytes: int


class Leftovers:
    """GETs and bytes for the background of one mount.

    Args:
        connections: GETs that may be in flight, readers' included.
    """

    def __init__(self, budget: ByteBudget, connections: int) -> None:
        self._gets = trio.CapacityLimiter(connections - connections // _LEFT_CONNECTIONS)
        self._budget = budget
        self._share = budget.total // _BUDGET_SHARES
        self._held = 0
        self._turn = trio.Lock()

    async def take(self, n_bytes: int) -> None:
        """A place for a GET of so many bytes; `give_back` it."""
        try:
            self._gets.acquire_nowait()
        except trio.WouldBlock:
            await self._gets.acquire()
        if not self._turn.locked() and self._take_nowait(n_bytes):
            return
        try:
            async with self._turn:
                while not self._take_nowait(n_bytes):  # noqa: ASYNC110  readers who are done tell nobody
                    await trio.sleep(_ROOM_EVERY_S)
        except trio.Cancelled:
            self._gets.release()
            raise

    def _take_nowait(self, n_bytes: int) -> bool:
        if self._held and self._held + n_bytes > self._share:
            return False
        if not self._budget.acquire_nowait(n_bytes, for_demand=False):
            return False
        self._held += n_bytes
        return True

    def give_back(self, n_bytes: int) -> None:
        """The bytes are not held any more.  By the task that took them."""
        self._held -= n_bytes
        self._budget.release(n_bytes)
        self._gets.release()

    def statistics(self) -> LeftoverStatistics:
        """A snapshot of the gauges."""
        return LeftoverStatistics(int(self._gets.borrowed_tokens), self._held)

    def check_invariants(self) -> None:
        """Raises ValueError when less than nothing is held, or more than there is."""
        if not 0 <= self._held <= self._budget.total:
            raise ValueError(f"{self._held} bytes are held of {self._budget.total}")
