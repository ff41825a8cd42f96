"""A stream of pages over a store in memory, on a clock that the test turns."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from s3mount.core.listing import ListPage
from s3mount.errors import StoreError, StoreFailure, StoreThrottled
from s3mount.fs.pages import PageStream, StampedPage
from s3mount.store.base import Catalogue
from tests.support.fake_store import FakeStore, FaultyStore

LATENCY_S = 0.03


def full(count: int, *, page: int = 20, is_ordered: bool = True, names: str = "d/f{:06d}") -> FakeStore:
    """A store with so many objects, listed in small pages."""
    store = FakeStore(is_ordered=is_ordered, latency_s=LATENCY_S)
    store.max_page = page
    for number in range(count):
        store.put(names.format(number), b"")
    return store


@asynccontextmanager
async def stream(
    store: Catalogue, prefix: str = "d/", *, delimiter: str = "/", start_after: str = ""
) -> AsyncIterator[PageStream]:
    """A stream that is closed in the end; its books are checked."""
    async with trio.open_nursery() as nursery:
        pages = PageStream(store, nursery, prefix, delimiter=delimiter, start_after=start_after)
        yield pages
        pages.check_invariants()
        pages.close()
        await wait_all_tasks_blocked()
        assert not nursery.child_tasks
        pages.check_invariants()


def items(page: ListPage) -> list[str]:
    return sorted([found.key for found in page.objects] + list(page.prefixes))


async def read_all(pages: PageStream) -> list[str]:
    """Every key and common prefix, as they come; the last page says that it is."""
    found: list[str] = []
    last: StampedPage | None = None
    while (page := await pages.next()) is not None:
        assert last is None or not last.is_last
        assert last is None or last.asked_at <= trio.current_time()
        found += items(page.page)
        last = page
    assert last is not None
    assert last.is_last
    assert await pages.next() is None
    return found


async def test_a_hundred_pages_take_less_than_half_the_time(autojump_clock: MockClock) -> None:
    """100 pages take at most 0.4 of 100 latencies, cost at most 115 LISTs, and come in order."""
    store = full(2000)
    async with stream(store) as pages:
        begun = trio.current_time()
        assert await read_all(pages) == sorted(store.objects)
        assert trio.current_time() - begun <= 0.4 * 100 * LATENCY_S
        assert store.counts["lists"] <= 115
        assert pages.statistics().asked == store.counts["lists"]
        assert pages.statistics().taken + pages.statistics().wasted <= 115


async def test_the_first_page_takes_one_latency(autojump_clock: MockClock) -> None:
    """The first page is there after one latency and one LIST, with the time it was asked for."""
    store = full(2000)
    async with stream(store) as pages:
        begun = trio.current_time()
        first = await pages.next()
        assert first is not None
        assert (first.asked_at, first.is_last) == (begun, False)
        assert trio.current_time() == pytest.approx(begun + LATENCY_S)
        await wait_all_tasks_blocked()
        assert store.counts["lists"] == 2  # the second is on its way


async def test_the_next_page_comes_while_the_reader_is_busy(autojump_clock: MockClock) -> None:
    """A reader as slow as the store never waits for the second page and those after it."""
    async with stream(full(160)) as pages:
        await pages.next()
        for _ in range(7):
            await trio.sleep(LATENCY_S)
            begun = trio.current_time()
            assert await pages.next() is not None
            assert trio.current_time() == begun


async def test_pages_gather_while_the_reader_is_busy(autojump_clock: MockClock) -> None:
    """After three pages a reader that pauses finds four more, which it need not wait for."""
    store = full(180)
    async with stream(store) as pages:
        for _ in range(3):
            await pages.next()
        await trio.sleep(1)
        assert store.counts["lists"] == 7
        begun = trio.current_time()
        for _ in range(4):
            assert await pages.next() is not None
        assert trio.current_time() == begun


@pytest.mark.parametrize(("count", "lists"), [(0, 1), (1, 1), (20, 1), (21, 2), (60, 3), (200, 10)])
async def test_few_pages_cost_just_these(autojump_clock: MockClock, count: int, lists: int) -> None:
    """Up to ten pages cost one LIST each, an empty directory one."""
    store = full(count)
    async with stream(store) as pages:
        assert await read_all(pages) == sorted(store.objects)
    assert store.counts["lists"] == lists


async def test_a_subtree_is_listed_flat(autojump_clock: MockClock) -> None:
    """Without a delimiter the keys of all directories below come, in order, several pages at once."""
    store = full(2000, names="t/d{:06.2f}/f.bin")
    async with stream(store, "t/", delimiter="") as pages:
        begun = trio.current_time()
        assert await read_all(pages) == sorted(store.objects)
        assert trio.current_time() - begun <= 0.4 * 100 * LATENCY_S


async def test_directories_are_listed(autojump_clock: MockClock) -> None:
    """A directory of directories gives each common prefix once."""
    store = full(1000, names="d/f{:06d}/x")
    async with stream(store) as pages:
        assert await read_all(pages) == sorted(key[:-1] for key in store.objects)
    assert store.counts["lists"] <= 60


async def test_a_listing_from_a_key_on(autojump_clock: MockClock) -> None:
    """With `start_after` the keys after it come, and no others."""
    store = full(500)
    async with stream(store, start_after="d/f000122") as pages:
        assert await read_all(pages) == sorted(store.objects)[123:]


async def test_a_store_without_order_is_complete(autojump_clock: MockClock) -> None:
    """An unordered store is listed by its tokens alone, the next page ahead of the reader."""
    store = full(500, is_ordered=False)
    async with stream(store) as pages:
        assert sorted(await read_all(pages)) == sorted(store.objects)
    assert store.counts["lists"] == 25


async def wait_to_be_told(pages: PageStream, told: list[str]) -> None:
    """Wait for a page of a stream that is closed meanwhile."""
    with pytest.raises(ValueError, match="closed") as caught:
        await pages.next()
    told.append(str(caught.value))


async def test_closing_cancels(autojump_clock: MockClock) -> None:
    """A closed stream has nothing in flight, and a reader that waits for it is told."""
    told: list[str] = []
    async with trio.open_nursery() as nursery, trio.open_nursery() as reader:
        pages = PageStream(full(2000), nursery, "d/")
        reader.start_soon(wait_to_be_told, pages, told)
        await wait_all_tasks_blocked()
        assert nursery.child_tasks
        pages.close()
        pages.close()
        await wait_all_tasks_blocked()
        assert not nursery.child_tasks
    assert trio.current_time() == 0
    assert len(told) == 1


async def test_requests_cancelled_from_outside(autojump_clock: MockClock) -> None:
    """When the nursery of the requests is cancelled, a reader is told and not left waiting."""
    told: list[str] = []
    async with trio.open_nursery() as readers, trio.open_nursery() as nursery:
        pages = PageStream(full(2000), nursery, "d/")
        readers.start_soon(wait_to_be_told, pages, told)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert len(told) == 1


class StuckStore(FakeStore):
    """Never answers a LIST that starts at a key."""

    async def list_page(
        self,
        prefix: str,
        *,
        delimiter: str = "/",
        token: str | None = None,
        max_keys: int = 1000,
        start_after: str = "",
    ) -> ListPage:
        if start_after and token is None:
            await trio.sleep_forever()
        return await super().list_page(prefix, delimiter=delimiter, token=token, max_keys=max_keys)


async def test_the_last_page_ends_what_is_in_flight(autojump_clock: MockClock) -> None:
    """After the last page nothing more is awaited: a guess beyond the end is cancelled."""
    store = StuckStore()
    store.max_page = 20
    for number in range(230):
        store.put(f"d/f{number:06d}", b"")
    async with trio.open_nursery() as nursery:
        pages = PageStream(store, nursery, "d/")
        assert await read_all(pages) == sorted(store.objects)
        assert pages.statistics().asked > 12
        await wait_all_tasks_blocked()
        assert not nursery.child_tasks


@pytest.mark.parametrize("comes_new", [False, True])
async def test_a_failed_page_is_told_when_it_is_needed(autojump_clock: MockClock, comes_new: bool) -> None:  # noqa: FBT001
    """The third page fails ahead: the second comes, then the error, unless a reader came since; then the page."""
    store = FaultyStore(full(100), lambda _op, _key, call: StoreFailure("broken") if call == 3 else None)
    async with stream(store) as pages:
        assert await pages.next() is not None
        await trio.sleep(1)
        assert store.calls == 2
        assert await pages.next() is not None
        await trio.sleep(1)  # the third was asked for, and failed, and nobody asks again
        assert store.calls == 3
        if comes_new:
            pages.forget_failure()
        else:
            with pytest.raises(StoreFailure, match="broken"):
                await pages.next()
        third = await pages.next()
        assert third is not None
        assert items(third.page) == [f"d/f{number:06d}" for number in range(40, 60)]
        assert len(await read_all(pages)) == 40


async def test_any_failure_reaches_the_reader(autojump_clock: MockClock) -> None:
    """An exception that no store should raise fails the reader's call, and not the nursery."""
    store = FaultyStore(full(100), lambda _op, _key, call: ZeroDivisionError() if call == 1 else None)  # type: ignore
    async with stream(store) as pages:
        with pytest.raises(ZeroDivisionError):
            await pages.next()
        assert len(await read_all(pages)) == 100


