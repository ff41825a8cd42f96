"""Which blocks may go when the disk is full and another one comes.

For a data set of which a fraction f fits, read in a new random order each epoch, LRU hits
f + (1-f) ln(1-f) of the reads (f = 0.5: 15 %), and keeping any f of it while the epochs last hits f,
which no policy can beat.  For everything else LRU is right.  So `auto` has to tell blocks that
come again because the epoch does from blocks that are new.

What the policy knows: the blocks that came before, in two generations of Bloom filters, and of
recent accesses how many were hits: of all, and of those to blocks that were hit or came before.

    the block that comes                                  may replace
    ----------------------------------------------------  ------------------------------------------
    came before                                           what was not used since the older
                                                          generation began
    came before, and of 256 such accesses hardly any hit  the least recently used: nobody reads what
                                                          is here
    is new                                                the least recently used
    is new in the first generation, while others hit      nothing: it may have come before a restart

Hardly any is fewer than 1 in 32.

Under `lru` a block always replaces the least recently used, under `pin` it replaces nothing; both
for blocks of some prefixes only, if the user says so.

A generation ends when blocks have come twice as often as there are different ones in it.  Two whole
epochs of a data set cannot fit into less, so what was not used for a generation is in no epoch
that goes on, and a filter never forgets a block of an epoch that goes on.

A new data set therefore replaces the old one after as many accesses as blocks fit the disk, and at
most 1,024 more if the old one was hit until then and no generation had ended.

One mistake is built in: a Bloom filter takes a new block for one that came before, at most once in
a hundred, which costs one block not kept.
"""

import math
from enum import Enum

#: Accesses that are remembered, half to all of them: enough to tell 1/32, few enough to follow a change.
_RECENT = 512
#: Below that share of hits, LRU loses nothing worth keeping.
_HARDLY_ANY = 32
_BITS = 26
#: 10 bits a block and four probes: 1.2 % are taken for known when it is full.
_MAX_MEMBERS = (1 << _BITS) // 10
_PROBES = 4


class CachePolicy(Enum):
    """What the user can ask for, for all content or for that of a prefix: see above; `off` is not kept at all."""

    AUTO = "auto"
    LRU = "lru"
    PIN = "pin"
    OFF = "off"


class BloomFilter:
    """A set of names that can only grow; 8 MiB, of which only touched pages are resident."""

    def __init__(self) -> None:
        self._bits = bytearray(1 << (_BITS - 3))
        self._count = 0

    def __len__(self) -> int:
        """Number of names that were new when they were added."""
        return self._count

    def __contains__(self, name: bytes) -> bool:
        """Whether the name was added; wrongly true for one name in a hundred."""
        return all(self._bits[at >> 3] >> (at & 7) & 1 for at in self._positions(name))

    def add(self, name: bytes) -> None:
        """Put it in."""
        self._count += name not in self
        for at in self._positions(name):
            self._bits[at >> 3] |= 1 << (at & 7)

    @staticmethod
    def _positions(name: bytes) -> list[int]:
        """Names are hashes already; their bytes serve as several."""
        mask = (1 << _BITS) - 1
        return [int.from_bytes(name[at : at + 4], "little") & mask for at in range(4, 4 + 4 * _PROBES, 4)]


class RecentHits:
    """How many of the last accesses were hits.

    Attributes:
        accesses: that are remembered.
    """

    def __init__(self) -> None:
        self.accesses = 0
        self._hits = 0

    def note(self, *, is_hit: bool) -> None:
        """One access more."""
        self.accesses += 1
        self._hits += is_hit
        if self.accesses > _RECENT:
            self.accesses //= 2
            self._hits //= 2

    @property
    def are_most(self) -> bool:
        """Whether three of four were hits; also while there was none."""
        return self._hits * 4 >= self.accesses * 3

    @property
    def is_hardly_any(self) -> bool:
        """Whether so few were hits that what is kept is of no use."""
        return self._hits * _HARDLY_ANY < self.accesses


class EvictionPolicy:
    """Says how far back victims must lie."""

    def __init__(self) -> None:
        self._current, self._older = BloomFilter(), BloomFilter()
        self._current_since = self._older_since = -math.inf
        self._is_first = True
        self._came = 0
        self._all = RecentHits()
        self._again = RecentHits()

    def note_hit(self) -> None:
        """A block was read from the disk, for the first time in a while."""
        self._all.note(is_hit=True)
        self._again.note(is_hit=True)

    def horizon(self, name: bytes, policy: CachePolicy, now: float) -> float:
        """A block came from S3 to be kept under a policy.

        Returns:
            It may replace blocks last used before this time.
        """
        if policy is CachePolicy.LRU:
            return math.inf
        if policy is CachePolicy.PIN:
            return -math.inf
        came_before = name in self._current or name in self._older
        self._remember(name, now)
        self._all.note(is_hit=False)
        if not came_before:
            return -math.inf if self._is_first and not self._all.is_hardly_any else math.inf
        self._again.note(is_hit=False)
        is_useless = self._again.accesses >= _RECENT // 2 and self._again.is_hardly_any
        return math.inf if is_useless else self._older_since

    def _remember(self, name: bytes, now: float) -> None:
        self._current.add(name)
        self._came += 1
        # Some more than twice: two epochs of a very small data set are over before anything is known.
        if self._came > 2 * len(self._current) + _RECENT or len(self._current) >= _MAX_MEMBERS:
            self._older, self._current = self._current, BloomFilter()
            self._older_since, self._current_since = self._current_since, now
            self._came = 0
            self._is_first = False

    def check_invariants(self) -> None:
        """Raises ValueError when the generations are out of order."""
        if self._older_since > self._current_since or len(self._current) > self._came:
            raise ValueError("generations out of order")
