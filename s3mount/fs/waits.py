"""The clock of `core.waits`: times what readers wait for.

Only awaits are timed: what is answered at once costs its reader nothing, and is not seen here.
A reader that is cancelled waited until then.

Who waits is said by whoever asks, in `CALLER`: the number of a process group, of which so many are told apart; those
that have been told apart the longest are added up under 0.
"""

from collections.abc import Awaitable
from contextvars import ContextVar
from typing import TypeVar

import trio

from s3mount.core.waits import Arrival, WaitLedger, WaitSeconds

T = TypeVar("T")

#: The process group that the call at hand comes from; 0 where that is not known.
CALLER: ContextVar[int] = ContextVar("caller", default=0)
_MAX_GROUPS = 256


class ReaderWaits:
    """Waits for things, and knows afterwards for how long."""

    def __init__(self) -> None:
        self._ledgers = {0: WaitLedger()}

    def _ledger(self) -> WaitLedger:
        group = CALLER.get()
        ledger = self._ledgers.get(group)
        if ledger is None:
            if len(self._ledgers) > _MAX_GROUPS:
                _, oldest, *_ = self._ledgers
                self._ledgers[0].merge(self._ledgers.pop(oldest))
            ledger = self._ledgers[group] = WaitLedger()
        return ledger

    async def of_names(self, answer: Awaitable[T]) -> T:
        """Await a look-up, a listing or the check of a version for a reader."""
        since = trio.current_time()
        try:
            return await answer
        finally:
            self._ledger().add_names(trio.current_time() - since)

    async def of_budget(self, grant: Awaitable[None]) -> None:
        """Await bytes of the budget for a reader."""
        since = trio.current_time()
        try:
            await grant
        finally:
            self._ledger().add_budget(trio.current_time() - since)

    async def of_disk(self, answer: Awaitable[T]) -> T:
        """Await an answer of the disk cache alone for a reader."""
        since = trio.current_time()
        try:
            return await answer
        finally:
            self._ledger().add_disk(trio.current_time() - since)

    async def of_get(self, landed: trio.Event, arrival: Arrival) -> None:
        """Await the end of a fetch for a reader."""
        since = trio.current_time()
        try:
            await landed.wait()
        finally:
            self._ledger().add_get(since, trio.current_time(), arrival)

    def statistics(self) -> WaitSeconds:
        """What all readers waited for so far."""
        total = WaitLedger()
        for ledger in self._ledgers.values():
            total.merge(ledger)
        return total.seconds()

    def by_group(self) -> dict[int, WaitSeconds]:
        """The same, of each process group; under 0 what cannot be told."""
        return {group: ledger.seconds() for group, ledger in self._ledgers.items()}

    def check_invariants(self) -> None:
        """Raises ValueError when the times cannot be."""
        for ledger in self._ledgers.values():
            ledger.check_invariants()
