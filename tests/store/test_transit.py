"""What is on its way from S3: counted as the CRT's pool takes it, bounded, and given back when the CRT is done."""

import math
import threading
from contextlib import AbstractAsyncContextManager
from functools import partial
from urllib.parse import urlsplit

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from s3mount.core.attrs import ObjectId
from s3mount.core.location import Location
from s3mount.core.ranges import ByteRange
from s3mount.core.waits import Arrival
from s3mount.store.crt import CrtConfig, CrtReader, crt_reader
from s3mount.store.session import Endpoint, S3Config
from s3mount.store.transit import MIN_TRANSIT, Transit, TransitStatistics
from s3mount.units import GIB, KIB, MIB
from tests.mount.scripted import ScriptedBucket, content_at
from tests.support.processes import REGION
from tests.support.proxy import Fault, Proxy, Request, proxy
from tests.support.servers import Server

PART = 8 * MIB
FILE = "0001"


@pytest.mark.parametrize(
    ("n_bytes", "taken"), [(0, 0), (4096, 4096), (512 * KIB, 512 * KIB), (512 * KIB + 1, 2 * MIB), (PART, PART)]
)
async def test_what_a_get_takes(n_bytes: int, taken: int) -> None:
    """A GET takes whole chunks of a quarter of a part; one of at most 512 KiB what it brings."""
    transit = Transit(MIN_TRANSIT, PART)
    assert await transit.enter(n_bytes) == taken
    assert transit.statistics() == TransitStatistics(MIN_TRANSIT, taken, 0)
    transit.leave(taken)
    assert transit.statistics().used == 0


@given(st.integers(5 * MIB, 5 * GIB), st.integers(1, 8))
def test_what_the_crt_is_told(part_size: int, parts: int) -> None:
    """A part comes out of a block, or there are no blocks; and what may be on its way fits the pool."""
    total = max(MIN_TRANSIT, 2 * part_size * parts)
    transit = Transit(total, part_size)
    block = 16 * transit.pool_part_size
    usable = transit.pool_limit - 128 * MIB
    assert transit.pool_limit >= 256 * MIB
    if transit.pool_part_size == part_size:
        assert usable < block
    else:
        assert 4 * transit.pool_part_size >= part_size
        assert usable >= total + block


async def test_who_waits_is_served_in_order() -> None:
    """A small GET does not overtake a large one, and one that is cancelled lets the next go."""
    transit = Transit(MIN_TRANSIT, PART)
    held = [await transit.enter(PART) for _ in range(15)]
    order = []

    async def get(n_bytes: int, scope: trio.CancelScope) -> None:
        with scope:
            order.append(await transit.enter(n_bytes))

    scopes = [trio.CancelScope() for _ in range(3)]
    async with trio.open_nursery() as nursery:
        for n_bytes, scope in zip((2 * PART, PART, 4096), scopes, strict=True):
            nursery.start_soon(get, n_bytes, scope)
            await wait_all_tasks_blocked()
        assert transit.statistics().waiting == 3
        transit.check_invariants()
        scopes[0].cancel()
        await wait_all_tasks_blocked()
        assert order == [PART]
        transit.leave(held.pop())
    assert order == [PART, 4096]
    assert transit.statistics() == TransitStatistics(MIN_TRANSIT, 15 * PART + 4096, 0)


async def test_more_than_there_is_is_refused() -> None:
    """A GET that never fits is our own bug, and says so."""
    with pytest.raises(ValueError, match="can never be on its way"):
        await Transit(MIN_TRANSIT, PART).enter(MIN_TRANSIT + 1)


# -- with the CRT -------------------------------------------------------------------------------


class _Gate:
    """A proxy's `decide` that lets GETs arrive, and pass when it is opened."""

    def __init__(self) -> None:
        self.has_arrived = threading.Event()
        self.may_pass = threading.Event()
        self._bucket = ScriptedBucket({FILE: GIB})

    def __call__(self, request: Request) -> Fault | None:
        self.has_arrived.set()
        self.may_pass.wait(60)
        return self._bucket.decide(request)


def _reader(front: Proxy) -> AbstractAsyncContextManager[CrtReader]:
    endpoint = Endpoint(is_tls=False, host=urlsplit(front.url).netloc, base_path="/b/", region=REGION)
    s3 = S3Config(Location("b"), endpoint_url=front.url, force_path_style=True)
    return crt_reader(endpoint, None, None, s3, CrtConfig(128, PART, 1))


async def _get(reader: CrtReader, number: int, arrival: Arrival | None = None, *, is_right: list[bool]) -> None:
    span = ByteRange(number * MIB, (number + 1) * MIB)
    is_right.append(await reader.get_range(ObjectId(FILE, ""), span, arrival) == content_at(FILE, *span))


async def test_gets_wait_before_the_crt_has_no_room(weed: Server) -> None:
    """Of 100 GETs of 1 MiB at once the CRT hears of 64, whose chunks are all there may be; the others follow."""
    with proxy(weed.url) as front:
        front.decide = gate = _Gate()
        async with _reader(front) as reader, trio.open_nursery() as nursery:
            is_right: list[bool] = []
            arrivals = [Arrival(0.0) for _ in range(100)]
            for number, arrival in enumerate(arrivals):
                nursery.start_soon(partial(_get, reader, number, arrival, is_right=is_right))
            await wait_all_tasks_blocked()
            assert reader.transit.statistics() == TransitStatistics(MIN_TRANSIT, MIN_TRANSIT, 36)
            assert sum(arrival.sent_at < math.inf for arrival in arrivals) == 64
            reader.transit.check_invariants()
            gate.may_pass.set()
        assert is_right == [True] * 100
        assert reader.transit.statistics() == TransitStatistics(MIN_TRANSIT, 0, 0)


async def test_a_cancelled_get_counts_until_the_crt_is_done(weed: Server) -> None:
    """A GET that nobody waits for is on its way until the CRT says that it ended, and soon it does."""
    with proxy(weed.url) as front:
        front.decide = gate = _Gate()
        async with _reader(front) as reader, trio.open_nursery() as nursery:
            async with trio.open_nursery() as asking:
                asking.start_soon(partial(_get, reader, 0, is_right=[]))
                await trio.to_thread.run_sync(gate.has_arrived.wait)
                asking.cancel_scope.cancel()
                assert reader.transit.statistics().used == 2 * MIB
            nursery.start_soon(reader.transit.enter, MIN_TRANSIT)  # gets all of it when nothing else is on its way
            nursery.cancel_scope.deadline = trio.current_time() + 30
        assert not nursery.cancel_scope.cancelled_caught
        gate.may_pass.set()