async def test_a_throttled_listing_completes(autojump_clock: MockClock) -> None:
    """Every seventh LIST is throttled: each is told, the next call goes on, and nothing is missing."""
    inner = full(1000)
    store = FaultyStore(inner, lambda _op, _key, call: StoreThrottled("slow down") if call % 7 == 0 else None)
    found: list[str] = []
    told = 0
    async with stream(store) as pages:
        while True:
            try:
                page = await pages.next()
            except StoreThrottled:
                told += 1
                continue
            if page is None:
                break
            found += items(page.page)
    assert found == sorted(inner.objects)
    assert told > 0


class GaugedStore(FaultyStore):
    """Knows how many LISTs were in flight at most."""

    in_flight = busiest = 0

    async def list_page(
        self,
        prefix: str,
        *,
        delimiter: str = "/",
        token: str | None = None,
        max_keys: int = 1000,
        start_after: str = "",
    ) -> ListPage:
        self.in_flight += 1
        self.busiest = max(self.busiest, self.in_flight)
        try:
            return await super().list_page(
                prefix, delimiter=delimiter, token=token, max_keys=max_keys, start_after=start_after
            )
        finally:
            self.in_flight -= 1


async def test_throttling_halves_what_is_in_flight(autojump_clock: MockClock) -> None:
    """After one throttled LIST, with more than 8 in flight, at most 8 are."""
    throttled: list[int] = []

    def fault(_operation: str, _key: str, call: int) -> StoreThrottled | None:
        if call < 200 or store.in_flight <= 8 or throttled:
            return None
        throttled.append(call)
        return StoreThrottled("slow down")

    store = GaugedStore(full(4000, page=10), fault)
    async with stream(store) as pages:
        with pytest.raises(StoreThrottled):
            await read_all(pages)
        await trio.sleep(1)
        store.busiest = 0
        await read_all(pages)
    assert 1 < store.busiest <= 8


