"""Which LIST to send next, so that a long listing is read in several places at once.

`PagePlan` keeps runs in key order.  A run lists serially, by continuation tokens; it begins at a
guessed key and ends where a page of it passes the start of the next run.  The first begins where
the listing does, and a run is dropped only when the one on its left goes on in its place: guesses
decide how many requests are sent, never what is found.  Where two runs do not join as `Seam` asks
(another client was there, or the store's order is not S3's), or a page is out of order, the runs
on the right are dropped, and the listing goes on serially from its last good token.

Cost.  A guess wastes at most one page: the part of the left run's last page that lies beyond it, or
its own page when it hit nothing.  A run starts only while waste and open joins are at most an
eighth of the pages received, so a listing costs at most 1.2 times its pages, and two.  How far
ahead of the reader pages are asked for grows with what it took: one that stops early costs two.

INVARIANT: runs start in strictly rising order, and each has at most one request in flight.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from s3mount.core.keyspace import Survey
from s3mount.core.listing import ListPage
from s3mount.core.runs import Ask, Held, Run, Seam

#: What one listing may have in flight: at 30 ms a page, 16 feed 500 pages a second to one reader.
MAX_IN_FLIGHT = 16
#: Pages held or in flight: 1,000 entries are about 300 kB.  16 runs of 8 pages, each half read.
DEFAULT_AHEAD_PAGES = 64

#: Below, a directory costs exactly its pages, and there is too little to guess from.
_PAGES_BEFORE_SPLIT = 10
#: A join wastes half a page on average: 6 % of a run.
_RUN_PAGES = 8
#: A gap is worth two runs when it holds so many pages.
_SPLIT_GAP_PAGES = 12
_WASTE_SHARE = 8
#: After S3 asked to slow down: pages that must come before another run starts.
_PAGES_AFTER_THROTTLE = 32


@dataclass(frozen=True)
class PlanStatistics:
    """Pages asked for, in flight and taken; runs started by guess; pages' worth read in vain."""

    asked: int
    in_flight: int
    taken: int
    splits: int
    wasted: float


