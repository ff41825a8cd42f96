"""How long the kernel's calls take, how often they wait, and which are waiting now.

Most calls are answered without waiting, one after the other; so there is one call at hand, from `begin` to `end`, and
nothing is allocated for it.  A call that waits leaves with `wait` and is at hand again after `resume`; between those
other calls are.  So every call is timed, by two readings of the clock and a count (core.latency).

INVARIANT: no operation waited more often than it was called, but for calls that are not answered yet.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from s3mount.core.latency import Latencies, LatencyHistogram


class WaitingCall(NamedTuple):
    """A call that waits.

    Attributes:
        subject: what it is about, an inode or a handle.
        pid: the thread that it comes from; 0 where the kernel does not say.
        began_ns: on the clock.
    """

    operation: str
    subject: int
    pid: int
    began_ns: int
    number: int


@dataclass(frozen=True)
class OperationStatistics:
    """Of one operation: how long its calls took, how many of them waited for something, and errors by errno name."""

    latencies: Latencies
    waited: int
    errors: dict[str, int]


class Operation:
    """What is counted of one."""

    __slots__ = ("errors", "histogram", "waited")

    def __init__(self) -> None:
        self.histogram = LatencyHistogram()
        self.waited = 0
        self.errors: dict[str, int] = {}


class CallClock:
    """Of one mount.

    Args:
        clock: nanoseconds.
    """

    __slots__ = ("_began_ns", "_clock", "_name", "_number", "_operations", "_pid", "_subject", "_waiting")

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock = clock
        self._operations: dict[str, Operation] = {}
        self._waiting: dict[int, WaitingCall] = {}
        self._name = ""
        self._subject = 0
        self._pid = 0
        self._began_ns = 0
        self._number = 0

    def operation(self, name: str) -> Operation:
        """What is counted of one operation."""
        return self._operations.setdefault(name, Operation())

    def begin(self, name: str, subject: int, pid: int) -> None:
        """A call is at hand."""
        self._name = name
        self._subject = subject
        self._pid = pid
        self._began_ns = self._clock()

    def wait(self) -> WaitingCall:
        """The call at hand is going to wait; give what this returns to `resume`."""
        self._number += 1
        call = WaitingCall(self._name, self._subject, self._pid, self._began_ns, self._number)
        self._waiting[call.number] = call
        return call

    def resume(self, call: WaitingCall) -> None:
        """It need not wait any more, and is at hand."""
        del self._waiting[call.number]
        self._name, self._subject, self._pid, self._began_ns, _ = call
        self.operation(call.operation).waited += 1

    def end(self, operation: Operation) -> None:
        """The call at hand is answered."""
        operation.histogram.note(self._clock() - self._began_ns)

    def failed(self, name: str, errno_name: str) -> None:
        """A call was answered with an error."""
        errors = self.operation(name).errors
        errors[errno_name] = errors.get(errno_name, 0) + 1

    def waiting(self) -> list[tuple[WaitingCall, float]]:
        """The calls that wait now and for how many seconds, the oldest first."""
        now = self._clock()
        return sorted(((call, (now - call.began_ns) / 1e9) for call in self._waiting.values()), key=lambda it: -it[1])

    def statistics(self) -> dict[str, OperationStatistics]:
        """Of each operation that was called."""
        return {
            name: OperationStatistics(each.histogram.statistics(), each.waited, dict(each.errors))
            for name, each in self._operations.items()
        }

    def check_invariants(self) -> None:
        """Raises ValueError when an operation waited more often than it was called."""
        for name, each in self._operations.items():
            each.histogram.check_invariants()
            if each.waited > each.histogram.statistics().count + 1:  # one may be at hand
                raise ValueError(f"{name} waited more often than it was called")
