"""Content of open objects: in flight? wait on it; held? slice it; on disk? read it; else fetch, once for all.

Single flight: a byte of a version is in at most one chunk, so N readers of one cold range cost one GET.
A read of which nothing is held, and all is on disk, makes none: a chunk is larger.
The tables change only in synchronous code; after every await the reader looks again.

Memory: every chunk draws its length from the budget when its GET starts and gives it back when
the chunk is dropped.  A chunk that was read to its end is dropped at once beyond `_KEEP_READ_BYTES`
of such chunks (the kernel has the pages); the rest when the budget or the last close asks.
"""

from collections.abc import Callable

import trio

from s3mount.core.attrs import ObjectId
from s3mount.core.plans import Plan, Situation
from s3mount.core.policies import PathPolicies
from s3mount.core.ranges import ByteRange, split
from s3mount.fs.activity import Activity
from s3mount.fs.budget import ByteBudget
from s3mount.fs.chunks import Chunk, ChunkState
from s3mount.fs.content import ContentReader
from s3mount.fs.objects import OpenObject, OpenObjects
from s3mount.fs.shelf import BlockStatistics, ChunkShelf
from s3mount.fs.waits import ReaderWaits
from s3mount.units import MIB

#: The share of the budget for chunks already read: several readers of one file lag a little.
_KEEP_READ_SHARE = 8
_KEEP_READ_BYTES = 32 * MIB
#: Half of the budget may be read ahead, shared by the objects that are being read: demand finds room.
_AHEAD_SHARE = 2
#: From disk two parts ahead hide what it takes; more would only be more memory to touch.
_DISK_AHEAD = 16 * MIB


class BlockStore:
    """Fetches and holds content for every open object.

    Args:
        content: where it comes from.
        nursery: outlives every request; fetches run in it.
        part_size: the largest GET, bytes.
        waits: is told what readers wait for.
        grew: told of the bytes of each GET that ended.
        policies: say which files are fetched whole.
    """

    def __init__(
        self, content: ContentReader, budget: ByteBudget, nursery: trio.Nursery, part_size: int, waits: ReaderWaits,
        *, grew: Callable[[int], None] = lambda _: None, policies: PathPolicies | None = None,
    ) -> None:  # fmt: skip
        self._grew = grew
        self._content = content
        self._budget = budget
        self._nursery = nursery
        self._part_size = part_size
        self._waits = waits
        self._objects = OpenObjects(nursery, part_size, let_go=self._let_go, policies=policies)
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

    @property
    def has_disk(self) -> bool:
        """Whether there is a disk cache."""
        return self._content.has_disk

    def is_on_disk(self, opened: OpenObject, span: ByteRange) -> bool:
        """Whether nothing of a span is here or on its way, and all of it should be on disk."""
        return not opened.chunks.overlapping(span) and self._content.knows(opened, span)

    async def begin(self, opened: OpenObject, span: ByteRange, *, wait: bool) -> bool:
        """What `open` does before it answers: start fetching a span, and wait for it if told to.

        Never waits for the budget; when that is full the first read fetches.

        Returns:
            Whether the whole span came, and a GET for it was under way meanwhile: S3 has this version now.

        Raises:
            StoreError: it could not be fetched.
        """
        if self.is_on_disk(opened, span):
            return False  # the read finds it there
        self._speculate(opened, opened.chunks.missing(span))
        if not wait:
            return False
        chunks = self._shelf.pin_all(opened.chunks, span)
        pending = [chunk for chunk in chunks if chunk.state is ChunkState.PENDING]
        try:
            for chunk in chunks:
                await self._waits.of_get(chunk.flight.landed, chunk.arrival)
                chunk.view(span)
            return not (all(chunk.arrival.is_from_disk for chunk in pending) or opened.chunks.missing(span))
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

    async def read_disk(self, opened: OpenObject, wanted: ByteRange) -> memoryview | None:
        """As `read`, of what the disk cache has as a whole, while nothing of it is here; else None."""
        if opened.chunks.overlapping(wanted):
            return None
        found = await self._waits.of_disk(self._content.peek(opened, wanted))
        if found is None:
            return None
        plan = self._plan(opened, wanted, is_on_disk=True)
        if not plan.is_whole:
            opened.planner.on_refused(plan.fetch)  # of it only the read came
        elif plan.fetch != wanted:
            plan = plan._replace(ahead=(*split(plan.fetch, self._part_size), *plan.ahead))
        self._go_on(opened, plan)
        return found

    async def read(self, opened: OpenObject, wanted: ByteRange) -> memoryview:
        """Bytes of an open object that the disk does not have, or that are here.

        Args:
            wanted: not empty, within the object.

        Raises:
            ObjectChanged: the bucket no longer has this version, and the bytes are not held.
            StoreError: they could not be fetched.
        """
        plan = self._plan(opened, wanted)
        await self._ensure(opened, plan.fetch)
        chunks = self._shelf.pin_all(opened.chunks, wanted)
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
                self._budget.release(self._shelf.drop_pieces(opened.chunks, ahead))
            if not self._speculate(opened, opened.chunks.missing(ahead)):
                opened.planner.on_refused(ahead)

    def _plan(self, opened: OpenObject, wanted: ByteRange, *, is_on_disk: bool = False) -> Plan:
        now = trio.current_time()
        share = self._budget.limit // _AHEAD_SHARE // self._activity.note(opened.object_id, now)
        is_held = is_on_disk or not opened.chunks.missing(wanted)
        is_late = any(chunk.state is ChunkState.PENDING for chunk in opened.chunks.overlapping(wanted))
        coming = ByteRange(wanted.stop, min(wanted.stop + self._part_size, opened.size))
        if is_on_disk or self._content.knows(opened, coming):
            share, is_late = min(share, _DISK_AHEAD), False
        situation = Situation(share, self._content.distance, now, is_held, is_late, is_on_disk)
        plan = opened.planner.on_read(wanted, situation)
        for left in plan.left:
            for chunk in opened.chunks.overlapping(left):
                if self._shelf.cancel_speculation(chunk):
                    opened.planner.on_refused(chunk.span)
        if plan.is_whole and not is_held:
            for part in split(plan.fetch, self._part_size):
                self._budget.release(self._shelf.drop_pieces(opened.chunks, part))
        return plan

    async def _ensure(self, opened: OpenObject, fetch: ByteRange) -> None:
        """Start what is missing of `fetch`, all at once; returns with it pending or ready."""
        while missing := opened.chunks.missing(fetch):
            needed = sum(gap.length for gap in missing)
            if not self._budget.acquire_nowait(needed, for_demand=True):
                await self._waits.of_budget(self._budget.acquire(needed))
                if opened.chunks.missing(fetch) != missing:  # others went on meanwhile
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
        windows = self._objects.windows()
        ahead = len(windows), sum(windows), max(windows, default=0)
        return BlockStatistics(len(self._objects), *ahead, **self._shelf.statistics())

    def check_invariants(self) -> None:
        """Raises ValueError when chunks overlap, or are filed where they do not belong."""
        self._shelf.check_invariants()
        self._objects.check_invariants()
        self._waits.check_invariants()
