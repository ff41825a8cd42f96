"""When reads that jump about in an object pay for all of it.

Five ways, all but the last only while the object fits in what may be held ahead, or half of it where it is hot:

    the object           is fetched whole once
    -------------------  ------------------------------------------------------------------------
    any                  1/`_DENSE` of its bytes was asked for by reads that jump
    any                  several readers at once went through 1/`_DENSE_BESIDE` of it in the last
                         32 runs (tensors that many processes slice)
    at most `HOT_BYTES`  the jumps are worth 1/`_PARALLEL` of it: n x L x b x 16 >= size;
                         those that wait for the same round trip count less
    whose like paid      at the first read (`core.siblings`)
    that the user names  at the first read, and though not all of it fits

and otherwise never for fewer than `_LEAST_JUMPS` jumps.  Jumps are forgotten at one each `_FORGET_S`: a
global shuffle over many shards comes back to each of them too rarely to gain anything.

Why: a jump costs its reader L, or L x b bytes not fetched meanwhile.  Fetching all is done on
many connections at once, so it costs the time of 1/16 of the bytes on one: this is the rent at
which buying is never worse than twice the best choice, in time.  It is not so in bytes.  So the
rule holds for objects no larger than one read-ahead window, which a mistaken stream costs too;
larger ones wait for density: at 4 KiB a read, 1/32 of the bytes means that every 128 KiB cell was
touched once, and all of it costs no more than the cells did.

Where not all of it fits, parts are fetched as readers use what they have (`WholeObject`).

Each promotion doubles the price of the next: content that was dropped before it was read, or an
object that is read in bursts, must not be fetched over and over.
"""

from s3mount.core.distance import Distance
from s3mount.core.ranges import ByteRange, Coverage, split
from s3mount.core.siblings import Siblings
from s3mount.units import MIB

#: One read-ahead window: AHEAD_PARTS of 8 MiB, and the usual size of a training shard (MDS, litdata).
HOT_BYTES = 64 * MIB
_PARALLEL = 16
_DENSE = 32
_DENSE_BESIDE = 16
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
#: All of a shard is worth beginning when half of it fits: room comes as readers go through it.
_ROOM_SHARE = 2
#: Bytes are cheaper than requests up to 1/16 of a part: two cells of random reads.
_HOLE_SHARE = 16
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
        return self._asked > 0 and not self._siblings.is_said

    def pays(self, distance: Distance, ahead_limit: int, beside: int = 0) -> bool:
        """Whether all of the object is to be fetched now.

        Args:
            beside: bytes that several readers at once went through lately.
        """
        if self._siblings.is_said and self._price == 1:
            return True
        if self._size > (_ROOM_SHARE * ahead_limit if self._size <= HOT_BYTES else ahead_limit):
            return False
        if self._siblings.pays and self._price == 1:
            return True
        if self._jumps < _LEAST_JUMPS * self._price - _LOST_MEANWHILE:
            return False
        is_hot = self._size <= HOT_BYTES and self._jumps * distance.worth * _PARALLEL >= self._size * self._price
        return is_hot or max(self._asked * _DENSE, beside * _DENSE_BESIDE) >= self._size * self._price

    def promoted(self) -> None:
        """All of the object is fetched: the next time must be earned again, and dearer."""
        self._jumps = 0.0
        self._asked = 1
        self._price *= 2


class WholeObject:
    """An object that is fetched whole, each byte once.

    Args:
        size: bytes.
        part_size: the largest GET, bytes.
        siblings: told whether it was right; None where nothing is to be learned.
        fetched: what was fetched of it already; it is not fetched again, but for pieces that would
            cut one GET in two for the sake of 1/`_HOLE_SHARE` of a part.

    Attributes:
        used: bytes that readers got of it.
    """

    def __init__(self, size: int, part_size: int, siblings: Siblings | None, fetched: Coverage) -> None:
        self._size = size
        self._part_size = part_size
        self._siblings = siblings
        self._lost = 0
        self._claimed = 0
        self.used = 0
        self._unclaimed: list[ByteRange] = []  # each within a part
        for part in split(ByteRange(0, size), part_size):
            self._unclaimed += _closed(fetched.missing(part), part_size // _HOLE_SHARE)

    @property
    def keeps(self) -> bool:
        """Whether its content is worth keeping for a while after the last handle is gone."""
        return self._siblings is not None and self.used < self._size

    def is_over(self, wanted: ByteRange, *, is_held: bool) -> bool:
        """Whether a read shows that what was fetched is gone: several did, or a new pass begins."""
        if is_held or self._claimable(wanted):
            return False
        return wanted.start == 0 or self._lost >= _MOST_LOST

    def claim(self, wanted: ByteRange, limit: int, *, is_held: bool) -> ByteRange | None:
        """What to fetch for a read, in whole parts where it can be.

        Args:
            limit: bytes that may be claimed and not used.

        Returns:
            A range that holds the read, or None when it was claimed before or there is no room.
        """
        spans = self._claimable(wanted)
        if not spans:
            self._lost += not is_held
            return None
        if sum(span.length for span in spans) > self._room(limit):
            return None
        self._take(spans)
        start = min(span.start for span in spans)
        stop = max(span.stop for span in spans)
        return ByteRange(min(start, wanted.start), max(stop, wanted.stop))

    def claim_rest(self, after: int, limit: int) -> tuple[ByteRange, ...]:
        """All else, from the part of an offset to the end and then from the start, within the limit."""
        first = after // self._part_size * self._part_size
        room = self._room(limit)
        chosen = []
        for span in sorted(self._unclaimed, key=lambda span: (span.start < first, span.start)):
            room -= span.length
            if room < 0:
                break
            chosen.append(span)
        self._take(chosen)
        return tuple(chosen)

    def _room(self, limit: int) -> int:
        return max(limit, self._part_size) - max(0, self._claimed - self.used)

    def _take(self, spans: list[ByteRange]) -> None:
        self._unclaimed = [span for span in self._unclaimed if span not in spans]
        self._claimed += sum(span.length for span in spans)

    def refused(self, span: ByteRange) -> None:
        """The budget had no room for what was claimed; it is asked for again."""
        self._unclaimed.append(span)
        self._claimed -= span.length

    def _claimable(self, wanted: ByteRange) -> list[ByteRange]:
        return [span for span in self._unclaimed if span.overlaps(wanted)]

    def hit(self, n_bytes: int) -> bool:
        """Readers got bytes that were held; False, and nothing noted, while there is more to fetch."""
        if self._unclaimed:
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


def _closed(spans: list[ByteRange], hole: int) -> list[ByteRange]:
    """Spans in order, those with at most a hole between them made one."""
    closed: list[ByteRange] = []
    for span in spans:
        if closed and span.start - closed[-1].stop <= hole:
            closed[-1] = ByteRange(closed[-1].start, span.stop)
        else:
            closed.append(span)
    return closed
