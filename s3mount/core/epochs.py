"""Which blocks may go when the disk is full and another one comes.

For a data set of which a fraction f fits, read in a new random order each epoch, LRU hits
f + (1-f) ln(1-f) of the reads (f = 0.5: 15 %), and keeping any f of it while the epochs last hits f,
which no policy can beat.  For everything else LRU is right.  So `auto` has to tell blocks that
come again because the epoch does from blocks that are new.

What the policy knows: the blocks that came before, in two generations of Bloom filters, and of
the last block accesses how many were hits.

    the block that comes                              may replace
    ------------------------------------------------  ----------------------------------------------
    any, while fewer than 1/32 of accesses hit        the least recently used: what is here is of no use
    came before                                       what was not used since the older generation began
    is new                                            the least recently used
    is new, but the first generation is not over      as if it had come before: it may have, before a restart

A generation ends when blocks have come twice as often as there are different ones in it.  Two whole
epochs of a data set cannot fit into less, so what was not used for a generation is in no epoch
that goes on, and a filter never forgets a block of an epoch that goes on.

A new data set therefore replaces the old one after as many accesses as blocks fit the disk, and at
most 1,024 more when the old one was hit until then.

One mistake is built in: a Bloom filter takes a new block for one that came before, at most once in
a hundred, which costs one block not kept.
"""

import math
from enum import Enum

#: Accesses that are remembered, half to all of them: enough to tell 1/32, few enough to follow a change.
_RECENT = 512
_LEAST_HIT_SHARE = 32
_BITS = 26
#: 10 bits a block and four probes: 1.2 % are taken for known when it is full.
_MAX_MEMBERS = (1 << _BITS) // 10
_PROBES = 4


class CachePolicy(Enum):
    """What the user can ask for: see the table; `lru` and `pin` always or never replace the oldest."""

    AUTO = "auto"
    LRU = "lru"
    PIN = "pin"


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


class EvictionPolicy:
    """Says how far back victims must lie.

    Args:
        policy: what the user asked for.
    """

    def __init__(self, policy: CachePolicy) -> None:
        self._policy = policy
        self._current, self._older = BloomFilter(), BloomFilter()
        self._current_since = self._older_since = -math.inf
        self._is_first = True
        self._came = 0
        self._accesses = 0
        self._hits = 0

    def note_hit(self) -> None:
        """A block was read from the disk, for the first time in a while."""
        self._note_access()
        self._hits += 1

    def horizon(self, name: bytes, now: float) -> float:
        """A block came from S3 to be kept.

        Returns:
            It may replace blocks last used before this time.
        """
        if self._policy is CachePolicy.LRU:
            return math.inf
        if self._policy is CachePolicy.PIN:
            return -math.inf
        self._note_access()
        came_before = name in self._current or name in self._older
        self._remember(name, now)
        is_useless = self._hits * _LEAST_HIT_SHARE < self._accesses
        if is_useless or not (came_before or self._is_first):
            return math.inf
        return self._older_since

    def _note_access(self) -> None:
        self._accesses += 1
        if self._accesses > _RECENT:
            self._accesses //= 2
            self._hits //= 2

    def _remember(self, name: bytes, now: float) -> None:
        self._current.add(name)
        self._came += 1
        # A few more than twice: two epochs of a very small data set are over before anything is known.
        if self._came > 2 * len(self._current) + _RECENT or len(self._current) >= _MAX_MEMBERS:
            self._older, self._current = self._current, BloomFilter()
            self._older_since, self._current_since = self._current_since, now
            self._came = 0
            self._is_first = False

    def check_invariants(self) -> None:
        """Raises ValueError when a counter or a time cannot be."""
        if not 0 <= self._hits <= self._accesses <= _RECENT + 1:
            raise ValueError("more hits than accesses")
        if self._older_since > self._current_since or len(self._current) > self._came:
            raise ValueError("generations out of order")
