"""A bucket that lists in any order, surveys that guess badly, and a reader of the pages of a plan."""

from bisect import bisect_right, insort
from collections.abc import Callable, Collection
from random import Random

from s3mount.core.fanout import PagePlan
from s3mount.core.keyspace import Survey
from s3mount.core.listing import ListPage
from s3mount.core.runs import Ask
from tests.core.strategies import rolled_up, stat_of

Rank = Callable[[str], object]


def in_tree_order(item: str) -> object:
    """As SeaweedFS lists: a directory stands where its name without the slash does."""
    return item.rstrip("/").split("/"), item


def in_no_order(item: str) -> object:
    """Some order that has nothing to do with the keys."""
    return Random(item).random()


def swapped(a: str, b: str) -> Rank:
    """S3's order but for two keys."""
    places = {a: b, b: a}
    return lambda item: places.get(item, item)


class Bucket:
    """Keys that are listed in the order of `rank`, `size` items a page.

    Args:
        shorten: makes some pages shorter, and some empty, as S3 may.
    """

    def __init__(
        self, keys: Collection[str], size: int, delimiter: str = "", rank: Rank = str, shorten: Random | None = None
    ) -> None:
        self._rank = rank
        self._size = size
        self._delimiter = delimiter
        self._shorten = shorten
        self.items = sorted({rolled_up(key, "") if delimiter else key for key in keys}, key=rank)

    def page(self, ask: Ask) -> ListPage:
        """What a LIST answers."""
        after = ask.token if ask.token is not None else ask.start_after
        start = bisect_right(self.items, self._rank(after), key=self._rank) if after else 0
        size = self._shorten.randint(0, self._size) if self._shorten else self._size
        items = self.items[start : start + size]
        objects = tuple(stat_of(item) for item in items if not self._is_common(item))
        common = tuple(item for item in items if self._is_common(item))
        token = (items[-1] if items else after) if start + size < len(self.items) else None
        return ListPage(objects, common, token)

    def _is_common(self, item: str) -> bool:
        return bool(self._delimiter) and item.endswith("/")

    def put(self, key: str) -> None:
        """Another client writes."""
        if key not in self.items:
            insort(self.items, key, key=self._rank)

    def delete(self, key: str) -> None:
        """Another client deletes."""
        if key in self.items:
            self.items.remove(key)


class Wild(Survey):
    """Guesses at random, and believes every gap to be large."""

    def __init__(self, random: Random, pool: list[str]) -> None:
        super().__init__("", "")
        self._random = random
        self._pool = pool

    def pages_between(self, low: str, high: str) -> float:
        return self._random.choice([0.0, 100.0])

    def beyond(self, low: str, pages: float, high: str | None) -> str | None:
        guess = self._random.choice(self._pool)
        return guess if low < guess and (high is None or guess < high) else None


class Reader:
    """Runs a plan to its end: requests are answered in any order, pages taken at any time."""

    def __init__(self, plan: PagePlan, bucket: Bucket, random: Random | None = None) -> None:
        self.plan = plan
        self.bucket = bucket
        self.random = random
        self.sent = self.rounds = self.busiest = 0
        self.in_flight: list[Ask] = []
        self.items: list[str] = []
        self.lasts: list[bool] = []

    def send(self) -> None:
        """All requests that the plan has."""
        while (ask := self.plan.next_ask()) is not None:
            self.in_flight.append(ask)
            self.sent += 1
        self.busiest = max(self.busiest, len(self.in_flight))
        self.plan.check_invariants()

    def answer(self) -> None:
        """One request after another, or, with a random, some one."""
        for _ in range(1 if self.random else len(self.in_flight)):
            ask = self.in_flight.pop(self.random.randrange(len(self.in_flight)) if self.random else 0)
            self.plan.received(ask, self.bucket.page(ask), self.rounds)
            self.plan.check_invariants()

    def take(self) -> bool:
        """The next page, if it is there."""
        taken = self.plan.take()
        if taken is None:
            return False
        page, _, is_last = taken
        assert is_last or not page.is_empty
        self.items += sorted([found.key for found in page.objects] + list(page.prefixes))
        self.lasts.append(is_last)
        return True

    def read_all(self, meanwhile: Callable[[], object] = lambda: None) -> "Reader":
        """Until the last page was taken."""
        while not self.plan.is_finished:
            self.send()
            self.rounds += 1
            meanwhile()
            if self.in_flight:
                self.answer()
            assert self.rounds < 5000, "nothing is asked, and nothing comes"
            while (self.random is None or self.random.random() < 0.7) and self.take():
                pass
        assert self.lasts == [False] * (len(self.lasts) - 1) + [True]
        assert self.take() is False
        assert self.plan.next_ask() is None
        return self


def plan_for(bucket_delimiter: str = "", *, may_split: bool = True, survey: Survey | None = None) -> PagePlan:
    return PagePlan("", delimiter=bucket_delimiter, may_split=may_split, survey=survey)


class Scripted(Survey):
    """Gives one guess always, and keeps the bounds it was asked for."""

    def __init__(self, guess: str) -> None:
        super().__init__("", "")
        self.guess = guess
        self.bounds: list[str | None] = []

    def pages_between(self, low: str, high: str) -> float:
        return 100.0

    def beyond(self, low: str, pages: float, high: str | None) -> str | None:
        self.bounds.append(high)
        return self.guess if low < self.guess and (high is None or self.guess < high) else None
