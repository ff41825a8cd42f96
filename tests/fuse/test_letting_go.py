"""Names that are let go of, against a kernel that the tests play."""

import threading
from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from s3mount.fuse.letting_go import LettingGo, Name
from tests.support.processes import wait_until

NAMES: list[Name] = [(2, b"%d" % number) for number in range(6)]


class Kernel:
    """Takes names; some have to wait.

    Attributes:
        waits_s: that names take, on the kernel's own clock.
    """

    def __init__(self) -> None:
        self.taken: list[Name] = []
        self.waits_s: dict[Name, float] = {}
        self.threads: set[int] = set()
        self.gate = threading.Event()
        self.gate.set()
        self.now = 0.0

    def send(self, name: Name) -> str:
        self.taken.append(name)
        self.threads.add(threading.get_ident())
        assert self.gate.wait(30)
        self.now += self.waits_s.get(name, 0.0)
        return "sent"

    def clock(self) -> float:
        return self.now


@pytest.fixture
def kernel() -> Kernel:
    return Kernel()


@pytest.fixture
def letting_go(kernel: Kernel) -> LettingGo:
    return LettingGo(kernel.send, kernel.clock)


@pytest.fixture
def inline_clock(monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock) -> MockClock:
    """Time passes when nobody has anything to do, and not while a thread has: there are none."""

    async def run_sync(
        work: Callable[..., object], *args: object, limiter: trio.CapacityLimiter, **_: object
    ) -> object:
        async with limiter:
            return work(*args)

    monkeypatch.setattr(trio.to_thread, "run_sync", run_sync)
    return autojump_clock


async def let_all_go(letting_go: LettingGo, names: list[Name]) -> None:
    while names:
        names = names[await letting_go.let_go(names) :]


async def test_all_are_told_in_order_and_in_a_thread(kernel: Kernel, letting_go: LettingGo) -> None:
    """One after the other, never on the loop."""
    assert await letting_go.let_go(NAMES) == len(NAMES)
    assert kernel.taken == NAMES
    assert threading.get_ident() not in kernel.threads
    assert letting_go.counts() == {"sent": len(NAMES)}
    assert letting_go.close(0)


async def test_after_one_that_waited_there_is_a_rest(
    kernel: Kernel, letting_go: LettingGo, inline_clock: MockClock
) -> None:
    """Twenty times as long as it waited, before the next; quick ones need none."""
    kernel.waits_s = {NAMES[1]: 0.5, NAMES[3]: 2.0}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(let_all_go, letting_go, NAMES)
        for seconds, n_taken in ((5, 2), (10, 4), (40, 6)):
            await trio.sleep(seconds)
            assert len(kernel.taken) == n_taken
    assert kernel.taken == NAMES


async def test_one_directory_at_a_time_and_none_waits_for_the_rest_of_another(
    kernel: Kernel, letting_go: LettingGo, inline_clock: MockClock
) -> None:
    """One call is in the kernel at a time; while one directory is left alone others are told of."""
    kernel.waits_s = {NAMES[0]: 10.0}
    others = [(3, name) for _, name in NAMES]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(letting_go.let_go, NAMES)
        await trio.sleep(1)
        await letting_go.let_go(others)
        assert kernel.taken == [NAMES[0], *others]


async def test_who_is_cancelled_does_not_wait(kernel: Kernel, letting_go: LettingGo) -> None:
    """The call that is stuck is left to itself, and `close` says that it is; after it there is no other."""
    kernel.gate.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(letting_go.let_go, NAMES)
        await trio.to_thread.run_sync(wait_until, lambda: kernel.taken, 30, "a call")
        nursery.cancel_scope.cancel()
    assert not letting_go.close(0)
    kernel.gate.set()
    assert letting_go.close(30)
    assert kernel.taken == NAMES[:1]
