"""The memory of writers: a share of the byte budget, and an order in which they go on when it is full.

A part must be whole before it can be sent, so writers hold bytes while they wait for more.  Were that all, they could
wait for each other for ever, and readers with them: programs that read while their own output is open.  Three rules:

    writers together hold at most a share of the budget; readers always have the rest
    while the share is full one writer, the first, may go beyond it by one part: it ends that part, sends it, and
    is first no longer when the share is enough again
    bytes that S3 has and that are kept for patches and reads go as soon as anybody waits, the oldest first

What is to be kept on disk for those is offered first, and stays in memory while half of the share is left, or as much
as parts on their way need: a file of less never touches the disk.  Of what is more the oldest goes to the disk, beside
the writer, and is kept from then on.

INVARIANT: `used` is the sum of what the allowances hold, kept bytes included, and drawn from the byte budget.
INVARIANT: only the first writer waits for nobody but the budget, and the budget holds its part beside the share.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import trio

from s3mount.fs.budget import ByteBudget
from s3mount.units import MIB

#: Bytes that writers fill and send meanwhile, at 20 ms and 10 Gbit/s with a disk that takes a second for them.
_ON_THE_WAY = 512 * MIB


@dataclass(frozen=True)
class RoomStatistics:
    """Attributes: bytes writers may hold, and do; how many wait now, and how often one had to; bytes dropped."""

    share: int
    used: int
    waiting: int
    waits: int
    dropped: int


class WriteRoom:
    """What all writers of a mount may hold.

    Args:
        budget: of the process.
    """

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self.share = budget.total // 2
        #: A part larger than that could never be whole: half of what the share leaves, so that readers have some.
        self.largest_part = budget.total // 4
        self._idle = self.share - min(self.share // 2, _ON_THE_WAY)
        self._used = 0
        self._first: Allowance | None = None
        self._changed = trio.lowlevel.ParkingLot()
        self._kept: dict[object, tuple[int, Callable[[], None]]] = {}
        self._offered: dict[object, tuple[int, Callable[[], None]]] = {}
        self._leaving: dict[object, int] = {}  # offered bytes on their way to the disk
        self._going = 0  # all bytes kept and leaving
        self._waits = self._dropped = 0

    @asynccontextmanager
    async def holding(self, n_bytes: int) -> AsyncIterator[None]:
        """So many bytes are held inside the block; waits until they may be."""
        allowance = Allowance(self)
        try:
            await allowance.take(n_bytes)
            yield
        finally:
            allowance.close()

    async def take(self, allowance: "Allowance", n_bytes: int) -> None:
        """Take bytes for a writer; see `Allowance.take`."""
        if not self._may_take(allowance, n_bytes):
            self._waits += 1
            try:
                while not self._may_take(allowance, n_bytes):
                    await self._changed.park()
            except trio.Cancelled:
                self.leave(allowance)
                raise
        self._used += n_bytes
        is_taken = False
        try:
            await self._budget.acquire(n_bytes)
            is_taken = True
        finally:
            if not is_taken:
                self._shrink(n_bytes)

    def take_nowait(self, n_bytes: int) -> bool:
        """Take bytes for a writer if nobody has to wait for anything; returns whether they were."""
        if not self._has(n_bytes) or not self._budget.acquire_nowait(n_bytes, for_demand=True):
            return False
        self._used += n_bytes
        return True

    def _has(self, n_bytes: int) -> bool:
        """Whether the share has room for more, if need be in place of what is kept."""
        while self._kept and self._used + n_bytes > self.share:
            self._drop(next(iter(self._kept)))
        self._send_away(n_bytes)
        return self._used + n_bytes <= self.share

    def _may_take(self, allowance: "Allowance", n_bytes: int) -> bool:
        if self._has(n_bytes):
            return True
        if self._first is None:
            self._first = allowance
        return self._first is allowance and self._used + n_bytes <= self.share + self.largest_part

    def give(self, n_bytes: int) -> None:
        """Bytes of a writer are not held any more."""
        self._budget.release(n_bytes)
        self._shrink(n_bytes)

    def _shrink(self, n_bytes: int) -> None:
        self._used -= n_bytes
        if self._used <= self.share:
            self._first = None
        self._changed.unpark_all()

    def leave(self, allowance: "Allowance") -> None:
        """A writer waits and holds no more."""
        if self._first is allowance:
            self._first = None
            self._changed.unpark_all()

    def offer(self, owner: object, n_bytes: int, start: Callable[[], None]) -> None:
        """Bytes that were taken may leave by the disk: `start` is called when they are to, and `keep` follows that."""
        if owner not in self._leaving:
            self._offered[owner] = (n_bytes, start)
            self._send_away(0)

    def _send_away(self, more: int) -> None:
        """Let the oldest go that is offered, as long as with `more` bytes there is too little left of the share."""
        while self._offered and self._used + more - self._going > self._idle:
            owner = next(iter(self._offered))
            n_bytes, start = self._offered.pop(owner)
            self._leaving[owner] = n_bytes
            self._going += n_bytes
            start()

    def keep(self, owner: object, n_bytes: int, drop: Callable[[], None]) -> None:
        """Bytes that were taken may be dropped from now on: `drop` gives them back."""
        self._offered.pop(owner, None)
        before = self._leaving.pop(owner, 0) or self._kept.get(owner, (0, drop))[0]
        self._going += n_bytes - before
        self._kept[owner] = (n_bytes, drop)  # one that is kept already stays in its place
        self._changed.unpark_all()

    def unkeep(self, owner: object) -> None:
        """They are needed again, or gone."""
        self._offered.pop(owner, None)
        self._going -= self._leaving.pop(owner, 0)
        if owner in self._kept:
            self._going -= self._kept.pop(owner)[0]

    def _drop(self, owner: object) -> None:
        n_bytes, drop = self._kept[owner]
        self.unkeep(owner)
        self._dropped += n_bytes
        drop()

    def statistics(self) -> RoomStatistics:
        """A snapshot of the counters."""
        return RoomStatistics(
            self.share, self._used, self._changed.statistics().tasks_waiting, self._waits, self._dropped
        )

    def check_invariants(self) -> None:
        """Raises ValueError when writers hold what they may not."""
        if not 0 <= self._used <= self.share + self.largest_part:
            raise ValueError(f"writers hold {self._used} bytes of {self.share}")
        if self._going != sum(n_bytes for n_bytes, _ in self._kept.values()) + sum(self._leaving.values()):
            raise ValueError(f"{self._going} bytes are on their way out, and these are others")
        if self._going + sum(n_bytes for n_bytes, _ in self._offered.values()) > self._used:
            raise ValueError("more is kept and offered than is held")


class Allowance:
    """The bytes of one writer.

    INVARIANT: `held` bytes were taken from the room and not given back.
    """

    def __init__(self, room: WriteRoom) -> None:
        self._room = room
        self.held = 0

    async def take(self, n_bytes: int) -> None:
        """Hold more; waits until it may.  A few MiB at most: what one write brings."""
        await self._room.take(self, n_bytes)
        self.held += n_bytes

    def take_nowait(self, n_bytes: int) -> bool:
        """Hold more, if that needs no waiting; returns whether it is held."""
        is_taken = self._room.take_nowait(n_bytes)
        self.held += n_bytes if is_taken else 0
        return is_taken

    def give(self, n_bytes: int) -> None:
        """Hold less."""
        self.held -= n_bytes
        self._room.give(n_bytes)

    def close(self) -> None:
        """Hold nothing."""
        self.give(self.held)
        self._room.leave(self)
