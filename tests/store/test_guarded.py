"""Limits, deadlines and counters in front of a fake, on a clock that the test moves."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from s3mount.core.attrs import ObjectId
from s3mount.core.ranges import ByteRange
from s3mount.errors import ObjectChanged, ObjectNotFound, StoreTimeout
from s3mount.store.guarded import GuardConfig, GuardedStore, StoreStatistics
from tests.support.fake_store import FakeStore, FaultyStore

WHOLE = ByteRange(0, 7)


def make_store(
    *, latency_s: float = 0.0, deadline_s: float = 60.0, max_gets: int = 4, max_lists: int = 2
) -> tuple[GuardedStore, FakeStore, ObjectId]:
    fake = FakeStore(latency_s=latency_s)
    wanted = fake.put("object", b"content")
    return GuardedStore(fake, fake, GuardConfig(deadline_s, max_gets, max_lists)), fake, wanted


async def test_answers_and_order_pass_through() -> None:
    """The guard changes nothing about what the store says."""
    store, fake, wanted = make_store()
    for number in range(5):
        fake.put(f"dir/{number}", b"x")
    assert store.is_ordered
    assert not GuardedStore(FakeStore(is_ordered=False), fake, GuardConfig()).is_ordered
    page = await store.list_page("dir/", max_keys=2)
    assert page == await fake.list_page("dir/", max_keys=2)
    assert await store.list_page("dir/", token=page.next_token) == await fake.list_page("dir/", token=page.next_token)
    assert (await store.list_page("", delimiter="")).prefixes == ()
    assert await store.list_page("dir/", start_after="dir/2") == await fake.list_page("dir/", start_after="dir/2")
    assert await store.head("object") == await fake.head("object")
    assert await store.get_range(wanted, ByteRange(1, 4)) == b"ont"
    await store.confirm(wanted)


async def test_counters_are_what_arrived_at_the_store() -> None:
    """Requests by kind, bytes received, failures; nothing in flight at the end."""
    store, _, wanted = make_store()
    assert store.statistics() == StoreStatistics()
    await store.list_page("")
    await store.list_page("absent/")
    await store.head("object")
    await store.get_range(wanted, WHOLE)
    await store.get_range(wanted, ByteRange(0, 3))
    with pytest.raises(ObjectNotFound):
        await store.head("absent")
    with pytest.raises(ObjectChanged):
        await store.get_range(ObjectId("object", '"old"'), WHOLE)
    await store.confirm(wanted)
    with pytest.raises(ObjectChanged):
        await store.confirm(ObjectId("object", '"old"'))
    counted = store.statistics()
    assert counted == StoreStatistics(lists=2, heads=4, gets=3, bytes_read=10, failures=3, in_flight=0)
    assert counted.requests == 9


async def test_no_more_gets_at_once_than_allowed(autojump_clock: MockClock) -> None:
    """Twenty GETs of 1 s through four places take 5 s, and the fifth starts when the first is done."""
    store, fake, wanted = make_store(latency_s=1.0)
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(store.get_range, wanted, WHOLE)
        await wait_all_tasks_blocked()
        assert fake.counts["gets"] == 4
        assert store.statistics().in_flight == 4
        store.check_invariants()
    assert trio.current_time() - began == pytest.approx(5.0)
    assert store.statistics().gets == 20


async def test_lists_and_heads_share_a_limit_of_their_own(autojump_clock: MockClock) -> None:
    """GETs that fill their places delay no LIST, and two LIST or HEAD run at once."""
    store, fake, wanted = make_store(latency_s=1.0)
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(store.get_range, wanted, WHOLE)
            nursery.start_soon(store.head, "object")
            nursery.start_soon(store.confirm, wanted)
            nursery.start_soon(store.list_page, "")
        await wait_all_tasks_blocked()
        assert fake.counts["gets"] == 4
        assert fake.counts["lists"] + fake.counts["heads"] == 2
        assert store.statistics().in_flight == 6
        store.check_invariants()
    assert trio.current_time() - began == pytest.approx(6.0)


async def test_every_kind_of_request_has_the_deadline(autojump_clock: MockClock) -> None:
    """At the deadline, not before; the error names operation and key, and how to change it."""
    store, _, wanted = make_store(latency_s=100.0, deadline_s=5.0)
    calls = [
        ("ListObjectsV2", lambda: store.list_page("object")),
        ("HeadObject", lambda: store.head("object")),
        ("HeadObject", lambda: store.confirm(wanted)),
        ("GetObject", lambda: store.get_range(wanted, WHOLE)),
    ]
    for number, (operation, call) in enumerate(calls, 1):
        began = trio.current_time()
        with pytest.raises(StoreTimeout) as caught:
            await call()
        assert trio.current_time() - began == pytest.approx(5.0)
        assert (caught.value.operation, caught.value.key) == (operation, "object")
        assert "--request-deadline" in str(caught.value)
        assert store.statistics().failures == number
        assert store.statistics().in_flight == 0


async def test_an_answer_just_before_the_deadline_counts(autojump_clock: MockClock) -> None:
    """The deadline is not shortened by anything."""
    store, _, wanted = make_store(latency_s=4.99, deadline_s=5.0)
    assert await store.get_range(wanted, WHOLE) == b"content"


async def test_waiting_for_a_place_counts_for_the_deadline(autojump_clock: MockClock) -> None:
    """A reader is answered in time even when the store is so slow that it never got a turn."""
    store, fake, wanted = make_store(latency_s=4.0, deadline_s=5.0, max_gets=1)
    ended: list[tuple[str, float]] = []

    async def read() -> None:
        try:
            await store.get_range(wanted, WHOLE)
        except StoreTimeout:
            ended.append(("timed out", trio.current_time()))
        else:
            ended.append(("answered", trio.current_time()))

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(read)
    assert sorted(how for how, _ in ended) == ["answered", "timed out", "timed out"]
    assert max(when for _, when in ended) - began == pytest.approx(5.0)
    assert fake.counts["gets"] == 2
    assert store.statistics() == StoreStatistics(gets=2, bytes_read=7, failures=2)


async def test_a_callers_own_deadline_is_its_own(autojump_clock: MockClock) -> None:
    """A caller's earlier time-out is not turned into StoreTimeout, and is no failure of the store."""
    store, _, wanted = make_store(latency_s=100.0, deadline_s=60.0)
    with pytest.raises(trio.TooSlowError), trio.fail_after(1.0):
        await store.get_range(wanted, WHOLE)
    assert store.statistics() == StoreStatistics(gets=1)


