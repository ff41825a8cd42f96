"""A stalled GET is raced: who wins, what is cancelled, what is counted, and that nobody else pays."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from s3mount.core.attrs import ObjectId
from s3mount.core.ranges import ByteRange
from s3mount.core.waits import Arrival
from s3mount.errors import StoreError, StoreFailure, StoreThrottled, StoreTimeout
from s3mount.store.guarded import GuardConfig, GuardedStore
from s3mount.store.racing import RacingStore
from tests.support.fake_store import FakeStore

USUAL_S = 0.05
#: What a test says of a GET, by its number from 0 on: seconds until it is answered, or what it raises after that.
Script = Callable[[int], float | tuple[float, StoreError]]


class SlowStore(FakeStore):
    """GETs take as long as the script says.

    Attributes:
        cancelled: numbers of the GETs that were given up.
    """

    def __init__(self, script: Script) -> None:
        super().__init__()
        self.script = script
        self.cancelled: list[int] = []

    async def get_range(self, wanted: ObjectId, span: ByteRange, arrival: Arrival | None = None) -> bytes:
        number = self.counts["gets"]
        told = self.script(number)
        after_s, error = told if isinstance(told, tuple) else (told, None)
        self.counts["gets"] += 1
        try:
            await trio.sleep(after_s)
        except trio.Cancelled:
            self.cancelled.append(number)
            raise
        if error is not None:
            raise error
        if arrival is not None:
            arrival.last_byte_at = trio.current_time()
        return self._content_of(wanted, "GetObject")[span.start : span.stop]


class Track:
    """One object behind the wrapper; `warm_up` lets it learn that a GET takes 50 ms."""

    def __init__(self, fake: SlowStore, guard: GuardedStore, nursery: trio.Nursery) -> None:
        self.fake = fake
        self.guard = guard
        self.nursery = nursery
        self.racing = RacingStore(guard, nursery)
        self.content = bytes(range(100))
        self.object_id = fake.put("object", self.content)

    async def get(self, arrival: Arrival | None = None) -> float:
        """Read the object; the seconds it took."""
        began_at = trio.current_time()
        assert await self.racing.get_range(self.object_id, ByteRange(0, 100), arrival) == self.content
        return trio.current_time() - began_at

    async def warm_up(self, count: int = 20) -> None:
        script, self.fake.script = self.fake.script, lambda _: USUAL_S
        for _ in range(count):
            await self.get()
        self.fake.counts.clear()
        self.fake.script = script


@asynccontextmanager
async def track(script: Script, *, deadline_s: float = 60.0, max_gets: int = 128) -> AsyncIterator[Track]:
    """The wrapper over a scripted store; nothing is left of any GET when it ends."""
    fake = SlowStore(script)
    guard = GuardedStore(fake, fake, GuardConfig(deadline_s=deadline_s, max_gets=max_gets))
    async with trio.open_nursery() as nursery:
        run = Track(fake, guard, nursery)
        yield run
        await wait_all_tasks_blocked()
        run.racing.check_invariants()
        guard.check_invariants()
        assert run.racing.statistics().in_flight == 0
        assert guard.statistics().in_flight == 0
        nursery.cancel_scope.cancel()


def stalls_at(*numbers: int) -> Script:
    """These GETs are never answered."""
    return lambda number: 1e6 if number in numbers else USUAL_S


async def test_a_stalled_get_is_answered_by_the_second(autojump_clock: MockClock) -> None:
    """After a second of silence a second GET is sent; it answers, and the first is cancelled: two requests in all."""
    async with track(stalls_at(0)) as run:
        await run.warm_up()
        took_s = await run.get()
        assert 1.0 <= took_s <= 1.25 + USUAL_S + 0.01
        assert run.fake.cancelled == [0]
        assert run.fake.counts["gets"] == 2
        assert run.racing.statistics() == (0, 1, 1)
        assert (run.guard.statistics().gets, run.guard.statistics().failures) == (22, 0)


async def test_a_get_that_does_not_stall_is_alone(autojump_clock: MockClock) -> None:
    """GETs that take less than a second are never raced, and leave no watcher behind."""
    async with track(lambda number: 0.9 if number % 2 else USUAL_S) as run:
        for _ in range(200):
            await run.get()
        assert run.fake.counts["gets"] == 200
        assert run.racing.statistics() == (0, 0, 0)
        await trio.sleep(1)
        assert not run.nursery.child_tasks


async def test_the_first_may_still_win(autojump_clock: MockClock) -> None:
    """When the first is answered while the second runs, its answer counts, and the second is cancelled."""
    async with track(lambda number: 1.5 if number == 0 else 10.0) as run:
        await run.warm_up()
        assert await run.get() == pytest.approx(1.5)
        await wait_all_tasks_blocked()
        assert run.fake.cancelled == [1]
        assert run.racing.statistics() == (0, 1, 0)


async def test_the_first_fails_while_the_second_runs(autojump_clock: MockClock) -> None:
    """The second's answer counts, and nobody hears of the failure."""
    async with track(lambda number: (2.0, StoreFailure("broken")) if number == 0 else 3.0) as run:
        await run.warm_up()
        assert 4.0 <= await run.get() <= 4.3
        assert run.fake.cancelled == []
        assert run.racing.statistics().won == 1


