"""When reads that jump about in an object pay for all of it.

Two ways, both only while the object fits in what may be held ahead:

    the object           is fetched whole once
    -------------------  ------------------------------------------------------------------------
    any                  1/`_DENSE` of its bytes was asked for by reads that jump
    at most `HOT_BYTES`  the jumps are worth 1/`_PARALLEL` of it: n x L x b x 16 >= size;
                         those that wait for the same round trip count less
    whose like paid      at the first read (`core.siblings`)

and otherwise never for fewer than `_LEAST_JUMPS` jumps.  Jumps are forgotten at one each `_FORGET_S`: a
global shuffle over many shards comes back to each of them too rarely to gain anything.

Why: a jump costs its reader L, or L x b bytes not fetched meanwhile.  Fetching all is done on
many connections at once, so it costs the time of 1/16 of the bytes on one: this is the rent at
which buying is never worse than twice the best choice, in time.  It is not so in bytes.  So the
rule holds for objects no larger than one read-ahead window, which a mistaken stream costs too;
larger ones wait for density: at 4 KiB a read, 1/32 of the bytes means that every 128 KiB cell was
touched once, and all of it costs no more than the cells did.

Each promotion doubles the price of the next: content that was dropped before it was read, or an
object that is read in bursts, must not be fetched over and over.
"""

from s3mount.core.distance import Distance
from s3mount.core.ranges import ByteRange, Coverage
from s3mount.core.siblings import Siblings
from s3mount.units import MIB

#: One read-ahead window: AHEAD_PARTS of 8 MiB, and the usual size of a training shard (MDS, litdata).
HOT_BYTES = 64 * MIB
_PARALLEL = 16
_DENSE = 32
_LEAST_JUMPS = 3
#: What the first of them lost until the last came, a round trip each later.
_LOST_MEANWHILE = 1 / 8
#: A jump a second is the least rate that is worth keeping an object for.
_FORGET_S = 1.0
#: A jump beside another one waits for the same round trip: one more worker, or a reader that knows
#: all it wants (column chunks of Parquet).
_BESIDE = 1 / 4
#: Reads that found their part gone again: one may be a slow reader, more is a budget too small.
_MOST_LOST = 3
#: The share that must have been read before a promotion counts as right.
_PROVEN_SHARE = 4


class Density:
    """Counts what jumps ask of one object, and says when that pays for all of it."""

    def __init__(self, size: int, siblings: Siblings) -> None:
        self._size = size
        self._siblings = siblings
        self._jumps = 0.0
        self._counted_at = -1.0
        self._asked = 0
        self._price = 1

    def note(self, n_bytes: int, now: float, latency_s: float, *, is_jump: bool) -> None:
        """A read of a pattern that is not sequential asked for bytes that were not held."""
        self._asked += n_bytes
        if not is_jump:
            return
        passed_s = now - self._counted_at
        if passed_s < latency_s / 2:
            self._jumps += _BESIDE
            return
        self._jumps = max(0.0, self._jumps - passed_s / _FORGET_S) + 1
        self._counted_at = now

    def forgive(self, n_bytes: int) -> None:
        """A jump turned out to be read-ahead that arrived early."""
        self._jumps = max(0.0, self._jumps - 1)
        self._asked = max(0, self._asked - n_bytes)

    @property
    def has_jumps(self) -> bool:
        """Whether the object's readers were seen to jump, ever."""
        return self._asked > 0

    def pays(self, distance: Distance, ahead_limit: int) -> bool:
        """Whether all of the object is to be fetched now."""
        if self._size > ahead_limit:
            return False
        if self._siblings.pays and self._price == 1:
            return True
        if self._jumps < _LEAST_JUMPS * self._price - _LOST_MEANWHILE:
            return False
        is_hot = self._size <= HOT_BYTES and self._jumps * distance.worth * _PARALLEL >= self._size * self._price
        return is_hot or self._asked * _DENSE >= self._size * self._price

    def promoted(self) -> None:
        """All of the object is fetched: the next time must be earned again, and dearer."""
        self._jumps = 0.0
        self._asked = 1
        self._price *= 2


class WholeObject:
    """An object that is fetched whole, part by part, each part once.

    Args:
        size: bytes.
        part_size: bytes.
        siblings: told whether it was right; None where nothing is to be learned.
        fetched: what was fetched of it already; parts of which that is more than
            1/`_DENSE` are completed, not fetched again.

    Attributes:
        used: bytes that readers got of it.
        unclaimed: numbers of the parts that were not asked for yet.
    """

    def __init__(self, size: int, part_size: int, siblings: Siblings | None, fetched: Coverage) -> None:
        self._size = size
        self._part_size = part_size
        self._siblings = siblings
        self._lost = 0
        self.used = 0
        self.unclaimed = set(range(-(-size // part_size)))
        self._pieces: list[ByteRange] = []
        for number in list(self.unclaimed):
            missing = fetched.missing(self._part(number))
            if sum(piece.length for piece in missing) < self._part(number).length * (_DENSE - 1) // _DENSE:
                self.unclaimed.discard(number)
                self._pieces += missing

    @property
    def keeps(self) -> bool:
        """Whether its content is worth keeping for a while after the last handle is gone."""
        return self._siblings is not None and self.used < self._size

    def is_over(self, wanted: ByteRange, *, is_held: bool) -> bool:
        """Whether a read shows that what was fetched is gone: several did, or a new pass begins."""
        if is_held or not self.unclaimed.isdisjoint(self._numbers(wanted)):
            return False
        return wanted.start == 0 or self._lost >= _MOST_LOST

    def claim(self, wanted: ByteRange, *, is_held: bool) -> ByteRange | None:
        """The whole parts to fetch for a read; None when they were fetched before."""
        numbers = self._numbers(wanted)
        if self.unclaimed.isdisjoint(numbers):
            self._lost += not is_held
            return None
        self.unclaimed.difference_update(numbers)
        return ByteRange(numbers[0] * self._part_size, min((numbers[-1] + 1) * self._part_size, self._size))

    def claim_rest(self, after: int, ahead_limit: int) -> tuple[ByteRange, ...]:
        """The other parts, from an offset to the end and then from the start, within the limit."""
        pieces, self._pieces = self._pieces, []
        ahead_limit -= sum(piece.length for piece in pieces)
        first = after // self._part_size
        count = -(-self._size // self._part_size)
        order = sorted(self.unclaimed, key=lambda number: (number - first) % count)
        chosen = order[: max(0, ahead_limit) // self._part_size]
        self.unclaimed.difference_update(chosen)
        return (*pieces, *map(self._part, chosen))

    def refused(self, span: ByteRange) -> None:
        """The budget had no room for a part that was claimed; it is asked for again."""
        self.unclaimed.add(span.start // self._part_size)

    def _numbers(self, wanted: ByteRange) -> range:
        return range(wanted.start // self._part_size, (wanted.stop - 1) // self._part_size + 1)

    def _part(self, number: int) -> ByteRange:
        return ByteRange(number * self._part_size, min((number + 1) * self._part_size, self._size))

    def hit(self, n_bytes: int) -> bool:
        """Readers got bytes that were held; False, and nothing noted, while there is more to fetch."""
        if self.unclaimed:
            return False
        self.use(n_bytes)
        return True

    def use(self, n_bytes: int) -> None:
        """Readers got bytes of it."""
        self.used += n_bytes
        if self._siblings is not None and self.used * _PROVEN_SHARE >= self._size:
            self._siblings.paid()

    def end(self) -> None:
        """Its content is gone."""
        if self._siblings is not None and self.used * _PROVEN_SHARE < self._size:
            self._siblings.failed()
