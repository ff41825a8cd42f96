"""One attempt of one request: it waits for its place, has a deadline, and is counted."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

import trio

from s3mount.core.latency import Latencies, LatencyHistogram
from s3mount.errors import StoreError, StoreTimeout

T = TypeVar("T")


class RequestInFlight(NamedTuple):
    """Attributes: a request that was sent, what for, and when, in trio's time."""

    operation: str
    key: str
    sent_at: float


class Attempts:
    """What guards have in common.

    Args:
        bucket: for messages; an error that leaves here names bucket, key and operation.
        deadline_s: of each attempt, the wait for its place included.

    Attributes:
        counts: by kind; here failures are.
    """

    def __init__(self, bucket: str, deadline_s: float) -> None:
        self._bucket = bucket
        self._deadline_s = deadline_s
        self.counts: Counter[str] = Counter()
        self._histograms: dict[str, LatencyHistogram] = {}
        self._in_flight: dict[trio.CancelScope, RequestInFlight] = {}

    async def run(
        self,
        limiter: trio.CapacityLimiter,
        operation: str,
        key: str,
        ask: Callable[[], Awaitable[T]],
        scope: trio.CancelScope | None = None,
        extra_s: float = 0.0,
    ) -> T:
        """The answer of `ask`.  No generator and, while there is room, no turn of the loop: every GET pays for it.

        Args:
            extra_s: added to the deadline.
        """
        scope = trio.CancelScope() if scope is None else scope
        deadline_s = self._deadline_s + extra_s
        scope.deadline = trio.current_time() + deadline_s
        try:
            with scope:
                await _take(limiter)
                sent_at = trio.current_time()
                self._in_flight[scope] = RequestInFlight(operation, key, sent_at)
                try:
                    return await ask()
                finally:
                    limiter.release()
                    del self._in_flight[scope]
                    self._note(operation, trio.current_time() - sent_at)
        except StoreError as error:
            self.counts["failures"] += 1
            error.locate(self._bucket, key, operation)
            raise
        if trio.current_time() >= scope.deadline:
            self.counts["failures"] += 1
        message = f"no answer within the deadline of {deadline_s:g} s (--request-deadline)"
        raise StoreTimeout(message, bucket=self._bucket, key=key, operation=operation)

    def _note(self, operation: str, seconds: float) -> None:
        histogram = self._histograms.get(operation)
        if histogram is None:
            histogram = self._histograms[operation] = LatencyHistogram()
        histogram.note(int(seconds * 1e9))

    def in_flight(self) -> list[RequestInFlight]:
        """What was sent and not answered yet, the oldest first."""
        return list(self._in_flight.values())

    def latencies(self) -> dict[str, Latencies]:
        """How long requests of each kind took from being sent to their end, the failed ones, too."""
        return {operation: each.statistics() for operation, each in self._histograms.items()}


async def _take(limiter: trio.CapacityLimiter) -> None:
    """A place, without a turn of the loop if one is free."""
    try:
        limiter.acquire_nowait()
    except trio.WouldBlock:
        await limiter.acquire()
