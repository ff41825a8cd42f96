"""Asks S3 again: the one place of this program where a request is repeated.

Both clients are told to try once, so that each failure is seen here and two kinds of retrying never
multiply.  What to do with a failure is decided by pure parts: `core.backoff` says when a request is
asked again and when it has failed; `core.send_rate` holds all requests to what a throttling S3 takes;
`core.outage` lets few ask while S3 is away.  Here they are given their time and chance, and obeyed.

A request that meets no trouble is asked at once, and pays for two readings of the clock and a
count; no scope, no lock.  The others stand in line, first come, first served: in one line those that failed,
in the other those that were never asked, so that an object which S3 always fails on holds up no other.

Only what may pass is asked again: throttling, a server's failure, a broken or missing connection, no answer
in time.  What S3 says about the object, the permission or the request is an answer.
"""

import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import trio

from s3mount.core.backoff import Patience, next_step
from s3mount.core.outage import Outage, OutageStatistics
from s3mount.core.send_rate import RateStatistics, SendRate
from s3mount.errors import (
    StoreError,
    StoreFailure,
    StoreThrottled,
    StoreTimeout,
    StoreUnreachable,
    UntrustedCertificate,
)

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True)
class RetryStatistics:
    """Attempts after the first, the rate that S3 takes, and its absence."""

    repeated: int
    rate: RateStatistics
    outage: OutageStatistics


def may_pass(error: StoreError) -> bool:
    """Whether the same request may be answered a moment later."""
    is_trouble = isinstance(error, StoreThrottled | StoreFailure | StoreUnreachable | StoreTimeout)
    return is_trouble and not isinstance(error, UntrustedCertificate)


class Retries:
    """What the requests of one mount know of each other's troubles.

    Args:
        chance: random numbers from 0 to 1.
    """

    def __init__(self, patience: Patience, chance: Callable[[], float] = random.random) -> None:
        self._patience = patience
        self._chance = chance
        self._rate = SendRate()
        self._outage = Outage()
        #: Of new requests, and of those that failed before.
        self._lines = trio.StrictFIFOLock(), trio.StrictFIFOLock()
        self._over = trio.Event()
        self._answered_at = 0.0
        self._repeated = 0

    async def ask(
        self,
        operation: str,
        key: str,
        asks: tuple[Callable[..., Awaitable[T]], Callable[..., Awaitable[T]]],
        *args: object,
        extra_s: float = 0.0,
    ) -> T:
        """The answer to a request.

        Args:
            operation, key: for messages.
            asks: send the request once; the second one is for its last attempt.
            args: of either.
            extra_s: added to the request's deadline.

        Raises:
            StoreError: as it came; if it may pass, after everything `Patience` allows.
        """
        began_at = trio.current_time()
        failure: StoreError | None = None
        if not (self._rate.is_limited or self._outage.is_closed):
            try:
                answer = await asks[0](*args)
            except StoreError as error:
                failure = error
            else:
                self._answered()
                return answer
            self._failed(failure, began_at)
        patience = replace(self._patience, deadline_s=self._patience.deadline_s + extra_s)
        scope = trio.CancelScope(deadline=began_at + patience.total_s)
        with scope:
            return await self._ask_again(patience, began_at, failure, asks, *args)
        message = f"no answer within {patience.total_s:g} s (--request-deadline, --on-outage)"
        raise StoreTimeout(message, key=key, operation=operation) from failure

    async def _ask_again(
        self,
        patience: Patience,
        began_at: float,
        failure: StoreError | None,
        asks: tuple[Callable[..., Awaitable[T]], Callable[..., Awaitable[T]]],
        *args: object,
    ) -> T:
        attempts = 0 if failure is None else 1
        failed_at = trio.current_time()
        until = failed_at + (patience.window_s or patience.total_s)
        while True:
            is_last = False
            if failure is not None:
                now = trio.current_time()
                step = next_step(patience, began_at, failed_at, attempts, now, self._chance())
                if step is None:
                    if attempts > 1:
                        failure.message = (
                            failure.message.rstrip(".") + f"; asked {attempts} times in {now - began_at:.0f} s"
                        )
                    raise failure
                is_last = step.is_last
                with trio.move_on_at(step.at):
                    await self._over.wait()
            is_last = not await self._took_turn(self._lines[attempts > 0], until) or is_last
            self._repeated += attempts > 0
            attempts += 1
            sent_at = trio.current_time()
            try:
                answer = await asks[is_last](*args)
            except StoreError as error:
                failure = error
            else:
                self._answered()
                return answer
            self._failed(failure, sent_at)

    async def _took_turn(self, line: trio.StrictFIFOLock, until: float) -> bool:
        """Wait in line, for a probe's time, and for what S3 takes; returns whether that came before `until`."""
        with trio.move_on_at(until) as scope:
            async with line:
                if self._outage.is_closed:
                    with trio.move_on_at(self._outage.probe_at):
                        await self._over.wait()
                if self._outage.is_closed:
                    self._outage.probe(trio.current_time(), self._chance())
                await trio.sleep_until(self._rate.turn_at(trio.current_time()))
                self._rate.sent(trio.current_time())
        return not scope.cancelled_caught

    def _answered(self) -> None:
        now = self._answered_at = trio.current_time()
        self._rate.answered(now)
        if self._outage.since is not None:
            was_closed = self._outage.is_closed
            lasted_s = self._outage.answered(now)
            if lasted_s is not None:
                log.info("S3 answers again, after %.0f s", lasted_s)
            if was_closed:
                self._over.set()
                self._over = trio.Event()

    def _failed(self, failure: StoreError, sent_at: float) -> None:
        """Note a failure that may pass.

        Raises:
            StoreError: the failure, if it will not.
        """
        if not may_pass(failure):
            self._answered()
            raise failure
        now = trio.current_time()
        is_refusal = isinstance(failure, StoreThrottled)
        if is_refusal:
            self._rate.refused(now)
        if self._patience.window_s > 0:
            asked_at = max(sent_at, self._answered_at)
            self._outage.failed(asked_at, now, self._chance(), is_refusal=is_refusal)
            lasted_s = self._outage.notice(now)
            if lasted_s is not None:
                log.warning(
                    "S3 has not answered for %.0f s: %s; reads wait up to %g s (--on-outage)",
                    lasted_s, failure, self._patience.window_s,
                )  # fmt: skip

    def statistics(self) -> RetryStatistics:
        """A snapshot of the counters."""
        return RetryStatistics(self._repeated, self._rate.statistics(), self._outage.statistics())

    def check_invariants(self) -> None:
        """Raises ValueError when the parts are inconsistent."""
        self._rate.check_invariants()
        self._outage.check_invariants()
