"""Why readers waited: intervals in, seconds by cause out.

A reader that waits for bytes that are on their way, its own or somebody else's, waits for what is
being done for them in that time:

    from                  to                    the reader waits for
    --------------------  --------------------  ------------------------------------------------
    the fetch began       the disk has answered the disk cache, where there is one: a hit ends here
    then                  the GET was sent      a connection: our own limit of GETs at once
    it was sent           its first byte        the first byte: S3, the network, and all retries
    the first byte        the last byte         the transfer
    the last byte         the reader goes on    the loop: the answer was here, its task was not run

Outside of GETs a reader waits for the budget, or for names: LIST and HEAD, of which nobody can
read ahead.  A GET that failed had no first byte.

INVARIANT: the causes of a wait add up to it, whatever marks are missing or out of order; what
landed before its reader came costs nothing.
"""

import math
from dataclasses import asdict, dataclass


@dataclass(slots=True)
class Arrival:
    """When one fetch got how far: seconds of one clock, infinite while it has not.

    Attributes:
        sent_at: its GET had a connection; until somebody limits it, when it was started.
        first_byte_at: also infinite where the client cannot see it.
        last_byte_at: its bytes were complete.
        disk_until: the disk cache was asked until then; minus infinity where it was not.
        is_from_disk: no GET was needed, so S3 said nothing of this version.
    """

    sent_at: float
    first_byte_at: float = math.inf
    last_byte_at: float = math.inf
    disk_until: float = -math.inf
    is_from_disk: bool = False


@dataclass(frozen=True)
class WaitSeconds:
    """Seconds that readers waited, by cause; each reader counts its own."""

    names: float = 0.0
    budget: float = 0.0
    disk: float = 0.0
    connection: float = 0.0
    first_byte: float = 0.0
    transfer: float = 0.0
    loop: float = 0.0

    @property
    def total(self) -> float:
        """All causes together."""
        return math.fsum(asdict(self).values())

    def __str__(self) -> str:
        """One line for people, the longest first: `12.3 s: 9.1 first byte, 3.2 transfer`."""
        shown = {name: f"{seconds:.1f}" for name, seconds in asdict(self).items()}
        longest = sorted(asdict(self).items(), key=lambda item: -item[1])
        causes = ", ".join(f"{shown[name]} {name.replace('_', ' ')}" for name, _ in longest if shown[name] != "0.0")
        return f"{self.total:.1f} s" + (f": {causes}" if causes else "")


class WaitLedger:
    """Adds up what readers waited for."""

    __slots__ = ("_budget", "_connection", "_disk", "_first_byte", "_loop", "_names", "_transfer")

    def __init__(self) -> None:
        self._names = self._budget = self._disk = 0.0
        self._connection = self._first_byte = self._transfer = self._loop = 0.0

    def add_names(self, seconds: float) -> None:
        """A reader waited for a look-up, a listing, or the check of a version."""
        self._names += seconds

    def add_budget(self, seconds: float) -> None:
        """A reader waited for room."""
        self._budget += seconds

    def add_disk(self, seconds: float) -> None:
        """A reader waited for the disk cache alone."""
        self._disk += seconds

    def add_get(self, since: float, until: float, arrival: Arrival) -> None:
        """A reader waited for a fetch, in this interval of the clock of its marks."""
        disk = min(max(arrival.disk_until, since), until)
        last = arrival.last_byte_at
        first = min(arrival.first_byte_at, last)
        sent = min(max(min(arrival.sent_at, first), disk), until)
        first = min(max(first, disk), until)
        last = min(max(last, disk), until)
        self._disk += disk - since
        self._connection += sent - disk
        self._first_byte += first - sent
        self._transfer += last - first
        self._loop += until - last

    def merge(self, other: "WaitLedger") -> None:
        """Add what another ledger has."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def seconds(self) -> WaitSeconds:
        """The sums so far."""
        return WaitSeconds(
            names=self._names,
            budget=self._budget,
            disk=self._disk,
            connection=self._connection,
            first_byte=self._first_byte,
            transfer=self._transfer,
            loop=self._loop,
        )

    def check_invariants(self) -> None:
        """Raises ValueError when somebody waited for less than nothing."""
        if min(asdict(self.seconds()).values()) < 0:
            raise ValueError("a reader waited for a negative time")
