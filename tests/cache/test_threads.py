"""Calls in threads: results, errors, cancellation, and no more threads than allowed."""

import threading
from contextlib import suppress

import pytest
import trio
import trio.testing

from s3mount.cache.threads import CallThreads


async def test_results_and_errors_come_back() -> None:
    """What a function returns or raises in a thread is what the caller gets."""
    threads = CallThreads(2, "test")
    assert await threads.run(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await threads.run(divmod, 7, 0)
    threads.close()


async def test_at_most_so_many_at_once() -> None:
    """As many calls run at once as there may be threads, and all come back, each to its caller."""
    threads = CallThreads(4, "test")
    meeting = threading.Barrier(4)
    results: dict[int, int] = {}

    def meet(number: int) -> int:
        meeting.wait(timeout=60)
        return number * number

    async def call(number: int) -> None:
        results[number] = await threads.run(meet, number)

    async with trio.open_nursery() as nursery:
        for number in range(40):
            nursery.start_soon(call, number)
    assert results == {number: number * number for number in range(40)}
    assert threads._in_flight == 0
    assert threads._n_threads == 4
    threads.close()


async def test_a_cancelled_caller_goes_at_once() -> None:
    """A caller that is cancelled does not wait for its call, and the thread serves the next one afterwards."""
    threads = CallThreads(1, "test")
    hold = threading.Event()
    with trio.move_on_after(0.01) as scope:
        await threads.run(hold.wait)
    assert scope.cancelled_caught
    hold.set()
    assert await threads.run(threading.current_thread) is not threading.current_thread()
    assert threads._in_flight == 0
    with trio.CancelScope() as cancelled:
        cancelled.cancel()
        await threads.run(hold.wait)
    assert cancelled.cancelled_caught
    threads.close()


async def test_a_call_that_takes_too_long_is_given_up() -> None:
    """A call that takes longer than it may is given up, the others are not, and its thread goes on afterwards."""
    threads = CallThreads(2, "test")
    hold = threading.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(threads.watch)
        with pytest.raises(trio.TooSlowError):
            await threads.run_for(0.01, hold.wait)
        assert await threads.run_for(60, divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await threads.run_for(60, divmod, 7, 0)
        hold.set()
        assert await threads.run(hold.wait)
        nursery.cancel_scope.cancel()
    assert threads._limited == {}
    threads.close()


async def test_a_call_that_ends_as_its_time_does(mock_clock: trio.testing.MockClock) -> None:
    """A call that ends in the moment in which its time is over is one or the other, and never both."""
    threads = CallThreads(1, "test")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(threads.watch)
        for _ in range(40):  # the loop comes to either first, by chance
            hold = threading.Event()
            nursery.start_soon(_results_or_too_slow, threads, hold)
            await trio.testing.wait_all_tasks_blocked()
            hold.set()
            while not threads._ended:
                pass  # the loop stands still, so that it sees both at once
            mock_clock.jump(60)
            while threads._limited or threads._in_flight:
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    threads.close()


async def _results_or_too_slow(threads: CallThreads, hold: threading.Event) -> None:
    with suppress(trio.TooSlowError):
        assert await threads.run_for(1, hold.wait)


async def test_what_nobody_waits_for_is_not_begun() -> None:
    """A call whose caller went before a thread had come to it is never made."""
    threads = CallThreads(1, "test")
    hold = threading.Event()
    made: list[str] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(threads.run, hold.wait)
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(0.01):
            await threads.run(made.append, "nobody waits")
        hold.set()
    await threads.run(made.append, "last")
    assert made == ["last"]
    assert threads._in_flight == 0
    threads.close()


async def test_a_system_without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no thread can be started a call fails as a disk does; where some run already, they do it."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    threads = CallThreads(2, "test")
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        with pytest.raises(OSError, match="can't start new thread"):
            await threads.run(divmod, 7, 2)
    assert await threads.run(divmod, 7, 2) == (3, 1)
    hold = threading.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(threads.run, hold.wait)
        await trio.testing.wait_all_tasks_blocked()
        monkeypatch.setattr(threading.Thread, "start", refuse)
        nursery.start_soon(threads.run, hold.wait)
        await trio.testing.wait_all_tasks_blocked()
        hold.set()
    assert (threads._in_flight, threads._n_threads) == (0, 1)
    threads.close()


def test_a_thread_outlives_the_loop_quietly() -> None:
    """A call that ends after the loop did is dropped, and its thread ends."""
    threads = CallThreads(1, "outlives")
    hold = threading.Event()

    async def leave() -> None:
        with trio.move_on_after(0.01):
            await threads.run(hold.wait)

    trio.run(leave)
    (thread,) = (each for each in threading.enumerate() if each.name == "outlives")
    hold.set()
    thread.join(60)
    assert not thread.is_alive()
