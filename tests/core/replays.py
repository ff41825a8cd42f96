"""Access patterns, as the kernel passes them on, played against the planner.

`Replay` does what fs.blocks does with a plan, at once and with room for everything, and counts
requests, bytes and waste.  A demand that misses takes `tick_s` on the replay's clock: a round trip, or
less where others are in flight beside it.
"""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from s3mount.core.distance import Distance
from s3mount.core.plans import Plan, Situation
from s3mount.core.ranges import ByteRange, Coverage, split
from s3mount.core.readahead import Planner
from s3mount.core.siblings import Siblings
from s3mount.units import GIB, KIB, MIB

PART = 8 * MIB
NO_LIMIT = 64 * GIB
READAHEAD = 128 * KIB
#: Requests that the kernel has in flight for one reader.
IN_FLIGHT = 12
FAR = Distance(0.030, 90e6)


@dataclass
class Replay:
    """One object under one planner.

    Attributes:
        gets: requests.
        fetched: bytes fetched.
        waits: reads that had to wait for a round trip.
        is_late: whether reads find what they ask for on its way; set it as the replay goes.
    """

    size: int
    part: int = PART
    limit: int = NO_LIMIT
    distance: Distance = FAR
    siblings: Siblings = field(default_factory=Siblings)
    tick_s: float = FAR.latency_s
    is_late: bool = False

    def __post_init__(self) -> None:
        self.planner = Planner(self.size, self.part, self.siblings)
        self.held = Coverage()
        self.asked = Coverage()
        self.gets = self.fetched = self.waits = 0
        self.now = 100.0
        self.plan: Plan | None = None

    def open(self) -> None:
        self._fetch(self.planner.on_open())

    def play(self, reads: Iterable[ByteRange]) -> "Replay":
        for wanted in reads:
            self.read(wanted)
        return self

    def read(self, wanted: ByteRange) -> Plan | None:
        """One read; returns its plan, or None when it was a hit that needed none."""
        self.asked.add(wanted)
        missing = self.held.missing(wanted)
        self.plan = None
        if not missing and self.planner.on_hit(wanted):
            return None
        self.plan = self.planner.on_read(wanted, self.situation(is_held=not missing))
        self.planner.check_invariants()
        for span in (self.plan.fetch, *self.plan.ahead):
            self._fetch(span)
        if missing:
            self.waits += 1
            self.now += self.tick_s
        return self.plan

    def situation(self, *, is_held: bool) -> Situation:
        return Situation(self.limit, self.distance, self.now, is_held, self.is_late)

    def _fetch(self, wanted: ByteRange) -> None:
        for gap in self.held.missing(wanted):
            self.gets += sum(1 for _ in split(gap, self.part))
            self.fetched += gap.length
            self.held.add(gap)

    @property
    def waste(self) -> int:
        """Bytes fetched that nobody asked for."""
        return self.fetched - self.asked.length


def at(offset: int, length: int = READAHEAD) -> ByteRange:
    """A read."""
    return ByteRange(offset, offset + length)


def run(start: int, stop: int, length: int = READAHEAD) -> list[ByteRange]:
    """Reads one after the other."""
    return [ByteRange(offset, min(offset + length, stop)) for offset in range(start, stop, length)]


def disordered(reads: list[ByteRange], dice: random.Random, in_flight: int = IN_FLIGHT) -> Iterator[ByteRange]:
    """Reads in flight overtake each other: the first that has not arrived, or one of the next after it."""
    waiting = list(enumerate(reads))
    while waiting:
        in_flight_now = [at for at, (number, _) in enumerate(waiting[:in_flight]) if number < waiting[0][0] + in_flight]
        yield waiting.pop(dice.choice(in_flight_now))[1]


def random_reads(size: int, length: int, count: int, dice: random.Random, align: int = 4 * KIB) -> list[ByteRange]:
    return [at(dice.randrange((size - length) // align) * align, length) for _ in range(count)]


def strided(size: int, length: int, stride: int) -> list[ByteRange]:
    return [at(offset, length) for offset in range(stride, size - length, stride)]


def records(size: int, length: int, count: int, dice: random.Random) -> list[ByteRange]:
    """Records of some length in a random order, each read in sequence by kernel read-ahead."""
    starts = [number * length for number in range(size // length)]
    return [each for start in dice.sample(starts, count) for each in run(start, start + length)]


def samples(size: int, length: int, dice: random.Random) -> Iterator[ByteRange]:
    """A shard as MDS readers read it: 8 bytes of the table in the head, then the sample; in a random order."""
    head = 4 * KIB * (1 + size // length * 4 // (4 * KIB))
    starts = list(range(head, size, length))
    dice.shuffle(starts)
    for start in starts:
        entry = (start - head) // length * 4 // (4 * KIB) * 4 * KIB
        yield at(entry, 4 * KIB)
        yield ByteRange(start, min(start + length, size))


def slices(size: int, count: int, tensor: int, which: int, length: int = READAHEAD) -> Iterator[ByteRange]:
    """One of `count` readers copies its part of every tensor, through faults that read around."""
    for begin in range(0, size, tensor):
        step = min(tensor, size - begin) // count
        first = begin + which * step
        for offset in range(first, first + step, length):
            start = max(0, offset - length // 2) if offset == first else offset
            yield ByteRange(start, min(offset + length, size))


def in_turns(readers: list[Iterator[ByteRange]], dice: random.Random) -> Iterator[ByteRange]:
    """Readers in parallel, in any order."""
    alive = list(readers)
    while alive:
        reader = dice.choice(alive)
        wanted = next(reader, None)
        if wanted is None:
            alive.remove(reader)
        else:
            yield wanted
