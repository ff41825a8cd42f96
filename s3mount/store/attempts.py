"""One attempt of one request: it waits for its place, has a deadline, and is counted."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from s3mount.errors import StoreError, StoreTimeout

T = TypeVar("T")


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
                try:
                    return await ask()
                finally:
                    limiter.release()
        except StoreError as error:
            self.counts["failures"] += 1
            error.locate(self._bucket, key, operation)
            raise
        if trio.current_time() >= scope.deadline:
            self.counts["failures"] += 1
        message = f"no answer within the deadline of {deadline_s:g} s (--request-deadline)"
        raise StoreTimeout(message, bucket=self._bucket, key=key, operation=operation)


async def _take(limiter: trio.CapacityLimiter) -> None:
    """A place, without a turn of the loop if one is free."""
    try:
        limiter.acquire_nowait()
    except trio.WouldBlock:
        await limiter.acquire()