async def test_cancelled_requests_give_their_places_back(autojump_clock: MockClock) -> None:
    """In flight and waiting ones alike; the next request goes through, and nothing failed."""
    store, _, wanted = make_store(latency_s=1.0)
    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(store.get_range, wanted, WHOLE)
            nursery.start_soon(store.list_page, "")
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert store.statistics() == StoreStatistics(gets=4, lists=2)
    assert await store.get_range(wanted, WHOLE) == b"content"
    store.check_invariants()


async def test_a_failed_request_gives_its_place_back(autojump_clock: MockClock) -> None:
    """A hundred failures in a row through four places leave the store usable."""
    fake = FakeStore()
    wanted = fake.put("object", b"content")
    faulty = FaultyStore(fake, lambda operation, key, number: ObjectChanged("gone") if number <= 100 else None)
    store = GuardedStore(faulty, faulty, GuardConfig(max_gets=4, max_lists=2))
    for number in range(100):
        with pytest.raises(ObjectChanged):
            await (store.get_range(wanted, WHOLE) if number % 2 else store.head("object"))
    assert await store.get_range(wanted, WHOLE) == b"content"
    assert store.statistics() == StoreStatistics(gets=51, heads=50, bytes_read=7, failures=100)


async def test_an_exception_that_is_no_store_error_is_not_hidden() -> None:
    """A bug in a store stays visible as what it is, and frees its place."""

    class Broken(FakeStore):
        async def head(self, key: str) -> None:  # type: ignore[override]
            raise ZeroDivisionError

    store = GuardedStore(Broken(), FakeStore(), GuardConfig(max_lists=1))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            await store.head("object")
    assert store.statistics().in_flight == 0
