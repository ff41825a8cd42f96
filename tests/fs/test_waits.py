"""What readers waited for, against arithmetic: a store of known distance, on a clock that the test moves."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict

import pytest
import trio
from trio.testing import MockClock

from s3mount.core.attrs import ObjectId
from s3mount.core.ranges import ByteRange
from s3mount.core.waits import Arrival, WaitSeconds
from s3mount.errors import StoreError, StoreFailure
from s3mount.store.guarded import GuardConfig, GuardedStore
from s3mount.units import GIB, KIB, MIB
from tests.fs.far_store import BYTES_PER_S, LATENCY_S, FarStore
from tests.fs.harness import Mounted, file_system

PART = 8 * MIB


@asynccontextmanager
async def reading(store: FarStore, size: int, **how: int) -> AsyncIterator[tuple[Mounted, int]]:
    """A file of a size, open; what its open waited for is forgotten by the tests that look at reads only."""
    store.add("f", size)
    async with file_system(store, **how) as mounted:
        attrs = await mounted.walk("f")
        handle = await mounted.fs.open(attrs.ino)
        yield mounted, handle
        mounted.fs.release(handle)


def waits(mounted: Mounted, since: WaitSeconds | None = None) -> WaitSeconds:
    """The causes so far, or since an earlier look."""
    now = asdict(mounted.fs.statistics().reader_wait_seconds)
    before = asdict(since or WaitSeconds())
    return WaitSeconds(**{cause: now[cause] - before[cause] for cause in now})


def assert_close(found: WaitSeconds, expected: WaitSeconds, rel: float = 1e-6) -> None:
    assert asdict(found) == pytest.approx(asdict(expected), rel=rel, abs=1e-9)


async def test_small_files(autojump_clock: MockClock) -> None:
    """Of files that were listed each is one GET: n distances and n transfers, and one LIST for all."""
    store = FarStore()
    for number in range(20):
        store.add(f"f{number}", 115_000)
    async with file_system(store) as mounted:
        began = trio.current_time()
        await mounted.names()
        for number in range(20):
            await mounted.read_file(f"f{number}")
        expected = WaitSeconds(names=LATENCY_S, first_byte=20 * LATENCY_S, transfer=20 * 115_000 / BYTES_PER_S)
        assert_close(waits(mounted), expected)
        assert expected.total == pytest.approx(trio.current_time() - began)


async def test_random_reads(autojump_clock: MockClock) -> None:
    """Each read waits one distance and the transfer of what was fetched for it."""
    store = FarStore()
    dice = random.Random(1)
    async with reading(store, 4 * GIB) as (mounted, handle):
        await trio.sleep(1)
        before, n_bytes = waits(mounted), store.counts["bytes"]
        for offset in dice.sample(range(MIB, 4 * GIB, MIB), 50):
            await mounted.read(handle, offset, 4 * KIB)
        fetched = store.counts["bytes"] - n_bytes
        assert store.counts["gets"] == 51
        assert_close(waits(mounted, before), WaitSeconds(first_byte=50 * LATENCY_S, transfer=fetched / BYTES_PER_S))


class RecordingStore(FarStore):
    """Remembers each GET: its range, when it started, and the marks it set."""

    def __init__(self) -> None:
        super().__init__()
        self.gets: list[tuple[ByteRange, float, Arrival]] = []

    async def get_range(self, wanted: ObjectId, span: ByteRange, arrival: Arrival | None = None) -> bytes:
        assert arrival is not None
        self.gets.append((span, trio.current_time(), arrival))
        return await super().get_range(wanted, span, arrival)


@pytest.mark.parametrize("pause_s", [0.0, 0.001, 0.002])
async def test_a_sequential_reader(pause_s: float, autojump_clock: MockClock) -> None:
    """All the time that reads took is told, and told apart as the GETs were that had the bytes."""
    store = RecordingStore()
    seconds = WaitSeconds()
    reads: list[tuple[int, float, float]] = []
    async with reading(store, 100 * MIB) as (mounted, handle):
        for offset in range(0, 100 * MIB, 128 * KIB):
            began = trio.current_time()
            await mounted.read(handle, offset, 128 * KIB)
            reads.append((offset, began, trio.current_time()))
            await trio.sleep(pause_s)
        seconds = waits(mounted, WaitSeconds(names=LATENCY_S))

    def overlap(began: float, ended: float, since: float, until: float) -> float:
        return max(0.0, min(ended, until) - max(began, since))

    first_byte = transfer = 0.0
    for offset, began, ended in reads:
        (get,) = [each for each in store.gets if each[0].start <= offset < each[0].stop]
        _, started, marks = get
        first_byte += overlap(began, ended, started, marks.first_byte_at)
        transfer += overlap(began, ended, marks.first_byte_at, marks.last_byte_at)
    assert first_byte + transfer == pytest.approx(sum(ended - began for _, began, ended in reads))
    assert first_byte >= LATENCY_S
    assert_close(seconds, WaitSeconds(first_byte=first_byte, transfer=transfer))


async def test_what_is_here_in_time_costs_nothing(autojump_clock: MockClock) -> None:
    """A reader that takes 1 s for each MiB waits for two of them: the first, and the one that makes it a stream."""
    store = FarStore()
    async with reading(store, 100 * MIB) as (mounted, handle):
        before = waits(mounted)
        for offset in range(0, 100 * MIB, MIB):
            await mounted.read(handle, offset, MIB)
            await trio.sleep(1)
        assert_close(waits(mounted, before), WaitSeconds(first_byte=2 * LATENCY_S, transfer=2 * MIB / BYTES_PER_S))


async def test_what_lands_10_ms_late_costs_10_ms(autojump_clock: MockClock) -> None:
    """The open's GET is under way when the first read comes: it waits for the rest of it, as what that is."""
    store = FarStore()
    async with reading(store, 100 * MIB) as (mounted, handle):
        before = waits(mounted)
        await trio.sleep(LATENCY_S + MIB / BYTES_PER_S - 0.010)
        await mounted.read(handle, 0, 4 * KIB)
        assert_close(waits(mounted, before), WaitSeconds(transfer=0.010))
        await mounted.read(handle, 4 * KIB, 4 * KIB)
        assert_close(waits(mounted, before), WaitSeconds(transfer=0.010))


