"""The planner: which bytes to fetch for a read, and which to fetch ahead of the next one.

State lives per object, not per descriptor: descriptors that forked processes share, a thousand
handles and processes that read the same file are one set of streams (`core.streams`).

    the read                                   demand fetch            ahead
    -----------------------------------------  ----------------------  --------------------------
    any, object of at most `SMALL_FILE`        the object              nothing
    the first of all, at the very end          the last 256 KiB        the rest of the last MiB
    begins a stream at offset 0                `HEAD` (1 MiB)          nothing
    begins a stream elsewhere: a jump          a cell, 64 to 256 KiB   nothing: it may be random
    advances a trusted stream, step 2          `HEAD`                  from 0: 2 parts; else nothing
    advances a trusted stream, step n          to the end of the part  from 0: 2^(n-1) parts, else
                                                                       2^(n-2); at most AHEAD_PARTS
    advances another stream                    as much as it advanced  as much as it advanced, from
                                               twice, at most a part   1/2 MiB on; same bound
    does not advance its stream                a cell                  what the stream had
    any, while the object is fetched whole     its parts, each once    all other parts, each once

A step is a read that advances, and 128 KiB: small reads earn a window by their bytes.  Trusted is
a stream from offset 0, and any while the object saw at most `TRUSTED_STARTS` of them: elsewhere
readers jump, and a window as large as what was read so far wastes at most half.

Fetched whole is an object of at most `MEDIUM_FILE` at the first sign of sequential reading: a
first read of 128 KiB at offset 0 (kernel read-ahead does that) or a second one that goes on from
there.  And any for which `core.density` says that its jumps pay.  That is over when parts that
were fetched are asked for and gone, or a new pass begins at offset 0.

A demand fetch starts at most `HEAD` before the read: a stream that begins inside a part must not
download what it jumped over.  Windows are cut to `ahead_limit` and the object's end.  When a
stream is left, what is in flight for it is named in `Plan.left` and cancelled.

Formats need no knowledge of their own: open begins the first MiB, where HDF5 and safetensors have
their heads; Parquet and zip (.pt, .npz) are first read at the end.


The module decides only; `fs.blocks` subtracts what it has and fetches the rest.
"""

from dataclasses import dataclass

from s3mount.core.density import Density, WholeObject
from s3mount.core.distance import LARGEST_UNIT, SMALLEST_UNIT, cell_of
from s3mount.core.plans import Plan, Situation
from s3mount.core.ranges import ByteRange
from s3mount.core.siblings import Siblings
from s3mount.core.streams import Stream, StreamTable
from s3mount.core.windows import HEAD, READAHEAD, Window
from s3mount.units import MIB

#: One request: below this size the round trip costs more than the bytes (decision 5).
SMALL_FILE = MIB
#: All parts at once: two waves would be twice the distance, and all of it is 0.2 s of one connection.
MEDIUM_FILE = 16 * MIB
#: One reader that looks at the end or at a header first, and then reads on.
TRUSTED_STARTS = 2


@dataclass(frozen=True)
class PlannerStatistics:
    """Streams that are told apart, jumps of all readers, and whether the object is fetched whole."""

    streams: int
    starts: int
    is_whole: bool


