"""When the bytes of a GET came, as the stores tell it."""

import math
import threading
import time

import pytest
import trio
import trio.testing

from s3mount.core.ranges import ByteRange
from s3mount.core.waits import Arrival
from s3mount.errors import ObjectChanged
from tests.store.conftest import Bucket, Front
from tests.store.test_conformance import stat_of

DELAY_S = 0.3
WHOLE = ByteRange(0, 5000)


async def test_a_get_tells_when_its_bytes_came(bucket: Bucket) -> None:
    """The marks are in order, between the call and its return; who cannot see the first byte leaves it out."""
    wanted = await stat_of(bucket, "object", b"x" * 5000)
    began = trio.current_time()
    arrival = Arrival(began)
    await bucket.store.get_range(wanted, WHOLE, arrival)
    assert began <= arrival.sent_at <= arrival.last_byte_at <= trio.current_time()
    assert arrival.first_byte_at == math.inf or arrival.sent_at <= arrival.first_byte_at <= arrival.last_byte_at


async def test_a_get_that_fails_has_no_bytes(bucket: Bucket) -> None:
    """Of a version that is gone nothing came."""
    old = await stat_of(bucket, "object", b"x" * 5000)
    bucket.put("object", b"y" * 5000)
    arrival = Arrival(trio.current_time())
    with pytest.raises(ObjectChanged):
        await bucket.store.get_range(old, WHOLE, arrival)
    assert (arrival.first_byte_at, arrival.last_byte_at) == (math.inf, math.inf)


async def test_the_distance_is_before_the_first_byte(front: Front, client: str) -> None:
    """With S3 300 ms away, the first byte, or where that cannot be seen the last, is 300 ms after the GET was sent."""
    front.put("object", b"x" * 5000)
    async with front.store(client) as store:
        found = await store.head("object")
        front.proxy.delay_s = DELAY_S
        arrival = Arrival(trio.current_time())
        await store.get_range(found.id, WHOLE, arrival)
    assert (arrival.first_byte_at == math.inf) is (client == "crt")
    assert min(arrival.first_byte_at, arrival.last_byte_at) - arrival.sent_at >= DELAY_S


class WatchingClock(trio.abc.Clock):
    """Knows whether another thread asked for the time."""

    def __init__(self) -> None:
        self._loop = threading.get_ident()
        self.asked_outside = threading.Event()

    def start_clock(self) -> None:
        return

    def current_time(self) -> float:
        if threading.get_ident() != self._loop:
            self.asked_outside.set()
        return time.perf_counter()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return deadline - time.perf_counter()


@pytest.fixture
def clock() -> WatchingClock:
    """The clock that the test runs on."""
    return WatchingClock()


@pytest.mark.server
async def test_the_crt_tells_it_while_the_loop_is_busy(clock: WatchingClock, front: Front) -> None:
    """The last byte's time is that of the CRT's thread, not of the task that goes on when the loop is free again."""
    front.put("object", b"x" * 5000)
    async with front.store("crt") as store, trio.open_nursery() as nursery:
        found = await store.head("object")
        arrival = Arrival(trio.current_time())
        clock.asked_outside.clear()
        nursery.start_soon(store.get_range, found.id, WHOLE, arrival)
        await trio.testing.wait_all_tasks_blocked()
        assert clock.asked_outside.wait(60), "the GET ends while the loop stands still"
        busy_until = trio.current_time()
    assert arrival.last_byte_at <= busy_until <= trio.current_time()