async def test_two_readers_of_one_chunk(autojump_clock: MockClock) -> None:
    """Each waits its own time: the second one, 5 ms later, 5 ms less of the distance."""
    store = FarStore()
    async with reading(store, GIB) as (mounted, handle):
        await trio.sleep(1)
        before, n_bytes = waits(mounted), store.counts["bytes"]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(mounted.read, handle, 500 * MIB, 4 * KIB)
            await trio.sleep(0.005)
            nursery.start_soon(mounted.read, handle, 500 * MIB, 4 * KIB)
        fetched = store.counts["bytes"] - n_bytes
        assert store.counts["gets"] == 2
        expected = WaitSeconds(first_byte=2 * LATENCY_S - 0.005, transfer=2 * fetched / BYTES_PER_S)
        assert_close(waits(mounted, before), expected)


@pytest.mark.parametrize("after_s", [0.005, 0.0201])
async def test_a_reader_that_is_cancelled(after_s: float, autojump_clock: MockClock) -> None:
    """It waited until then, for the first byte as long as none had come; what the GET does later costs nobody."""
    store = FarStore()
    async with reading(store, GIB) as (mounted, handle):
        await trio.sleep(1)
        before = waits(mounted)
        with trio.move_on_after(after_s) as scope:
            await mounted.read(handle, 500 * MIB, 4 * KIB)
        assert scope.cancelled_caught
        await trio.sleep(1)
        assert_close(waits(mounted, before), WaitSeconds(first_byte=after_s), rel=0.01)


async def test_a_full_budget(autojump_clock: MockClock) -> None:
    """A reader that finds no room waits for the budget until there is, and then for its GET."""
    store = FarStore()
    async with reading(store, GIB, budget_bytes=4 * PART) as (mounted, handle):
        await trio.sleep(1)
        held = 4 * PART - mounted.budget.statistics().used
        assert mounted.budget.acquire_nowait(held, for_demand=True)
        mounted.budget.acquire_nowait(MIB, for_demand=True)
        held = mounted.budget.statistics().used
        before, n_bytes = waits(mounted), store.counts["bytes"]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(mounted.read, handle, 500 * MIB, 4 * KIB)
            await trio.sleep(0.7)
            mounted.budget.release(held)
        fetched = store.counts["bytes"] - n_bytes
        expected = WaitSeconds(budget=0.7, first_byte=LATENCY_S, transfer=fetched / BYTES_PER_S)
        assert_close(waits(mounted, before), expected)