async def test_failures_everywhere(autojump_clock: MockClock) -> None:
    """A third of all requests fail while 16 are in flight: each page still comes once, in order."""
    inner = full(3000)
    store = FaultyStore(inner, lambda _op, _key, call: StoreFailure("broken") if call % 3 == 2 else None)
    found: list[str] = []
    async with stream(store) as pages:
        while True:
            try:
                page = await pages.next()
            except StoreError:
                pages.check_invariants()
                continue
            if page is None:
                break
            found += items(page.page)
    assert found == sorted(inner.objects)


class TreeStore(FakeStore):
    """Lists as SeaweedFS does: directory by directory, a directory where its name without the slash sorts."""

    def _rank(self, item: str) -> bytes:
        return b"\0".join(part.encode() for part in item.rstrip("/").split("/"))


@pytest.mark.parametrize("delimiter", ["", "/"])
async def test_a_store_that_lists_by_directories_loses_nothing(autojump_clock: MockClock, delimiter: str) -> None:
    """Where `d/x` comes before `d-1/x`, flat and by directories, everything comes once."""
    store = TreeStore(latency_s=LATENCY_S)
    store.max_page = 7
    for number in range(800):
        for ending in ("/x", "-1/x", ".txt") if number % 200 == 199 else ("/x",):
            store.put(f"t/{number:03d}{ending}", b"")
    async with stream(store, "t/", delimiter=delimiter) as pages:
        found = await read_all(pages)
    expected = [key.removesuffix("x") if delimiter and not key.endswith("t") else key for key in store.objects]
    assert sorted(found) == sorted(expected)
    assert store.counts["lists"] <= 1.2 * len(expected) / 7 + 64
