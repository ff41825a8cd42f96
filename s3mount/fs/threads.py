"""Where calls of the system may block; `cache.threads.CallThreads` is one such place."""

from collections.abc import Callable
from typing import Protocol, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Threads(Protocol):
    """Calls that may block, one or more at a time."""

    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """What the function returns or raises."""
        ...
