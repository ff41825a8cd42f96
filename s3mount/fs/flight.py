"""One question on its way to S3, and everybody who waits for its answer.

INVARIANT: `landed` is set exactly when the answer or the failure is there, or the question was
cancelled; only then `result` may be asked.
"""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import outcome
import trio

T = TypeVar("T")


class Flight(Generic[T]):
    """Carries one answer, or one failure, to any number of tasks.

    Attributes:
        failure: what the question raised, once it has landed.
    """

    __slots__ = ("_answer", "failure", "is_cancelled", "landed")

    def __init__(self) -> None:
        self.landed = trio.Event()
        self.is_cancelled = False
        self._answer: T | None = None
        self.failure: BaseException | None = None

    async def carry(self, ask: Callable[..., Awaitable[T]], *args: object) -> None:
        """Ask, and keep whatever comes; nothing is raised here but trio's cancellation.

        A failure of any kind is kept for the tasks that wait, in whose handlers it is mapped and
        logged.  The caller sets `landed` when its own books are in order.
        """
        came = await outcome.acapture(ask, *args)
        if isinstance(came, outcome.Value):
            self._answer = came.value
        elif isinstance(came.error, trio.Cancelled):
            self.is_cancelled = True
            raise came.error
        else:
            self.failure = came.error

    @property
    def is_failed(self) -> bool:
        """Whether there is no answer and never will be."""
        return self.is_cancelled or self.failure is not None

    def result(self) -> T:
        """The answer, for each task that waited.

        Raises:
            Exception: whatever the question raised.
            ValueError: it has not landed, or was cancelled: the caller's bug.
        """
        if self.failure is not None:
            raise self.failure
        if self._answer is None:
            raise ValueError("the flight has not landed")
        return self._answer
