"""A listing as a stream of pages: several asked for at once, delivered one after another.

What to ask for, and how the pages fit together, is `core.fanout`'s; here the requests are sent as
tasks, so that one reader's patience or cancellation is no other page's.

A page that fails is told to the reader that needs it, when it needs it, and is asked for again by the
call after.  Nothing that failed is kept, and no failure is told to a reader that came after it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import outcome
import trio

from s3mount.core.fanout import DEFAULT_AHEAD_PAGES, PagePlan
from s3mount.core.listing import ListPage
from s3mount.core.runs import Ask
from s3mount.errors import StoreThrottled
from s3mount.store.base import Catalogue


class StampedPage(NamedTuple):
    """A page, and when it was asked for on the stream's clock.  After the last there is none."""

    page: ListPage
    asked_at: float
    is_last: bool


@dataclass(frozen=True)
class PageStatistics:
    """LIST requests sent, pages the reader took, and pages' worth of keys that were read in vain."""

    asked: int
    taken: int
    wasted: float


class PageStream:
    """The pages of one LIST, in the order of the store; pair it with `close`.

    Args:
        nursery: outlives every request; they run in it.
        prefix, delimiter, start_after: of the LIST.
        ahead_pages: the most pages held or in flight.
        clock: what `asked_at` is read off.
    """

    def __init__(
        self,
        store: Catalogue,
        nursery: trio.Nursery,
        prefix: str,
        *,
        delimiter: str = "/",
        start_after: str = "",
        ahead_pages: int = DEFAULT_AHEAD_PAGES,
        clock: Callable[[], float] = trio.current_time,
    ) -> None:
        self._ask = partial(store.list_page, prefix, delimiter=delimiter)
        self._nursery = nursery
        self._clock = clock
        self._plan = PagePlan(
            prefix,
            delimiter=delimiter,
            may_split=store.is_ordered,
            start_after=start_after,
            ahead_pages=ahead_pages,
        )
        self._scopes: set[trio.CancelScope] = set()
        self._landed = trio.Event()
        self._is_closed = False

    async def next(self) -> StampedPage | None:
        """The next page; None after the last.  One call at a time.

        Raises:
            StoreError: that page could not be listed now; the next call asks for it again.
            ValueError: the stream was closed: the caller's bug.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._plan.is_finished:
            if self._is_closed:
                raise ValueError("the stream of pages is closed")
            taken = self._plan.take()
            if taken is not None:
                self._ask_ahead()
                return StampedPage(*taken)
            error = self._plan.pop_failure()
            if error is not None:
                raise error
            self._ask_ahead()
            await self._landed.wait()
        return None

    def forget_failure(self) -> None:
        """A page that failed before is asked for again, now that a reader needs it."""
        self._plan.pop_failure()

    def close(self) -> None:
        """Cancels what is in flight."""
        self._is_closed = True
        for scope in self._scopes:
            scope.cancel()
        self._landed.set()

    def _ask_ahead(self) -> None:
        if self._plan.is_finished:  # what is in flight answers nothing any more
            for scope in self._scopes:
                scope.cancel()
        while not self._is_closed and (ask := self._plan.next_ask()):
            scope = trio.CancelScope()
            self._scopes.add(scope)
            self._nursery.start_soon(self._fetch, ask, scope, self._clock())

    async def _fetch(self, ask: Ask, scope: trio.CancelScope, asked_at: float) -> None:
        try:
            with scope:
                came = await outcome.acapture(partial(self._ask, token=ask.token, start_after=ask.start_after))
                self._land(ask, came, asked_at)
        finally:
            self._scopes.discard(scope)

    def _land(self, ask: Ask, came: outcome.Maybe[ListPage], asked_at: float) -> None:
        """Keep a page, or a failure for the reader in whose handler it is mapped and logged."""
        if isinstance(came, outcome.Value):
            self._plan.received(ask, came.value, asked_at)
        elif isinstance(came.error, Exception):
            if isinstance(came.error, StoreThrottled):
                self._plan.back_off(ask)
            self._plan.failed(ask, came.error)
        else:
            self.close()  # whoever waits is not left waiting
            raise came.error
        self._ask_ahead()
        self._landed.set()
        self._landed = trio.Event()

    def statistics(self) -> PageStatistics:
        """A snapshot of the counters."""
        plan = self._plan.statistics()
        return PageStatistics(plan.asked, plan.taken, plan.wasted)

    def check_invariants(self) -> None:
        """Raises ValueError when the plan is inconsistent, or more is in flight than it asked for."""
        self._plan.check_invariants()
        if len(self._scopes) > self._plan.statistics().in_flight:
            raise ValueError("requests are in flight that nobody planned")
