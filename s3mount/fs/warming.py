"""Content into the disk cache before anybody reads it.

    selection → objects → pieces that are not on disk → a GET each → the disk's queue → on disk, or told

* What is on disk costs no GET, so a run that was interrupted goes on where it was.  Presence is what the index
  says: bytes are verified when they are read, as always.
* Nobody waits for a warm: it takes what readers leave (fs.leftovers), and all runs of a mount share that.
* The disk sets the pace where it is slower than S3: a piece waits for room in the queue, and a file is done when its
  blocks are on disk.  What was lost on the way (a full or failing disk, a cache that keeps what it has) is told.
* Only as much is warmed as the cache may hold when the run begins; the rest is left out, with a warning, since it
  could only replace what has just come.  Most often all is listed, and the warning there, before the first GET.
"""

import math

import trio

from s3mount.cache.inventory import Inventory, Keeping
from s3mount.core.attrs import ObjectStat
from s3mount.core.cells import CachedContent
from s3mount.core.ranges import ByteRange, split
from s3mount.core.waits import Arrival
from s3mount.errors import ObjectChanged, S3MountError
from s3mount.fs.budget import ByteBudget
from s3mount.fs.channels import receive, send
from s3mount.fs.leftovers import Leftovers
from s3mount.fs.listener import Listener
from s3mount.fs.selection import Selector
from s3mount.fs.statistics import WarmCounts
from s3mount.store.base import RangeReader
from s3mount.units import format_size

#: Objects listed before the first GET, and kept listed ahead: 30 MiB.
_LISTED_AHEAD = 50_000
#: Pieces in flight for each connection: one waits for its GET and one for the disk.
_TASKS_PER_CONNECTION = 2
#: Objects looked up in the index between two turns of the loop: 0.5 ms.
_AT_ONCE = 32


class _File:
    """One object: pieces of it that are not decided, and why it is not on disk, if so."""

    __slots__ = ("content", "found", "open", "reason")

    def __init__(self, found: ObjectStat, content: CachedContent) -> None:
        self.found = found
        self.content = content
        self.open = 1
        self.reason = ""


