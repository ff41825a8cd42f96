"""Content of open objects: in flight? wait on it; held? slice it; on disk? read it; else fetch, once for all.

Single flight: a byte of a version is in at most one chunk, so N readers of one cold range cost one GET.
A read of which nothing is held, and all is on disk, makes none: a chunk is larger.
The tables change only in synchronous code; after every await the reader looks again.

Memory: every chunk draws its length from the budget when its GET starts and gives it back when
the chunk is dropped.  A chunk that was read to its end is dropped at once beyond `_KEEP_READ_BYTES`
of such chunks (the kernel has the pages); the rest when the budget or the last close asks.
"""

from collections.abc import Callable
from dataclasses import dataclass

import trio

from s3mount.core.attrs import ObjectId
from s3mount.core.plans import Plan, Situation
from s3mount.core.ranges import ByteRange, gaps, split
from s3mount.fs.activity import Activity
from s3mount.fs.budget import ByteBudget
from s3mount.fs.chunks import Chunk, ChunkState
from s3mount.fs.content import ContentReader
from s3mount.fs.objects import OpenObject, OpenObjects
from s3mount.fs.shelf import ChunkShelf
from s3mount.fs.waits import ReaderWaits
from s3mount.units import MIB

#: The share of the budget for chunks already read: several readers of one file lag a little.
_KEEP_READ_SHARE = 8
_KEEP_READ_BYTES = 32 * MIB
#: Half of the budget may be read ahead, shared by the objects that are being read: demand finds room.
_AHEAD_SHARE = 2
#: Pieces of a part that are fetched again with it, so that it is one GET and not three: at most 1/32.
_PIECES_SHARE = 16


@dataclass(frozen=True)
class BlockStatistics:
    """Objects open, chunks in flight and held, bytes of both, and bytes nobody read."""

    objects: int
    pending: int
    ready: int
    held_bytes: int
    wasted_bytes: int


