"""Several mounts behind a server that refuses what is too much, on a clock that the test moves."""

import random
from collections import Counter
from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from s3mount.core.attrs import ObjectId
from s3mount.core.backoff import Patience
from s3mount.core.ranges import ByteRange
from s3mount.errors import StoreError, StoreThrottled
from s3mount.store.patient import PatientStore
from s3mount.store.retries import Retries
from tests.support.fake_store import FakeStore, FaultyStore

WHOLE = ByteRange(0, 7)
WAIT = Patience()


def make(
    patience: Patience, fault: Callable[[], StoreError | None], chance: Callable[[], float]
) -> tuple[PatientStore, ObjectId]:
    fake = FakeStore(latency_s=0.02)
    wanted = fake.put("object", b"content")
    faulty = FaultyStore(fake, lambda operation, key, number: fault())
    return PatientStore(faulty, Retries(patience, chance)), wanted


class Bucketful:
    """A server that gives so many requests a second, 20 at once, and refuses those above."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._tokens = 20.0
        self._at = trio.current_time()

    def __call__(self) -> StoreError | None:
        now = trio.current_time()
        self._tokens = min(20.0, self._tokens + (now - self._at) * self._per_s)
        self._at = now
        if self._tokens < 1:
            return StoreThrottled("slow down")
        self._tokens -= 1
        return None


@pytest.mark.parametrize("patience", [WAIT, Patience(60.0, 0.0, 10)], ids=["wait", "error"])
async def test_four_mounts_share_what_a_throttling_server_gives(autojump_clock: MockClock, patience: Patience) -> None:
    """200 a second for four mounts with 32 readers each: 180 come well, nobody starves, nobody gets an error."""
    limit = Bucketful(200.0)
    stores = [make(patience, limit, random.Random(seed).random) for seed in range(4)]
    good: Counter[int] = Counter()

    async def read(number: int) -> None:
        store, wanted = stores[number]
        while True:
            await store.get_range(wanted, WHOLE)
            good[number] += 1

    async with trio.open_nursery() as nursery:
        for number in range(4):
            for _ in range(32):
                nursery.start_soon(read, number)
        await trio.sleep(5)
        good.clear()
        await trio.sleep(20)
        nursery.cancel_scope.cancel()
    assert good.total() / 20 >= 180
    assert min(good.values()) / max(good.values()) >= 0.5
    for store, _ in stores:
        assert 0 < store.statistics().rate.per_s < 200
        store.check_invariants()


async def test_the_rate_is_forgotten_when_the_server_has_room(autojump_clock: MockClock) -> None:
    """Half a minute without a refusal, and requests go when they come."""
    refused = [StoreThrottled("slow down"), StoreThrottled("slow down")]
    store, wanted = make(WAIT, lambda: refused.pop() if refused else None, lambda: 1.0)
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(store.get_range, wanted, WHOLE)
    assert store.statistics().rate.per_s > 0
    await trio.sleep(31)
    await store.get_range(wanted, WHOLE)
    assert store.statistics().rate.per_s == 0
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(1000):
            nursery.start_soon(store.get_range, wanted, WHOLE)
    assert trio.current_time() - began == pytest.approx(0.02)


async def test_a_server_that_refuses_everything_is_asked_little(autojump_clock: MockClock) -> None:
    """100 readers for a minute: no more than ten requests a second after the first ones."""
    began, asked = trio.current_time(), 0

    def refuse() -> StoreError | None:
        nonlocal asked
        if trio.current_time() - began >= 60:
            return None
        asked += 1
        return StoreThrottled("slow down")

    store, wanted = make(WAIT, refuse, random.Random(5).random)
    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(store.get_range, wanted, WHOLE)
    assert asked <= 100 + 10 * 60 + 10