async def test_a_full_line_of_gets(autojump_clock: MockClock) -> None:
    """With one connection the second of two readers waits for it as long as the first one's GET takes."""
    store = FarStore()
    for key in "ab":
        store.add(key, 90_000)
    guarded = GuardedStore(store, store, GuardConfig(max_gets=1))
    async with file_system(guarded) as mounted, trio.open_nursery() as nursery:
        for key in "ab":
            nursery.start_soon(mounted.read_file, key)
        await trio.sleep(1)
        expected = WaitSeconds(names=2 * LATENCY_S, connection=0.021, first_byte=2 * LATENCY_S, transfer=0.002)
        assert_close(waits(mounted), expected)


class LateStore(FarStore):
    """The answer is here, and the task that carries it is run 30 ms later."""

    async def get_range(self, wanted: ObjectId, span: ByteRange, arrival: Arrival | None = None) -> bytes:
        content = await super().get_range(wanted, span, arrival)
        await trio.sleep(0.030)
        return content


async def test_a_busy_loop(autojump_clock: MockClock) -> None:
    """Between the last byte, as the store saw it, and the reader's going on, it waits for the loop."""
    store = LateStore()
    store.add("f", 90_000)
    async with file_system(store) as mounted:
        await mounted.read_file("f")
        expected = WaitSeconds(names=LATENCY_S, first_byte=LATENCY_S, transfer=0.001, loop=0.030)
        assert_close(waits(mounted), expected)


class FailingStore(FarStore):
    """Every GET fails after 2 s."""

    async def get_range(self, wanted: ObjectId, span: ByteRange, arrival: Arrival | None = None) -> bytes:
        await trio.sleep(2.0)
        raise StoreFailure("broken", key=wanted.key)


async def test_a_get_that_fails(autojump_clock: MockClock) -> None:
    """Its readers waited for a first byte that did not come."""
    store = FailingStore()
    store.add("f", 90_000)
    async with file_system(store) as mounted:
        attrs = await mounted.walk("f")
        with pytest.raises(StoreError):
            await mounted.fs.open(attrs.ino)
        assert_close(waits(mounted), WaitSeconds(names=LATENCY_S, first_byte=2.0))


async def test_names(autojump_clock: MockClock) -> None:
    """Listings, and the question whether a version is still the one, are waits for names; what is known is none."""
    store = FarStore()
    store.add("dir/f", 5 * MIB)
    async with file_system(store) as mounted:
        directory = await mounted.walk("dir")
        await mounted.names(directory.ino)
        attrs = await mounted.walk("dir/f")
        assert_close(waits(mounted), WaitSeconds(names=2 * LATENCY_S))
        await mounted.read_file("dir/f")
        before = waits(mounted)
        await trio.sleep(10)
        mounted.fs.release(await mounted.fs.open(attrs.ino))
        assert store.counts["heads"] == 1
        assert_close(waits(mounted, before), WaitSeconds(names=LATENCY_S))


@pytest.mark.parametrize(
    ("latency_s", "size"), [(0.020, 115_000), (0.150, 115_000), (0.150, 100 * MIB), (0.5, 100 * MIB)]
)
async def test_a_client_that_cannot_see_the_first_byte(latency_s: float, size: int, autojump_clock: MockClock) -> None:
    """Where the client tells only when a GET ended, distance and rate are learned: within 10 % of the whole wait."""
    seen: list[WaitSeconds] = []
    for tells in (True, False):
        store = FarStore(latency_s)
        store.tells_first_byte = tells
        for number in range(2):
            store.add(f"f{number}", size)
        async with file_system(store) as mounted:
            for number in range(2):
                await mounted.read_file(f"f{number}", MIB)
            seen.append(waits(mounted))
    exact, learned = seen
    assert learned.total == pytest.approx(exact.total)
    assert learned.first_byte == pytest.approx(exact.first_byte, abs=0.1 * exact.total)
    assert learned.transfer == pytest.approx(exact.transfer, abs=0.1 * exact.total)