class Warmer:
    """Warms the cache of one mount.

    Args:
        connections: GETs that may be in flight, readers' included.
        part_size: the largest GET, bytes.
    """

    def __init__(
        self,
        store: RangeReader,
        inventory: Inventory,
        selector: Selector,
        budget: ByteBudget,
        *,
        connections: int,
        part_size: int,
    ) -> None:
        self.store = store
        self.inventory = inventory
        self.selector = selector
        self.leftovers = Leftovers(budget, connections)
        self.n_tasks = _TASKS_PER_CONNECTION * connections
        block_size = inventory.block_size
        self.piece_size = max(block_size, part_size // block_size * block_size) if block_size < part_size else part_size

    async def warm(self, paths: list[str], listener: Listener) -> WarmCounts:
        """Have everything under some paths on disk.

        Args:
            paths: relative to the mount's root; none for all of it.
        """
        await self.inventory.scanned()
        run = _Run(self, listener, await self.inventory.capacity())
        await run.run(paths or [""])
        return run.counts


class _Run:
    """One call of `Warmer.warm`."""

    def __init__(self, warmer: Warmer, listener: Listener, capacity: int) -> None:
        self.counts = WarmCounts()
        self._warmer = warmer
        self._inventory = warmer.inventory
        self._listener = listener
        self._capacity = capacity
        self._needed = 0
        self._began_at = trio.current_time()
        self._may_start = trio.Event()
        self._listed, self._to_sort = trio.open_memory_channel[_File](_LISTED_AHEAD)
        self._sorted, self._to_fetch = trio.open_memory_channel[tuple[_File, ByteRange]](warmer.n_tasks)

    async def run(self, paths: list[str]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._sort)
            for _ in range(self._warmer.n_tasks):
                nursery.start_soon(self._fetch_each)
            async with self._listed:
                await self._warmer.selector.find(paths, self._found, self._fail)
                self.counts.is_listed = True
                self._may_start.set()
        self._report()

    # -- what there is ----------------------------------------------------------------------

    async def _found(self, files: list[ObjectStat]) -> None:
        for number, found in enumerate(files):
            if number % _AT_ONCE == _AT_ONCE - 1:
                await trio.lowlevel.checkpoint()
            self.counts.files += 1
            self.counts.n_bytes += found.size
            content = self._inventory.content(found.id, found.size)
            if content is None or found.is_archived:
                await self._fail_object(found)
                continue
            footprint = self._inventory.footprint(content)
            if self._needed + footprint > self._capacity:
                await self._leave_out()
                continue
            self._needed += footprint
            file = _File(found, content)
            try:
                self._listed.send_nowait(file)
            except trio.WouldBlock:
                self._may_start.set()
                await self._listed.send(file)
        self._report()

    async def _fail_object(self, found: ObjectStat) -> None:
        path = self._warmer.selector.path_of(found.key)
        if found.size == 0:
            self.counts.done_files += 1
        elif found.is_archived:
            await self._fail(path, "it is in an archive storage class and has to be restored first")
        else:
            await self._fail(
                path, "the cache does not take it: it has the policy off, or no ETag to tell versions apart"
            )

    async def _leave_out(self) -> None:
        self.counts.left_out += 1
        if self.counts.left_out == 1:
            await self._listener.tell(
                "warning",
                message=f"the cache may hold {format_size(self._capacity)}, and more was selected: "
                "what comes last is left out",
            )

    async def _fail(self, path: str, reason: str) -> None:
        self.counts.failed += 1
        await self._listener.tell("failed", path=path, reason=reason)

    # -- what is missing --------------------------------------------------------------------

    async def _sort(self) -> None:
        """Objects into what has to be fetched of them."""
        await self._may_start.wait()
        looked_up = 0
        async with self._sorted, self._to_sort:
            while (file := await receive(self._to_sort)) is not None:
                is_cached = True
                for hole in self._inventory.holes(file.content):
                    looked_up += 1
                    if looked_up % _AT_ONCE == 0:
                        await trio.lowlevel.checkpoint()
                    if hole is None:
                        continue
                    is_cached = False
                    for piece in split(hole, self._warmer.piece_size):
                        file.open += 1
                        await send(self._sorted, (file, piece))
                if is_cached:
                    self.counts.cached_files += 1
                    self.counts.cached_bytes += file.found.size
                await self._close(file)

    # -- what is fetched --------------------------------------------------------------------

    async def _fetch_each(self) -> None:
        while (task := await receive(self._to_fetch)) is not None:
            file, piece = task
            if not file.reason:
                await self._fetch(file, piece)
            await self._close(file)

    async def _fetch(self, file: _File, piece: ByteRange) -> None:
        try:
            keeping = await self._bring(file, piece)
            if await keeping.lost():
                file.reason = "the cache did not keep it: its disk is full or failing, or keeps what it has"
        except ObjectChanged:
            file.reason = "it was replaced or deleted meanwhile"
        except S3MountError as error:
            file.reason = str(error)

    async def _bring(self, file: _File, piece: ByteRange) -> Keeping:
        warmer = self._warmer
        await warmer.leftovers.take(piece.length)
        try:
            reply = await warmer.store.get_range(file.found.id, piece, Arrival(math.inf))
            return await self._inventory.keep(file.content, piece.start, reply)
        finally:
            warmer.leftovers.give_back(piece.length)

    async def _close(self, file: _File) -> None:
        """One piece less; with the last one the file is done."""
        file.open -= 1
        if file.open:
            return
        if file.reason:
            await self._fail(self._warmer.selector.path_of(file.found.key), file.reason)
        else:
            self.counts.done_files += 1
            self.counts.done_bytes += file.found.size
        self._report()

    def _report(self) -> None:
        counts = self.counts
        elapsed_s = trio.current_time() - self._began_at
        self._listener.progress(**vars(counts), elapsed_s=elapsed_s)
