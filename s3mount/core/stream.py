"""One run of an object: which reads go on from it.

A read belongs to a stream when it starts at most the stream's slack beyond the frontier, or at most
`DISORDER` reads behind it.

    evidence              slack: how far beyond the frontier a read still belongs
    --------------------  ---------------------------------------------------------------------
    one read              `LARGEST_UNIT` (256 KiB): to fetch the gap costs less than to jump it
    more                  what the stream advanced, at most `DISORDER` of its longest read

So random reads of an object cannot be taken for streams by its being small, and kernel read-ahead
in any order is one stream: early on, because runs that come to touch are merged (also one that
grows downward), later because the slack spans all that the kernel keeps in flight.

INVARIANT: 0 <= start < frontier, and neither frontier nor reach is past the object's end.
"""

from dataclasses import dataclass

from s3mount.core.distance import LARGEST_UNIT
from s3mount.core.ranges import ByteRange
from s3mount.units import MIB

#: Reads that the kernel's read-ahead has in flight, in any order (measured: 9 to 12).
DISORDER = 12
#: A window that is not found too small: 8 parts of 8 MiB are 0.5 GB/s at 30 ms and 90 MB/s.
AHEAD_PARTS = 8
#: Reads elsewhere until a stream is given up: a few, or as many as a round trip's worth of them.
_LEAST_PATIENCE, _MOST_PATIENCE = 3, 8


@dataclass(slots=True, eq=False)
class Stream:
    """One run.

    Attributes:
        start: its lowest byte.
        frontier: the end of the furthest read.
        advanced: bytes by which reads moved the frontier, gaps not counted.
        advances: how many reads did.
        longest: the longest read, bytes.
        slack: how far beyond the frontier a read still belongs.
        low, high: a read that starts between them belongs.
        reach: the end of what was planned ahead; the frontier if nothing was.
        widest: parts that the window may have.
        widened_to: the end of the first window that was as wide; 0 before.
        rate: of one connection then, bytes a second.
        next_plan_at: a read that ends before has nothing new to plan.
        seen_at, seen_wave: the number of runs, and of waves of them, when it was last read.
    """

    start: int
    frontier: int
    advanced: int
    longest: int
    seen_at: int
    seen_wave: int
    advances: int = 1
    slack: int = LARGEST_UNIT
    low: int = 0
    high: int = 0
    reach: int = 0
    next_plan_at: int = 0
    widest: int = AHEAD_PARTS
    widened_to: int = 0
    rate: float = 0.0

    @property
    def patience(self) -> int:
        """Reads elsewhere after which it is left."""
        return min(_LEAST_PATIENCE + self.advanced // (2 * MIB), _MOST_PATIENCE)

    def settle(self) -> None:
        """Where reads belong, after one that changed the stream."""
        self.slack = min(self.advanced, DISORDER * self.longest) if self.advances > 1 else 0
        self.slack = max(LARGEST_UNIT, self.slack)
        self.low = max(self.start, self.frontier - DISORDER * self.longest)
        self.high = self.frontier + self.slack

    def advance(self, wanted: ByteRange) -> bool:
        """Take a read that belongs here; returns whether it moved the frontier."""
        if wanted.stop <= self.frontier:
            return False
        self.advanced += wanted.stop - max(wanted.start, self.frontier)
        self.advances += 1
        self.frontier = wanted.stop
        self.longest = max(self.longest, wanted.stop - wanted.start)
        self.settle()
        return True

    def absorb(self, other: "Stream") -> None:
        """Become one with a run that touches this one."""
        self.start = min(self.start, other.start)
        self.frontier = max(self.frontier, other.frontier)
        self.reach = max(self.reach, other.reach)
        self.longest = max(self.longest, other.longest)
        self.advances += other.advances
        self.advanced += other.advanced
        self.settle()

    def restart(self) -> None:
        """It has to earn everything again."""
        self.advances = 1
        self.advanced = min(self.advanced, self.longest)
        self.reach = self.frontier
        self.widest, self.widened_to, self.rate = AHEAD_PARTS, 0, 0.0
        self.settle()
