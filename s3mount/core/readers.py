"""How long programs were reading, and how much of that they waited: what a share of waiting is a share of.

A reader is what opened something (a thread, or a process without threads).  Its time runs while it has anything open or
a call of it waits, and through pauses of at most `PAUSE_S` in between: a data loader that opens, reads, closes and
decodes is one reader all the time.  It waits while at least one of its calls does: the kernel reads ahead of a program
by several calls at once, and a program that has not asked for those yet does not wait, which nobody here can see.  So
what is said of waiting is the most that it can be.

Readers are counted in groups, the process groups of the kernel.  A reader that shares a descriptor with others counts
once, and so do they.

INVARIANT: nobody closed more than he opened, or waited longer than he read.
"""

from dataclasses import dataclass
from typing import NamedTuple

#: A training loop computes for less between two samples; a longer pause is a job that does something else.
PAUSE_S = 10.0
#: Readers and groups that are remembered when nothing is open any more.
_MAX_READERS = 4096
_MAX_GROUPS = 256


class ReaderSeconds(NamedTuple):
    """Attributes: of all readers of a group, in all and of that waiting."""

    total: float
    waiting: float


@dataclass(slots=True)
class _Reader:
    group: int
    since: float
    n_open: int = 0
    n_waiting: int = 0
    waiting_since: float = 0.0


class ReaderTime:
    """Adds up the time of readers; times are of one clock, in seconds."""

    def __init__(self) -> None:
        self._readers: dict[int, _Reader] = {}
        self._seconds: dict[int, list[float]] = {}  # in all and waiting: each open and close adds to it

    def opened(self, reader: int, group: int, now: float) -> None:
        """A reader opened something."""
        known = self._readers.get(reader)
        if known is None:
            if len(self._readers) >= _MAX_READERS:
                self._forget_idle()
            known = self._readers[reader] = _Reader(group, now)
        elif known.n_open == 0:
            if now - known.since <= PAUSE_S:
                self._of(known.group)[0] += now - known.since
            known.since = now
            known.group = group
        known.n_open += 1

    def closed(self, reader: int, now: float) -> None:
        """A reader closed one of them."""
        known = self._readers.get(reader)
        if known is None or known.n_open == 0:
            return
        known.n_open -= 1
        if known.n_open == 0:
            self._of(known.group)[0] += now - known.since
            known.since = now

    def waits(self, reader: int, group: int, now: float) -> None:
        """A call of a reader begins to wait, until `goes_on`."""
        self.opened(reader, group, now)
        known = self._readers[reader]
        if known.n_waiting == 0:
            known.waiting_since = now
        known.n_waiting += 1

    def goes_on(self, reader: int, now: float) -> None:
        """One that waited does not wait any more."""
        known = self._readers[reader]
        known.n_waiting -= 1
        if known.n_waiting == 0:
            self._of(known.group)[1] += now - known.waiting_since
        self.closed(reader, now)

    def _of(self, group: int) -> list[float]:
        known = self._seconds.get(group)
        if known is None:
            if len(self._seconds) >= _MAX_GROUPS:
                total, waiting = self._seconds.pop(min(self._seconds, key=self._seconds.__getitem__))
                rest = self._seconds.setdefault(0, [0.0, 0.0])
                rest[0] += total
                rest[1] += waiting
            known = self._seconds.setdefault(group, [0.0, 0.0])
        return known

    def _forget_idle(self) -> None:
        for reader in [each for each, known in self._readers.items() if not known.n_open]:
            del self._readers[reader]

    def seconds(self, now: float) -> dict[int, ReaderSeconds]:
        """Of each group until now, those that have something open included; group 0 is of all that were forgotten."""
        found = {group: list(seconds) for group, seconds in self._seconds.items()}
        for known in self._readers.values():
            if known.n_open:
                seconds = found.setdefault(known.group, [0.0, 0.0])
                seconds[0] += now - known.since
                seconds[1] += now - known.waiting_since if known.n_waiting else 0.0
        return {group: ReaderSeconds(*seconds) for group, seconds in found.items()}

    def check_invariants(self) -> None:
        """Raises ValueError when somebody closed more than he opened, or waited without a call."""
        if any(not 0 <= known.n_waiting <= known.n_open for known in self._readers.values()):
            raise ValueError("a reader closed more than it opened, or waits without a call")
        if any(seconds < 0 for each in self._seconds.values() for seconds in each):
            raise ValueError("a group read or waited for a negative time")
