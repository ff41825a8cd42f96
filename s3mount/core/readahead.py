"""The planner: which bytes to fetch for a read, and which to fetch ahead of the next one.

State lives per object, not per descriptor: descriptors that forked processes share, a thousand
handles and processes that read the same file are one set of streams (`core.streams`).

    the read                                   demand fetch            ahead
    -----------------------------------------  ----------------------  --------------------------
    any, object of at most `SMALL_FILE`        the object              nothing (`core.small`)
    the first of all, at the very end          the last 256 KiB        the rest of the last MiB
    begins a stream at offset 0                `HEAD` (1 MiB)          nothing
    begins a stream elsewhere: a jump          a cell, 64 to 256 KiB   nothing: it may be random
    the same, or advances, within a usual run  a cell                  the rest of the run
    advances a stream from 0, step 2           `HEAD`                  2 parts
    advances a stream from 0, step n           to the end of the part  2^(n-1) parts, the window's
                                                                       bound at most
    advances another stream                    as much as it advanced  as much as it advanced, or
                                               twice, at most a part   4 times that while starts
                                                                       are few; same bound
    does not advance its stream                a cell                  what the stream had
    any, while the object is fetched whole     its parts, each once    all other parts, each once

A step is a read that advances, and 128 KiB: small reads earn a window by their bytes.  Starts are
few up to `TRUSTED_STARTS`: beyond that readers jump, and a window as large as what was read wastes
half at most.  The window's bound is `AHEAD_PARTS` and doubles, up to `MOST_AHEAD_PARTS`, whenever a
reader went through all of it and waits (`core.windows`).  A usual run is what three of four of the
streams that ended reached (`core.streams`), at most a part.

Fetched whole is an object of at most `MEDIUM_FILE` at the first sign of sequential reading: a
first read of 128 KiB at offset 0 (kernel read-ahead does that) or a second one that goes on from
there.  And any for which `core.density` says that its readers pay for it.  That is over when parts
that were fetched are asked for and gone, or a new pass begins at offset 0.

A demand fetch starts at most `HEAD` before the read: a stream that begins inside a part must not
download what it jumped over.  Windows are cut to `ahead_limit` and the object's end, and where that is
less than a part, parts are smaller, so that many readers do not drop each other's.  When a
stream is left, what is in flight for it is named in `Plan.left` and cancelled.  Nothing is planned
twice before a read finds it gone (`core.fetched`).
Formats need no knowledge of their own: open begins the first MiB, where HDF5 and safetensors have
their heads; Parquet and zip (.pt, .npz) are first read at the end.
Measured (tests/core/test_patterns.py, 1 GiB): a stride with gaps of at most 256 KiB is read over
like a sequential file (128 KiB of 256: 134 GETs, 2.0 bytes for each asked; 4 KiB of 64: 174, 16);
wider ones are cells (4 KiB of 1 MiB: 1,024 GETs, 32; 128 KiB of 4 MiB: 256, 1.03) until, where it
fits, all is fetched (128 KiB of 1 MiB: after 256).  Runs of one length, 0.25 to 8 MiB, in a random
order wait once and fetch at most 1.25 bytes for each asked, runs of mixed lengths 2.5 times and 1.6
bytes; 32 readers of slices of 512 MiB 1.0, in 185 GETs.  A jump that the disk cache answers starts nothing.
The module decides only; `fs.blocks` subtracts what it has and fetches the rest.
"""

from dataclasses import dataclass

from s3mount.core.density import Density, WholeObject
from s3mount.core.distance import LARGEST_UNIT, SMALLEST_UNIT, cell_of
from s3mount.core.fetched import FetchedRanges
from s3mount.core.plans import Plan, Situation
from s3mount.core.ranges import ByteRange, Coverage
from s3mount.core.siblings import Siblings
from s3mount.core.stream import Stream
from s3mount.core.streams import StreamTable
from s3mount.core.windows import HEAD, READAHEAD, TRUSTED_FACTOR, Window, part_within
from s3mount.units import MIB