class BlockStore:
    """Fetches and holds content for every open object.

    Args:
        content: where it comes from.
        nursery: outlives every request; fetches run in it.
        part_size: the largest GET, bytes.
        waits: is told what readers wait for.
        grew: told of the bytes of each GET that ended.
    """

    def __init__(
        self, content: ContentReader, budget: ByteBudget, nursery: trio.Nursery, part_size: int, waits: ReaderWaits,
        *, grew: Callable[[int], None] = lambda _: None,
    ) -> None:  # fmt: skip
        self._grew = grew
        self._content = content
        self._budget = budget
        self._nursery = nursery
        self._part_size = part_size
        self._waits = waits
        self._objects = OpenObjects(nursery, part_size, let_go=self._let_go)
        self._activity = Activity()
        self._shelf = ChunkShelf(keep_read=min(budget.total // _KEEP_READ_SHARE, _KEEP_READ_BYTES))
        budget.reclaimer = self._shelf

    # -- open and close ---------------------------------------------------------------------

    def open(self, object_id: ObjectId, size: int) -> OpenObject:
        """The shared state of one version; pair it with `close`."""
        return self._objects.open(object_id, size)

    def close(self, opened: OpenObject) -> None:
        """One handle less; with the last one everything held goes, at once or soon, and GETs are cancelled."""
        self._objects.close(opened)
        if not opened.handles:
            self._activity.forget(opened.object_id)

    def _let_go(self, opened: OpenObject) -> None:
        self._budget.release(sum(self._shelf.drop(chunk) for chunk in list(opened.chunks)))

    async def begin(self, opened: OpenObject, span: ByteRange, *, wait: bool) -> bool:
        """What `open` does before it answers: start fetching a span, and wait for it if told to.

        Never waits for the budget; when that is full the first read fetches.

        Returns:
            Whether the whole span came, and a GET for it was under way meanwhile: S3 has this version now.

        Raises:
            StoreError: it could not be fetched.
        """
        self._speculate(opened, self._missing(opened, span))
        if not wait:
            return False
        chunks = self._pin(opened, span)
        pending = [chunk for chunk in chunks if chunk.state is ChunkState.PENDING]
        try:
            for chunk in chunks:
                await self._waits.of_get(chunk.flight.landed, chunk.arrival)
                chunk.view(span)
            return not (all(chunk.arrival.is_from_disk for chunk in pending) or self._missing(opened, span))
        finally:
            self._unpin(chunks)

    # -- read -------------------------------------------------------------------------------

    def read_nowait(self, opened: OpenObject, wanted: ByteRange) -> memoryview | None:
        """As `read`, when one ready chunk has the bytes and nothing is to be fetched ahead."""
        chunk = opened.chunks.holding(wanted)
        if chunk is None or chunk.state is not ChunkState.READY or not opened.planner.on_hit(wanted):
            return None
        chunk.read.add(wanted)
        if chunk.is_read:
            self._budget.release(self._shelf.read_to_end(chunk))
        return chunk.view(wanted)

    async def read(self, opened: OpenObject, wanted: ByteRange) -> memoryview:
        """Bytes of an open object.

        Args:
            wanted: not empty, within the object.

        Raises:
            ObjectChanged: the bucket no longer has this version, and the bytes are not held.
            StoreError: they could not be fetched.
        """
        may_peek = self._content.has_disk and not opened.chunks.overlapping(wanted)
        if may_peek and (found := await self._waits.of_disk(self._content.peek(opened, wanted))) is not None:
            plan = self._plan(opened, wanted, is_held=True)
            if not plan.is_whole:
                opened.planner.on_refused(plan.fetch)  # of it only the read came
            elif plan.fetch != wanted:
                plan = plan._replace(ahead=(*split(plan.fetch, self._part_size), *plan.ahead))
            self._go_on(opened, plan)
            return found
        plan = self._plan(opened, wanted)
        await self._ensure(opened, plan.fetch)
        chunks = self._pin(opened, wanted)
        try:
            self._go_on(opened, plan)
            for chunk in chunks:
                await self._waits.of_get(chunk.flight.landed, chunk.arrival)
            views = [chunk.view(wanted) for chunk in chunks]
            for chunk in chunks:
                chunk.read.add(chunk.span.intersection(wanted))
        finally:
            self._unpin(chunks)
        return views[0] if len(views) == 1 else memoryview(b"".join(views))

    def _go_on(self, opened: OpenObject, plan: Plan) -> None:
        """Start what is ahead."""
        for ahead in plan.ahead:
            if plan.is_whole:
                self._give_up_pieces(opened, ahead)
            if not self._speculate(opened, self._missing(opened, ahead)):
                opened.planner.on_refused(ahead)

    def _plan(self, opened: OpenObject, wanted: ByteRange, *, is_held: bool = False) -> Plan:
        now = trio.current_time()
        share = self._budget.limit // _AHEAD_SHARE // self._activity.note(opened.object_id, now)
        is_held = is_held or not self._missing(opened, wanted)
        is_late = any(chunk.state is ChunkState.PENDING for chunk in opened.chunks.overlapping(wanted))
        plan = opened.planner.on_read(wanted, Situation(share, self._content.distance, now, is_held, is_late))
        for left in plan.left:
            for chunk in opened.chunks.overlapping(left):
                if self._shelf.cancel_speculation(chunk):
                    opened.planner.on_refused(chunk.span)
        if plan.is_whole and not is_held:
            for part in split(plan.fetch, self._part_size):
                self._give_up_pieces(opened, part)
        return plan

    def _give_up_pieces(self, opened: OpenObject, part: ByteRange) -> None:
        """Drop small pieces that would cut one GET of a part in several."""
        pieces = [chunk for chunk in opened.chunks.overlapping(part) if chunk.is_idle]
        n_bytes = sum(chunk.span.length for chunk in pieces)
        if n_bytes <= part.length // _PIECES_SHARE:
            self._budget.release(sum(self._shelf.drop(chunk) for chunk in pieces))

    async def _ensure(self, opened: OpenObject, fetch: ByteRange) -> None:
        """Start what is missing of `fetch`, all at once; returns with it pending or ready."""
        while missing := self._missing(opened, fetch):
            needed = sum(gap.length for gap in missing)
            if not self._budget.acquire_nowait(needed, for_demand=True):
                await self._waits.of_budget(self._budget.acquire(needed))
                if self._missing(opened, fetch) != missing:  # others went on meanwhile
                    self._budget.release(needed)
                    continue
            for gap in missing:
                for piece in split(gap, self._part_size):
                    self._start(opened, piece, is_wanted=True)

    def _speculate(self, opened: OpenObject, missing: list[ByteRange]) -> bool:
        """Start what is missing, as far as the budget has room; returns whether it had."""
        for gap in missing:
            if not self._budget.acquire_nowait(gap.length, for_demand=False):
                return False
            self._start(opened, gap, is_wanted=False)
        return True

    def _missing(self, opened: OpenObject, fetch: ByteRange) -> list[ByteRange]:
        return gaps(fetch, [chunk.span for chunk in opened.chunks.overlapping(fetch)])

    def _pin(self, opened: OpenObject, wanted: ByteRange) -> list[Chunk]:
        """Keep the chunks of a range from being dropped, until `_unpin`."""
        chunks = opened.chunks.overlapping(wanted)
        for chunk in chunks:
            self._shelf.pin(chunk)
        return chunks

    def _unpin(self, chunks: list[Chunk]) -> None:
        """What was read to its end may go."""
        self._budget.release(sum([self._shelf.unpin(chunk) for chunk in chunks]))

    # -- one fetch --------------------------------------------------------------------------

    def _start(self, opened: OpenObject, span: ByteRange, *, is_wanted: bool) -> None:
        chunk = Chunk(opened.chunks, span, is_wanted=is_wanted)
        self._shelf.put(chunk)
        self._nursery.start_soon(self._fetch, opened, chunk)

    async def _fetch(self, opened: OpenObject, chunk: Chunk) -> None:
        try:
            with chunk.scope:
                await chunk.flight.carry(self._content.fetch, opened, chunk.span, chunk.arrival)
        finally:
            self._grew(chunk.span.length)
            self._budget.release(self._shelf.ended(chunk))
            chunk.flight.landed.set()

    def statistics(self) -> BlockStatistics:
        """A snapshot of the counters."""
        return BlockStatistics(len(self._objects), **self._shelf.statistics())

    def check_invariants(self) -> None:
        """Raises ValueError when chunks overlap, or are filed where they do not belong."""
        self._shelf.check_invariants()
        self._objects.check_invariants()
        self._waits.check_invariants()
