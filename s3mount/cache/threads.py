"""Threads for short blocking calls, at a seventh of what `trio.to_thread` costs for each.

A read of 4 KiB that is not in the kernel's memory takes 80 us of CPU; `trio.to_thread.run_sync` adds
49, this 7 (decision 0022).  What it leaves out is what such calls do not need: context variables,
a limiter, calls back into trio, a cancel scope, and a wake-up of the loop for each: what ended meanwhile
comes back together, and one task looks after the time that all calls may take.

A caller that is cancelled, or whose time is over, goes at once; the call ends by itself and its result is dropped,
or it is not begun any more.
"""

import errno
import math
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar, TypeVarTuple

import outcome
import trio

#: How late a call may be given up.
_LOOK_EVERY_S = 0.05

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class _Call:
    """A call.

    Attributes:
        task: that waits; None when it went, or was woken: a task is woken once.
        until: when it is given up.
        result: what the function gave or raised.
    """

    __slots__ = ("args", "function", "result", "task", "until")

    def __init__(self, task: trio.lowlevel.Task, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.task: trio.lowlevel.Task | None = task
        self.function = function
        self.args = args
        self.until = math.inf
        self.result: outcome.Outcome[Any] | None = None

    def wake(self, result: outcome.Outcome[Any]) -> None:
        """Give the caller that, unless it went or got something before."""
        task, self.task = self.task, None
        if task is not None:
            trio.lowlevel.reschedule(task, result)


class CallThreads:
    """Runs functions in at most so many threads, which are made when they are needed.

    INVARIANT: `_in_flight` calls were put in the queue and did not come back to the loop yet.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._ended: deque[_Call] = deque()
        self._is_coming_back = False
        self._in_flight = 0
        self._n_threads = 0
        self._limited: dict[_Call, None] = {}
        self._is_limiting = trio.Event()

    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """What the function returns or raises, called in a thread.

        Raises:
            OSError: the system gives this process no thread.
        """
        result: T = await self._run(_Call(trio.lowlevel.current_task(), function, args))
        return result

    async def run_for(self, seconds: float, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """As `run`, while `watch` runs.

        Raises:
            TooSlowError: it took longer.
            OSError: the system gives this process no thread.
        """
        call = _Call(trio.lowlevel.current_task(), function, args)
        call.until = trio.current_time() + seconds
        self._limited[call] = None
        self._is_limiting.set()
        try:
            result: T = await self._run(call)
            return result
        finally:
            del self._limited[call]

    async def watch(self) -> None:
        """Give up calls whose time is over, for ever."""
        while True:
            await self._is_limiting.wait()
            await trio.sleep(_LOOK_EVERY_S)
            now = trio.current_time()
            for call in self._limited:
                if call.until <= now:
                    call.wake(outcome.Error(trio.TooSlowError()))
            if not self._limited:
                self._is_limiting = trio.Event()

    async def _run(self, call: _Call) -> Any:
        self._in_flight += 1
        if self._in_flight > self._n_threads < self._most:
            self._start_thread()
        self._calls.put(call)

        def abandon(_: object) -> trio.lowlevel.Abort:
            call.task = None
            return trio.lowlevel.Abort.SUCCEEDED

        return await trio.lowlevel.wait_task_rescheduled(abandon)

    def _start_thread(self) -> None:
        token = trio.lowlevel.current_trio_token()
        try:
            threading.Thread(target=self._work, args=(token,), name=self._name, daemon=True).start()
        except RuntimeError as error:
            if self._n_threads:
                return  # those that there are do it
            self._in_flight -= 1
            raise OSError(errno.EAGAIN, str(error)) from error
        self._n_threads += 1

    def close(self) -> None:
        """End the threads, each when its call has ended."""
        for _ in range(self._n_threads):
            self._calls.put(None)
        self._n_threads = 0

    def _work(self, token: trio.lowlevel.TrioToken) -> None:
        while (call := self._calls.get()) is not None:
            if call.task is not None:
                call.result = outcome.capture(call.function, *call.args)
            self._ended.append(call)
            if not self._is_coming_back:  # else those that are come back after this one was appended
                self._is_coming_back = True
                try:
                    token.run_sync_soon(self._come_back)
                except trio.RunFinishedError:
                    return

    def _come_back(self) -> None:
        self._is_coming_back = False
        while self._ended:
            call = self._ended.popleft()
            self._in_flight -= 1
            if call.result is not None:
                call.wake(call.result)
