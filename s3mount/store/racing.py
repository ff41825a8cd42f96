"""A GET that stalls is raced by a second one; the first answer wins, and the loser is cancelled.

One stalled connection holds up one GET, and with it the program that waits: the AWS CRT notices after half a
minute (measured).  `core.stalls` says when a GET has stalled and how many may be raced.

* A GET that does not stall pays for a record and a reading of the clock: it runs in its caller's task, in the scope
  that `GuardedStore` needs anyway.  One watcher looks at all that are in flight, while any are.
* Time counts from when a GET was sent: one that waits for a connection has not stalled.
* A loop that is late itself, or a host that slept, proves nothing about S3: that look is skipped.
* Each of the two is limited and counted below, and has its own deadline.  The loser ends as if its
  deadline had passed.  When one fails the other's answer counts; when both do, the first's failure.
* There is at most one second GET for a first.

Memory: two GETs of a range hold one part of the byte budget.  The bytes of a GET under way lie in the CRT's pool, which
is bounded and has its own share of the memory target: when it is full, the second waits there.  Only when both
answers come in the same moment there are the bytes twice, until the loser's are dropped a moment later; for at most as
many parts as races are granted at once.

INVARIANT: no second GET outlives the call that it helps by more than its cancellation.
"""

import logging
import math
from typing import NamedTuple

import outcome
import trio

from s3mount.core.attrs import ObjectId, ObjectStat
from s3mount.core.listing import ListPage
from s3mount.core.ranges import ByteRange
from s3mount.core.stalls import FLOOR_S, Stalls
from s3mount.core.waits import Arrival
from s3mount.errors import StoreError
from s3mount.store.base import MAX_PAGE
from s3mount.store.guarded import GuardedStore

log = logging.getLogger(__name__)

#: Seconds between two looks: small beside the shortest patience, and rare for a process.
_LOOK_S = FLOOR_S / 4


class RacingStatistics(NamedTuple):
    """GETs in flight; of all so far, those that were raced, and those that the second one answered."""

    in_flight: int
    raced: int
    won: int


class _Second:
    """The second GET of a range.

    Attributes:
        content: once it has landed; None when it failed.
    """

    __slots__ = ("arrival", "content", "landed", "scope")

    def __init__(self) -> None:
        self.arrival = Arrival(math.inf)
        self.scope = trio.CancelScope()
        self.landed = trio.Event()
        self.content: bytes | None = None


class _First:
    """A GET in flight; `scope` ends it, `second` is the one that races it."""

    __slots__ = ("arrival", "scope", "second", "span", "wanted")

    def __init__(self, wanted: ObjectId, span: ByteRange, arrival: Arrival) -> None:
        self.wanted = wanted
        self.span = span
        self.arrival = arrival
        self.scope = trio.CancelScope()
        self.second: _Second | None = None


class RacingStore:
    """An `ObjectStore` whose GETs do not stall.

    Args:
        store: limits and counts the GETs.
        nursery: outlives every call; the watcher and the second GETs run in it.
    """

    def __init__(self, store: GuardedStore, nursery: trio.Nursery) -> None:
        self._store = store
        self._nursery = nursery
        self._stalls = Stalls()
        self._in_flight: dict[_First, None] = {}
        self._is_watched = False
        self._won = 0

    @property
    def is_ordered(self) -> bool:
        """See `Catalogue.is_ordered`."""
        return self._store.is_ordered

    async def list_page(
        self,
        prefix: str,
        *,
        delimiter: str = "/",
        token: str | None = None,
        max_keys: int = MAX_PAGE,
        start_after: str = "",
    ) -> ListPage:
        """See `Catalogue.list_page`."""
        return await self._store.list_page(
            prefix, delimiter=delimiter, token=token, max_keys=max_keys, start_after=start_after
        )

    async def head(self, key: str) -> ObjectStat:
        """See `Catalogue.head`."""
        return await self._store.head(key)

    async def confirm(self, wanted: ObjectId) -> None:
        """See `RangeReader.confirm`."""
        await self._store.confirm(wanted)

    async def get_range(self, wanted: ObjectId, span: ByteRange, arrival: Arrival | None = None) -> bytes:
        """See `RangeReader.get_range`; where the second wins, it was sent when the first was."""
        first = _First(wanted, span, Arrival(math.inf) if arrival is None else arrival)
        first.arrival.sent_at = math.inf
        self._in_flight[first] = None
        if not self._is_watched:
            self._is_watched = True
            self._nursery.start_soon(self._watch)
        try:
            content = await self._store.get_range(wanted, span, first.arrival, first.scope)
            self._stalls.note(span.length, trio.current_time() - first.arrival.sent_at)
            return content
        except StoreError:
            if first.second is None:
                raise
            await first.second.landed.wait()
            if first.second.content is None:
                raise
            self._won += 1
            first.arrival.first_byte_at = first.second.arrival.first_byte_at
            first.arrival.last_byte_at = first.second.arrival.last_byte_at
            return first.second.content
        finally:
            del self._in_flight[first]
            if first.second is not None:
                first.second.scope.cancel()

    # -- the race ---------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Look at what is in flight until nothing is."""
        try:
            while self._in_flight:
                due = trio.current_time() + _LOOK_S
                await trio.sleep_until(due)
                if trio.current_time() < due + _LOOK_S:
                    self._look()
        finally:
            self._is_watched = False

    def _look(self) -> None:
        now = trio.current_time()
        patience_s: dict[int, float] = {}
        for first in self._in_flight:
            age_s = now - first.arrival.sent_at
            if age_s < FLOOR_S:
                return  # they are sent in the order in which they stand here
            length = first.span.length
            if length not in patience_s:
                patience_s[length] = self._stalls.patience_s(length)
            if first.second is None and age_s >= patience_s[length] and self._stalls.grant():
                log.debug(
                    "the GET of %s of %r has stalled for %.1f s: a second races it", first.span, first.wanted, age_s
                )
                first.second = _Second()
                self._nursery.start_soon(self._race, first, first.second)

    async def _race(self, first: _First, second: _Second) -> None:
        try:
            with second.scope:
                came = await outcome.acapture(self._store.get_range, first.wanted, first.span, second.arrival)
                if isinstance(came, outcome.Value):
                    second.content = came.value
                    self._stalls.note(first.span.length, trio.current_time() - second.arrival.sent_at)
                    first.scope.cancel()
                elif isinstance(came.error, trio.Cancelled):
                    raise came.error
                else:
                    log.debug("the second GET of %r failed: %r", first.wanted, came.error)
        finally:
            second.landed.set()

    def statistics(self) -> RacingStatistics:
        """A snapshot of the counters."""
        return RacingStatistics(len(self._in_flight), self._stalls.statistics().granted, self._won)

    def check_invariants(self) -> None:
        """Raises ValueError when more races were run than granted, or nobody watches what is in flight."""
        self._stalls.check_invariants()
        if self._won > self._stalls.statistics().granted:
            raise ValueError("more races were won than run")
        if self._in_flight and not self._is_watched:
            raise ValueError("GETs are in flight and nobody watches them")