class Planner:
    """Plans the reads of one object.

    Args:
        size: of the object, in bytes.
        part_size: the largest single GET, in bytes.
        siblings: what objects with such a name taught.
    """

    def __init__(self, size: int, part_size: int, siblings: Siblings) -> None:
        self._size = size
        self._part_size = part_size
        self._is_small = size <= min(SMALL_FILE, part_size)
        self._siblings = siblings
        self._streams = StreamTable()
        self._latest: Stream | None = None
        self._is_untouched = True
        self._density = Density(size, siblings)
        self._whole: WholeObject | None = None

    # -- open and close ---------------------------------------------------------------------

    def on_open(self) -> ByteRange:
        """What `open` starts to fetch: a small file whole, else its head, or nothing where readers jump."""
        if self._size <= SMALL_FILE:
            return ByteRange(0, min(self._size, self._part_size))
        if self._whole is not None:
            return ByteRange(0, 0)
        if self._siblings.pays:
            return ByteRange(0, min(self._size, self._part_size))
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
        if self._is_small:
            return True
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
        if self._is_small:
            return Plan(ByteRange(0, self._size))
        if self._whole is not None:
            plan = self._plan_whole(self._whole, wanted, situation)
            if plan is not None:
                return plan
        starts = self._streams.starts
        is_first, self._is_untouched = self._is_untouched, False
        stream, has_advanced = self._streams.follow(wanted)
        self._latest = stream
        is_jump = self._streams.starts > starts
        left = self._streams.take_left() if is_jump else ()
        if is_first and wanted.stop == self._size and wanted.start > HEAD:
            return self._plan_tail(wanted, situation.ahead_limit)
        if self._streams.starts < starts:
            self._density.forgive(wanted.length)
        elif not situation.is_held:
            self._note(wanted, stream, situation, is_jump=is_jump)
        if self._begins_whole(wanted, stream, situation):
            plan = self._plan_whole(self._whole, wanted, situation) if self._whole is not None else None
            if plan is not None:
                return plan
        window = Window(stream, self._part_size, is_trusted=self._is_trusted(stream))
        fetch = cell_of(wanted, situation.distance.unit, self._size)
        if has_advanced:
            fetch = window.demand(wanted, fetch, self._size)
        return Plan(fetch, window.ahead(fetch.stop, situation.ahead_limit, self._size), left)

    def on_refused(self, span: ByteRange) -> None:
        """The budget had no room for a range of `Plan.ahead`."""
        if self._whole is not None:
            self._whole.refused(span)

    # -- all of it ------------------------------------------------------------------------------

    def _note(self, wanted: ByteRange, stream: Stream, situation: Situation, *, is_jump: bool) -> None:
        is_jump = is_jump and stream.start > 0
        if is_jump or not self._is_trusted(stream):
            latency_s = situation.distance.latency_s
            self._density.note(wanted.length, situation.now, latency_s, is_jump=is_jump)

    def _begins_whole(self, wanted: ByteRange, stream: Stream, situation: Situation) -> bool:
        is_read_on = stream.start == 0 and (stream.advances > 1 or wanted.length >= READAHEAD)
        if is_read_on and self._size <= min(MEDIUM_FILE, situation.ahead_limit):
            self._whole = WholeObject(self._size, self._part_size, None)
            return True
        if situation.is_held or not self._density.pays(situation.distance, situation.ahead_limit):
            return False
        self._density.promoted()
        self._whole = WholeObject(self._size, self._part_size, self._siblings)
        for run in self._streams.runs():
            self._whole.skip(run)
        return True

    def _plan_whole(self, whole: WholeObject, wanted: ByteRange, situation: Situation) -> Plan | None:
        claimed = whole.claim(wanted, is_held=situation.is_held)
        if claimed is None and not situation.is_held and (whole.is_lost or wanted.start == 0):
            self._end_whole()
            return None
        whole.use(wanted.length)
        ahead = whole.claim_rest(wanted.stop - 1, situation.ahead_limit)
        if claimed is None and not situation.is_held:
            claimed = cell_of(wanted, situation.distance.unit, self._size)
        return Plan(claimed or wanted, ahead, is_whole=True)

    def _end_whole(self) -> None:
        if self._whole is not None:
            self._whole.end()
            self._whole = None

    # -- streams --------------------------------------------------------------------------------

    def _is_trusted(self, stream: Stream) -> bool:
        return stream.start == 0 or self._streams.starts <= TRUSTED_STARTS

    def _plan_tail(self, wanted: ByteRange, ahead_limit: int) -> Plan:
        start = min(wanted.start, self._size - LARGEST_UNIT) // SMALLEST_UNIT * SMALLEST_UNIT
        tail = ByteRange(min(start, (self._size - HEAD) // SMALLEST_UNIT * SMALLEST_UNIT), start)
        return Plan(ByteRange(start, self._size), (tail,) if 0 < tail.length <= ahead_limit else ())

    def statistics(self) -> PlannerStatistics:
        """A snapshot of the counters."""
        return PlannerStatistics(len(self._streams), self._streams.starts, self._whole is not None)

    def check_invariants(self) -> None:
        """Raises ValueError when there are too many streams, or one lies outside the object."""
        self._streams.check_invariants(self._size)
