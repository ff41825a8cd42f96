"""How long programs were reading, whatever of that time they waited: what a share of waiting is a share of.

A reader is what opened something (a thread, or a process without threads).  Its time runs while it has anything open,
and through pauses of at most `PAUSE_S` from the last close to the next open: a data loader that opens, reads, closes
and decodes is one reader all the time.  Readers are counted in groups, the process groups of the kernel.

A reader that shares a descriptor with others counts once, and so do they.

INVARIANT: nobody closed more than he opened.
"""

from dataclasses import dataclass

#: A training loop computes for less between two samples; a longer pause is a job that does something else.
PAUSE_S = 10.0
#: Readers and groups that are remembered when nothing is open any more.
_MAX_READERS = 4096
_MAX_GROUPS = 256


@dataclass(slots=True)
class _Reader:
    group: int
    n_open: int
    since: float


class ReaderTime:
    """Adds up the time of readers; times are of one clock, in seconds."""

    def __init__(self) -> None:
        self._readers: dict[int, _Reader] = {}
        self._seconds: dict[int, float] = {}

    def opened(self, reader: int, group: int, now: float) -> None:
        """A reader opened something."""
        known = self._readers.get(reader)
        if known is None:
            if len(self._readers) >= _MAX_READERS:
                self._forget_idle()
            self._readers[reader] = _Reader(group, 1, now)
            return
        if known.n_open == 0:
            if now - known.since <= PAUSE_S:
                self._add(known.group, now - known.since)
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
            self._add(known.group, now - known.since)
            known.since = now

    def _add(self, group: int, seconds: float) -> None:
        if group not in self._seconds and len(self._seconds) >= _MAX_GROUPS:
            gone = min(self._seconds, key=self._seconds.__getitem__)
            self._seconds[0] = self._seconds.pop(gone) + self._seconds.get(0, 0.0)
        self._seconds[group] = self._seconds.get(group, 0.0) + seconds

    def _forget_idle(self) -> None:
        for reader in [each for each, known in self._readers.items() if not known.n_open]:
            del self._readers[reader]

    def seconds(self, now: float) -> dict[int, float]:
        """Of each group until now, those that have something open included; group 0 is of all that were forgotten."""
        found = dict(self._seconds)
        for known in self._readers.values():
            if known.n_open:
                found[known.group] = found.get(known.group, 0.0) + now - known.since
        return found

    def check_invariants(self) -> None:
        """Raises ValueError when somebody closed more than he opened, or time ran backwards."""
        if any(known.n_open < 0 for known in self._readers.values()):
            raise ValueError("a reader closed more than it opened")
        if any(seconds < 0 for seconds in self._seconds.values()):
            raise ValueError("a group read for a negative time")
