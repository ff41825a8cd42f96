"""The byte budget: order, reclaiming, cancellation."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from s3mount.fs.budget import ByteBudget


class Hoard:
    """A reclaimer with so many bytes to give, all at once."""

    def __init__(self, n_bytes: int, *, only_for_demand: bool = False) -> None:
        self.n_bytes = n_bytes
        self.only_for_demand = only_for_demand

    def reclaim(self, n_bytes: int, *, for_demand: bool) -> int:
        if self.only_for_demand and not for_demand:
            return 0
        given = min(n_bytes, self.n_bytes)
        self.n_bytes -= given
        return given


async def test_demand_waits_until_bytes_are_released() -> None:
    """A reader that finds the budget full goes on when enough was given back, not before."""
    budget = ByteBudget(100)
    await budget.acquire(80)
    got = []

    async def reader() -> None:
        await budget.acquire(50)
        got.append(True)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader)
        await wait_all_tasks_blocked()
        budget.release(20)
        assert not got
        budget.release(20)
        await wait_all_tasks_blocked()
        assert got
    assert budget.statistics().used == 90
    assert budget.statistics().waits == 1


async def test_waiters_are_served_in_order() -> None:
    """A small request does not overtake a large one that waits."""
    budget = ByteBudget(100)
    await budget.acquire(100)
    order = []

    async def reader(n_bytes: int) -> None:
        await budget.acquire(n_bytes)
        order.append(n_bytes)

    async with trio.open_nursery() as nursery:
        for n_bytes in (90, 10):
            nursery.start_soon(reader, n_bytes)
            await wait_all_tasks_blocked()
        budget.release(50)
        await wait_all_tasks_blocked()
        assert order == []
        assert not budget.acquire_nowait(1, for_demand=True)
        budget.release(40)
        await wait_all_tasks_blocked()
        assert order == [90]
        budget.release(10)
        await wait_all_tasks_blocked()
    assert order == [90, 10]


async def test_speculation_never_waits() -> None:
    """Speculation takes only what is free, and nothing while a reader waits."""
    budget = ByteBudget(100)
    assert budget.acquire_nowait(60, for_demand=False)
    assert not budget.acquire_nowait(60, for_demand=False)
    assert budget.statistics().waiting == 0


@pytest.mark.parametrize("for_demand", [True, False])
async def test_reclaimed_bytes_are_free_at_once(*, for_demand: bool) -> None:
    """What the reclaimer gives up counts before anybody waits; unread bytes only for demand."""
    budget = ByteBudget(100)
    assert budget.acquire_nowait(100, for_demand=True)
    budget.reclaimer = Hoard(40, only_for_demand=True)
    assert budget.acquire_nowait(40, for_demand=for_demand) is for_demand
    budget.check_invariants()


async def test_a_cancelled_waiter_leaves_no_trace() -> None:
    """A waiter that is cancelled leaves the queue, and the next one is served."""
    budget = ByteBudget(100)
    await budget.acquire(60)
    got = []

    async def small() -> None:
        await budget.acquire(40)
        got.append(True)

    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as inner:
                inner.start_soon(budget.acquire, 80)
                await wait_all_tasks_blocked()
                nursery.start_soon(small)
                await wait_all_tasks_blocked()
                assert not got
                scope.cancel()
        await wait_all_tasks_blocked()
    assert got
    assert budget.statistics().used == 100
    assert budget.statistics().waiting == 0


async def test_a_waiter_cancelled_after_its_grant_gives_it_back() -> None:
    """Bytes granted to a task that is cancelled in the same moment are not lost."""
    budget = ByteBudget(100)
    await budget.acquire(100)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(budget.acquire, 70)
            await wait_all_tasks_blocked()
            budget.release(100)
            scope.cancel()
    assert budget.statistics().used in (0, 70)
    used = budget.statistics().used
    budget.release(used)
    assert budget.statistics().used == 0


async def test_more_than_there_is_is_refused() -> None:
    """A request that can never be granted is our own bug, and says so."""
    with pytest.raises(ValueError, match="never fit"):
        await ByteBudget(100).acquire(101)


async def test_a_narrow_budget() -> None:
    """While memory is short speculation gets nothing above the halved total, and demand waits; then both go on."""
    budget = ByteBudget(100)
    await budget.acquire(40)
    budget.limit = 50
    assert not budget.acquire_nowait(20, for_demand=False)
    assert not budget.acquire_nowait(20, for_demand=True)
    assert budget.acquire_nowait(10, for_demand=False)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(budget.acquire, 20)
        await wait_all_tasks_blocked()
        assert budget.statistics().waiting == 1
        budget.limit = 100
    assert budget.statistics().used == 70
    budget.check_invariants()


async def test_a_demand_larger_than_a_narrow_budget() -> None:
    """It is met when nothing else is held: no reader waits for ever because memory is short."""
    budget = ByteBudget(100)
    await budget.acquire(5)
    budget.limit = 3
    async with trio.open_nursery() as nursery:
        nursery.start_soon(budget.acquire, 90)
        await wait_all_tasks_blocked()
        assert budget.statistics().waiting == 1
        budget.release(5)
    assert budget.statistics().used == 90


async def test_shedding_serves_who_waits() -> None:
    """What is let go of is free for readers."""
    budget = ByteBudget(100)
    await budget.acquire(100)
    hoard = Hoard(0)
    budget.reclaimer = hoard
    async with trio.open_nursery() as nursery:
        nursery.start_soon(budget.acquire, 50)
        await wait_all_tasks_blocked()
        hoard.n_bytes = 60
        budget.shed()
    assert budget.statistics().used == 90
