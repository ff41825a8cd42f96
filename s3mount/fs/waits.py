"""The clock of `core.waits`: times what readers wait for.

Only awaits are timed: what is answered at once costs its reader nothing, and is not seen here.
A reader that is cancelled waited until then.
"""

from collections.abc import Awaitable
from typing import TypeVar

import trio

from s3mount.core.waits import Arrival, WaitLedger, WaitSeconds

T = TypeVar("T")


class ReaderWaits:
    """Waits for things, and knows afterwards for how long."""

    def __init__(self) -> None:
        self._ledger = WaitLedger()

    async def of_names(self, answer: Awaitable[T]) -> T:
        """Await a look-up, a listing or the check of a version for a reader."""
        since = trio.current_time()
        try:
            return await answer
        finally:
            self._ledger.add_names(trio.current_time() - since)

    async def of_budget(self, grant: Awaitable[None]) -> None:
        """Await bytes of the budget for a reader."""
        since = trio.current_time()
        try:
            await grant
        finally:
            self._ledger.add_budget(trio.current_time() - since)

    async def of_disk(self, answer: Awaitable[T]) -> T:
        """Await an answer of the disk cache alone for a reader."""
        since = trio.current_time()
        try:
            return await answer
        finally:
            self._ledger.add_disk(trio.current_time() - since)

    async def of_get(self, landed: trio.Event, arrival: Arrival) -> None:
        """Await the end of a fetch for a reader."""
        since = trio.current_time()
        try:
            await landed.wait()
        finally:
            self._ledger.add_get(since, trio.current_time(), arrival)

    def statistics(self) -> WaitSeconds:
        """What all readers waited for so far."""
        return self._ledger.seconds()

    def check_invariants(self) -> None:
        """Raises ValueError when the times cannot be."""
        self._ledger.check_invariants()