class PagePlan:
    """Plans the requests of one listing, and puts their pages in order.

    Args:
        prefix, delimiter: of every LIST.
        may_split: the store lists in key order.
        start_after: the listing begins after this key.
        ahead_pages: the most pages held or in flight.
        survey: guesses where the listing may be split.
    """

    def __init__(
        self,
        prefix: str,
        *,
        delimiter: str,
        may_split: bool,
        start_after: str = "",
        ahead_pages: int = DEFAULT_AHEAD_PAGES,
        survey: Survey | None = None,
    ) -> None:
        self._is_ordered = self._may_split = may_split
        self._ahead_pages = ahead_pages
        self._survey = survey or Survey(prefix, delimiter)
        self._runs = [Run(start_after, "")]
        self._limit = MAX_IN_FLIGHT
        self._in_flight = 0
        self._asked = self._received = self._taken = self._splits = 0
        self._wasted = 0.0
        self._backed_off_at = 0
        self._no_split_before = _PAGES_BEFORE_SPLIT
        self._seam = Seam()
        self.is_finished = False

    # -- asking -----------------------------------------------------------------------------

    def next_ask(self) -> Ask | None:
        """What to request now; counts as in flight until `received` or `failed`."""
        if self.is_finished or self._in_flight >= self._limit:
            return None
        run = self._run_to_continue() or self._new_run()
        if run is None:
            return None
        self._in_flight += 1
        self._asked += 1
        run.ask = Ask(self._asked, run, run.token, run.start)
        return run.ask

    def _run_to_continue(self) -> Run | None:
        room = self._room()
        for at, run in enumerate(self._runs):
            is_needed = at == 0 and not run.held
            if run.ask is None and run.failure is None and (is_needed or room > 0) and not self._is_done(at):
                return run
        return None

    def _room(self) -> int:
        """Pages that may be asked for beyond those held and in flight."""
        window = min(self._ahead_pages, max(1, 2 * (self._taken - 1)))
        return window - sum(len(run.held) + (run.ask is not None) for run in self._runs)

    def _is_done(self, at: int) -> bool:
        run, beyond = self._runs[at], self._start_of(at + 1)
        return run.is_exhausted or (beyond is not None and run.last > beyond)

    def _start_of(self, at: int) -> str | None:
        return self._runs[at].start if at < len(self._runs) else None

    def _new_run(self) -> Run | None:
        if not self._may_split or self._received < self._no_split_before or self._room() <= 0:
            return None
        joins = sum(not self._is_done(at) for at in range(len(self._runs) - 1))
        if self._wasted + joins > self._received / _WASTE_SHARE:
            return None
        reached = self._seam.last
        for at, run in enumerate(self._runs):
            reached = max(reached, run.last)
            guess = None if self._is_done(at) else self._guess(at, reached)
            if guess is not None:
                fresh = Run(guess, guess, empty_from=run.empty_from)
                run.empty_from = None
                self._runs.insert(at + 1, fresh)
                self._splits += 1
                return fresh
        return None

    def _guess(self, at: int, reached: str) -> str | None:
        """Where the gap after what a run and those before it have seen may be split, if that is worth a run."""
        run = self._runs[at]
        high = run.empty_from or self._start_of(at + 1)
        if high is not None and self._survey.pages_between(reached, high) < _SPLIT_GAP_PAGES:
            return None
        return self._survey.beyond(reached, max(_RUN_PAGES - run.pages, _RUN_PAGES / 2), high)

    # -- receiving --------------------------------------------------------------------------

    def received(self, ask: Ask, page: ListPage, asked_at: float) -> None:
        """The answer to a request."""
        self._in_flight -= 1
        self._received += 1
        run = ask.run
        if run.ask is not ask:
            self._wasted += 1
            return
        at = self._runs.index(run)
        held = Held.of(page, asked_at, is_ordered=self._is_ordered)
        if self._is_ordered and not held.is_after(run.last):
            self._stop_splitting(at + 1)
        run.receive(held)
        if held.items:
            self._survey.add(held.items)
        self._settle(at, held.items)

    def _settle(self, at: int, items: list[str]) -> None:
        """What a page tells about the runs beside its own."""
        run, beyond = self._runs[at], self._start_of(at + 1)
        hits_nothing = items[0] > beyond if items and beyond else run.is_exhausted and not items
        if at > 0 and run.pages == 1 and hits_nothing:
            self._runs[at - 1].empty_from = run.start
            self._drop([run])
        elif beyond is not None and run.last > beyond:
            self._wasted += sum(item > beyond for item in items) / len(items)

    def _drop(self, runs: Sequence[Run]) -> None:
        for run in runs:
            run.ask = None  # whose answer is ignored
            self._wasted += run.pages
            self._runs.remove(run)

    def _stop_splitting(self, at: int) -> None:
        """The order cannot be relied on: what was started from run `at` on goes."""
        self._drop(self._runs[at:])
        self._may_split = False

    def failed(self, ask: Ask, error: Exception) -> None:
        """A request that got no answer: not repeated before `pop_failure` has told of it."""
        self._in_flight -= 1
        if ask.run.ask is ask:
            ask.run.ask = None
            ask.run.failure = error

    def back_off(self, ask: Ask) -> None:
        """S3 answered that it is asked too often; requests sent before it said so count once."""
        if ask.number > self._backed_off_at:
            self._backed_off_at = self._asked
            self._limit = max(1, self._limit // 2)
            self._no_split_before = max(self._no_split_before, self._received + _PAGES_AFTER_THROTTLE)

    # -- taking -----------------------------------------------------------------------------

    def take(self) -> tuple[ListPage, float, bool] | None:
        """The next page in key order, when it was asked for, whether it is the last; None: not there."""
        while not self.is_finished and self._runs[0].held:
            run = self._runs[0]
            held = run.held.popleft()
            page = self._seam.trim(held)
            if page is None:
                self._stop_splitting(0)
                self._runs = [Run("", "", token=self._seam.token, pages=1)]
                self._seam = Seam()
                return None
            self._seam.deliver(held.items, self._start_of(1))
            if not run.held and run.is_exhausted:
                self.is_finished = True
            elif not run.held and self._is_done(0):
                del self._runs[0]
                self._seam.join(self._runs[0].start, self._start_of(1))
            if self.is_finished or not page.is_empty:
                self._taken += 1
                return page, held.asked_at, self.is_finished
        return None

    def pop_failure(self) -> Exception | None:
        """Why the page the reader waits for is not there; its request may be repeated now."""
        run = self._runs[0]
        error = None if run.held else run.failure
        if error is not None:
            run.failure = None
        return error

    def statistics(self) -> PlanStatistics:
        """A snapshot of the counters."""
        return PlanStatistics(self._asked, self._in_flight, self._taken, self._splits, self._wasted)

    def check_invariants(self) -> None:
        """Raises ValueError when runs are out of order, or requests are counted wrongly."""
        if any(left.start >= right.start for left, right in pairwise(self._runs)):
            raise ValueError("runs are out of order")
        if not self._runs or sum(run.ask is not None for run in self._runs) > self._in_flight:
            raise ValueError("more requests are in flight than were counted")
        self._survey.check_invariants()