async def test_both_fail(autojump_clock: MockClock) -> None:
    """The first's failure is the answer, whichever came first."""
    for first_s, second_s in ((2.0, 3.0), (5.0, 1.0)):
        errors = {0: (first_s, StoreFailure("first")), 1: (second_s, StoreThrottled("second"))}
        async with track(errors.__getitem__) as run:
            await run.warm_up()
            with pytest.raises(StoreFailure, match="first"):
                await run.get()
            assert run.fake.counts["gets"] == 2
            assert run.guard.statistics().failures == 2


async def test_a_failure_before_the_race_is_the_answer(autojump_clock: MockClock) -> None:
    """A GET that fails soon fails once: repeating is another's business."""
    async with track(lambda _: (0.5, StoreFailure("broken"))) as run:
        await run.warm_up()
        with pytest.raises(StoreFailure, match="broken"):
            await run.get()
        assert run.fake.counts["gets"] == 1


async def test_both_stall(autojump_clock: MockClock) -> None:
    """There is no third; each has the deadline of a request, and the call fails with the first's."""
    async with track(stalls_at(0, 1), deadline_s=10.0) as run:
        await run.warm_up()
        with pytest.raises(StoreTimeout, match="10 s"):
            await run.get()
        assert run.fake.counts["gets"] == 2
        assert sorted(run.fake.cancelled) == [0, 1]


@pytest.mark.parametrize("after_s", [0.5, 1.5, 2.5])
async def test_cancelling_leaves_nothing(autojump_clock: MockClock, after_s: float) -> None:
    """Before the race, during it, or when only the second is left: all that runs is cancelled with the caller."""
    async with track(lambda number: (2.0, StoreFailure("broken")) if number == 0 else 1e6) as run:
        await run.warm_up()
        with trio.move_on_after(after_s) as scope:
            await run.get()
        assert scope.cancelled_caught
        await wait_all_tasks_blocked()
        assert run.fake.cancelled == {0.5: [0], 1.5: [0, 1], 2.5: [1]}[after_s]


async def test_a_server_that_stalls_altogether_gets_few_more(autojump_clock: MockClock) -> None:
    """Of 100 GETs that all stall eight are raced, so a server that is down does not get twice as many."""
    async with track(stalls_at(*range(200)), deadline_s=30.0) as run:
        await run.warm_up()

        async def fail() -> None:
            with pytest.raises(StoreTimeout):
                await run.get()

        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(fail)
        assert run.fake.counts["gets"] == 108


async def test_a_server_that_became_slow_is_waited_for(autojump_clock: MockClock) -> None:
    """From 50 ms to 5 s for every GET: with 5 % of races at most they all are answered, and then none is raced."""
    async with track(lambda _: 5.0) as run:
        await run.warm_up(1000)
        for _ in range(20):
            async with trio.open_nursery() as nursery:
                for _ in range(50):
                    nursery.start_soon(run.get)
        raced = run.racing.statistics().raced
        assert 0 < raced <= 8 + 2000 / 20
        assert run.fake.counts["gets"] == 1000 + raced
        assert await run.get() == pytest.approx(5.0)
        assert run.racing.statistics().raced == raced


async def test_a_loop_that_was_late_races_nothing(mock_clock: MockClock) -> None:
    """When the program itself stood still for 50 s, what waits is not taken for stalled."""
    async with track(lambda _: 1e6) as run, trio.open_nursery() as nursery:
        nursery.start_soon(run.get)
        await wait_all_tasks_blocked()
        mock_clock.jump(50.0)
        await wait_all_tasks_blocked()
        assert run.racing.statistics().raced == 0
        mock_clock.jump(0.3)
        await wait_all_tasks_blocked()
        assert run.racing.statistics().raced == 1
        nursery.cancel_scope.cancel()


async def test_the_second_keeps_to_the_limit(autojump_clock: MockClock) -> None:
    """Where one GET at once is allowed, the second waits in the guard, and the first is answered when it is."""
    async with track(lambda _: 5.0, max_gets=1) as run:
        await run.warm_up()
        assert await run.get() == pytest.approx(5.0)
        assert run.fake.counts["gets"] == 1
        assert run.racing.statistics() == (0, 1, 0)


async def test_a_get_that_waits_for_a_connection_has_not_stalled(autojump_clock: MockClock) -> None:
    """Ten GETs of 0.9 s that are sent one after the other, the last after 8 s, are ten."""
    async with track(lambda _: 0.9, max_gets=1) as run:
        await run.warm_up(200)
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(run.get)
        assert run.fake.counts["gets"] == 10
        assert run.racing.statistics().raced == 0


async def test_what_is_told_of_an_answer(autojump_clock: MockClock) -> None:
    """Sent is when the first was sent; the last byte is that of the answer that counts."""
    async with track(stalls_at(0)) as run:
        await run.warm_up()
        arrival = Arrival(0.0)
        began_at = trio.current_time()
        took_s = await run.get(arrival)
        assert arrival.sent_at == began_at
        assert arrival.last_byte_at == began_at + took_s
