"""Names that the kernel need not remember, told to it in the way of nobody.

Each takes the lock of its directory: where look-ups wait for S3 it waits as long as they do, and new ones wait for it.
A thousand in a row halved the look-ups in such a directory, for minutes (measured), and notes that matter would have
waited behind them.  So they have a thread of their own, for as long as there are any, and after one that had to wait
there is a rest of many times as long.

INVARIANT: at most one thread is in the kernel.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

import trio

#: A name, and the inode of its directory.
Name = tuple[int, bytes]

#: Seconds that one takes which had not to wait: microseconds, and a thread's turn.
_QUICK_S = 0.02
#: The rest, in the time of what had to.
_REST = 20


class LettingGo:
    """Tells one mount's kernel.

    Args:
        send: calls into the kernel, for as long as it takes; returns what to count.
        clock: seconds.
    """

    def __init__(self, send: Callable[[Name], str], clock: Callable[[], float] = time.perf_counter) -> None:
        self._send = send
        self._clock = clock
        self._one = trio.CapacityLimiter(1)
        self._changed = threading.Condition()
        # What follows is guarded by the condition, which nobody holds during a call into the kernel.
        self._n_inside = 0
        self._is_closed = False
        self._counts: Counter[str] = Counter()

    async def let_go(self, names: Sequence[Name]) -> int:
        """Tell of names up to one that has to wait, and rest then; returns how many those were.

        A caller that is cancelled does not wait: a thread tells of the rest while that is quick.
        """
        n_done, waited_s = await trio.to_thread.run_sync(
            self._while_quick, names, abandon_on_cancel=True, limiter=self._one
        )
        await trio.sleep(_REST * waited_s)
        return n_done

    def _while_quick(self, names: Sequence[Name]) -> tuple[int, float]:
        """In a thread; how many are done when one had to wait, and for how long it did."""
        with self._changed:
            self._n_inside += 1
        try:
            for n_done, name in enumerate(names, 1):
                if self._is_closed:
                    break
                began_at = self._clock()
                outcome = self._send(name)
                took_s = self._clock() - began_at
                with self._changed:
                    self._counts[outcome] += 1
                if took_s > _QUICK_S:
                    return n_done, took_s
            return len(names), 0.0
        finally:
            with self._changed:
                self._n_inside -= 1
                self._changed.notify_all()

    def counts(self) -> Counter[str]:
        """What became of them."""
        with self._changed:
            return self._counts.copy()

    def close(self, patience_s: float) -> bool:
        """Tell nothing more; returns whether no thread is in the kernel, after that time at most."""
        with self._changed:
            self._is_closed = True
            return self._changed.wait_for(lambda: not self._n_inside, patience_s)