#: One request: below this size the round trip costs more than the bytes (decision 5).
SMALL_FILE = MIB
#: All parts at once: two waves would be twice the distance, and all of it is 0.2 s of one connection.
MEDIUM_FILE = 16 * MIB
#: One reader that looks at the end or at a header first, and then reads on.
TRUSTED_STARTS = 2


def is_small(size: int, part_size: int) -> bool:
    """Whether one GET brings an object whole and `open` waits for it."""
    return size <= min(SMALL_FILE, part_size)


@dataclass(frozen=True)
class PlannerStatistics:
    """Bytes planned ahead of each stream that is told apart, jumps of all readers, and whether it is fetched whole."""

    ahead: list[int]
    starts: int
    is_whole: bool


class Planner:
    """Plans the reads of one object.

    Args:
        size: of the object, in bytes; not `is_small`.
        part_size: the largest single GET, in bytes.
        siblings: what objects with such a name taught.
    """

    def __init__(self, size: int, part_size: int, siblings: Siblings) -> None:
        self._size = size
        self._part_size = part_size
        self._siblings = siblings
        self._streams = StreamTable()
        self._latest: Stream | None = None
        self._is_untouched = True
        self._fetched = FetchedRanges()
        self._density = Density(size, siblings)
        self._whole: WholeObject | None = None

    # -- open and close ---------------------------------------------------------------------

    def on_open(self) -> ByteRange:
        """What `open` starts to fetch: a small file whole, else its head, or nothing where readers jump."""
        if self._size <= SMALL_FILE:
            return ByteRange(0, min(self._size, self._part_size))
        if self._whole is not None:
            return ByteRange(0, 0)
        return ByteRange(0, 0 if self._density.has_jumps else min(HEAD, self._part_size))

    @property
    def keeps_content(self) -> bool:
        """Whether what is held is worth keeping for a while when the last handle is gone."""
        return self._whole is not None and self._whole.keeps

    @property
    def keeps_state(self) -> bool:
        """Whether the next open has something to learn from this planner."""
        return self._density.has_jumps

    def on_close(self) -> None:
        """Everything held is gone; what was learned of the readers stays."""
        self._end_whole()
        self._streams.clear()
        self._latest = None
        self._is_untouched = True

    # -- reads --------------------------------------------------------------------------------

    def on_hit(self, wanted: ByteRange) -> bool:
        """Note a read that needs no fetch; False when `on_read` would have more to say.

        It has nothing to say while the frontier stays in the part it is in, once the stream's
        window is as wide as it gets there: the hot path of a sequential reader.
        """
        if self._whole is not None:
            return self._whole.hit(wanted.stop - wanted.start)
        start, stop = wanted
        stream = self._latest
        if stream is None or not stream.low <= start <= stream.high:
            stream = self._latest = self._streams.find_again(start)
        if stream is None or stop >= stream.next_plan_at:
            return False
        if stop > stream.frontier:
            stream.advanced += stop - max(start, stream.frontier)
            stream.frontier = stop
            stream.high = stop + stream.slack
        return True

    def on_read(self, wanted: ByteRange, situation: Situation) -> Plan:
        """Plan one read.

        Args:
            wanted: not empty, within the object.
        """
        if self._whole is not None:
            if not self._whole.is_over(wanted, is_held=situation.is_held):
                return self._plan_whole(self._whole, wanted, situation)
            self._end_whole()
        starts = self._streams.starts
        is_first, self._is_untouched = self._is_untouched, False
        stream, has_advanced = self._streams.follow(wanted, situation.now, situation.distance.latency_s / 2)
        self._latest = stream
        is_jump = self._streams.starts > starts
        left = self._streams.take_left() if is_jump else ()
        if is_first and wanted.stop == self._size and wanted.start > HEAD:
            return self._plan_tail(wanted, situation.ahead_limit)
        if is_jump and situation.is_on_disk:
            return Plan(wanted, left=left)
        if self._streams.starts < starts:
            self._density.forgive(2 * wanted.length)
        if not situation.is_held:
            self._fetched.note_miss(wanted)
            self._note(wanted, stream, situation, is_jump=is_jump)
        whole = self._begin_whole(wanted, stream, situation)
        if whole is not None:
            return self._plan_whole(whole, wanted, situation)
        fetch, ahead = self._plan_stream(wanted, stream, situation, has_advanced=has_advanced)
        return Plan(fetch, ahead, left)

    def on_refused(self, span: ByteRange) -> None:
        """A range of `Plan.ahead` will not come: the budget had no room, or its reader left it."""
        self._fetched.never_came(span)
        if self._whole is not None:
            self._whole.refused(span)

    # -- all of it ------------------------------------------------------------------------------

    def _note(self, wanted: ByteRange, stream: Stream, situation: Situation, *, is_jump: bool) -> None:
        is_jump = is_jump and stream.start > 0
        if is_jump or not self._is_trusted(stream):
            latency_s = situation.distance.latency_s
            self._density.note(wanted.length, situation.now, latency_s, is_jump=is_jump)

    def _begin_whole(self, wanted: ByteRange, stream: Stream, situation: Situation) -> WholeObject | None:
        is_read_on = stream.start == 0 and (stream.advances > 1 or wanted.length >= READAHEAD)
        if is_read_on and self._size <= min(MEDIUM_FILE, situation.ahead_limit):
            self._whole = WholeObject(self._size, self._part_size, None, Coverage())
        elif self._density.pays(situation.distance, situation.ahead_limit, self._streams.side_by_side()):
            self._density.promoted()
            self._whole = WholeObject(self._size, self._part_size, self._siblings, self._fetched.coverage)
        return self._whole

    def _plan_whole(self, whole: WholeObject, wanted: ByteRange, situation: Situation) -> Plan:
        fetch = whole.claim(wanted, situation.ahead_limit, is_held=situation.is_held)
        if fetch is None:
            fetch = wanted if situation.is_held else cell_of(wanted, situation.distance.unit, self._size)
        whole.use(wanted.length)
        return Plan(fetch, whole.claim_rest(wanted.stop - 1, situation.ahead_limit), is_whole=True)

    def _end_whole(self) -> None:
        self._fetched.forget()
        if self._whole is not None:
            self._whole.end()
            self._whole = None

    # -- streams --------------------------------------------------------------------------------

    def _is_trusted(self, stream: Stream) -> bool:
        return stream.start == 0 or self._streams.starts <= TRUSTED_STARTS

    def _plan_stream(
        self, wanted: ByteRange, stream: Stream, situation: Situation, *, has_advanced: bool
    ) -> tuple[ByteRange, tuple[ByteRange, ...]]:
        part_size = part_within(self._part_size, situation.ahead_limit)
        factor, usual_run = (TRUSTED_FACTOR, 0) if self._is_trusted(stream) else (1, self._streams.usual_run())
        window = Window(stream, part_size, factor, usual_run)
        if situation.is_late:
            window.widen(situation.distance.bytes_per_s)
        fetch = cell_of(wanted, situation.distance.unit, self._size)
        if has_advanced:
            fetch = window.demand(wanted, fetch, self._size)
        ahead = window.ahead(fetch.stop, situation.ahead_limit, self._size)
        return self._fetched.take_new(wanted, fetch, ahead)

    def _plan_tail(self, wanted: ByteRange, ahead_limit: int) -> Plan:
        start = min(wanted.start, self._size - LARGEST_UNIT) // SMALLEST_UNIT * SMALLEST_UNIT
        tail = ByteRange(min(start, (self._size - HEAD) // SMALLEST_UNIT * SMALLEST_UNIT), start)
        return Plan(ByteRange(start, self._size), (tail,) if 0 < tail.length <= ahead_limit else ())

    def statistics(self) -> PlannerStatistics:
        """A snapshot of the counters."""
        return PlannerStatistics(self._streams.ahead(), self._streams.starts, self._whole is not None)

    def check_invariants(self) -> None:
        """Raises ValueError when there are too many streams, or one lies outside the object."""
        self._streams.check_invariants(self._size)
