"""The disk cache as a whole, for who asks on purpose: `s3mountctl warm`, `evict` and `cache`.

What is asked about one object version is asked of the directories its blocks belong in (`DiskCache.volume`).
"""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import trio

from s3mount.cache.disk import DiskCache
from s3mount.cache.stock import Stock, StockLevel
from s3mount.cache.verification import BlockCounts, OnProgress
from s3mount.cache.volume import VolumeStatistics
from s3mount.core.attrs import ObjectId
from s3mount.core.blockfile import HEADER_BYTES
from s3mount.core.cells import Block, CachedContent
from s3mount.core.lru import allocated
from s3mount.core.ranges import ByteRange, split
from s3mount.units import MIB

#: Names made between two turns of the loop, at 1.5 us each.
_AT_ONCE = 512
#: Of smaller blocks what is on disk at the end is fetched again: less work than looking for it.
_WHOLE = MIB


class Keeping:
    """Blocks of one reply, on their way to their disks."""

    def __init__(self, jobs: list[tuple[Stock, Block]]) -> None:
        self._jobs = jobs

    async def lost(self) -> int:
        """How many bytes are not on disk, once that is decided."""
        return sum([block.span.length for stock, block in self._jobs if not await stock.landed(block.name)])


class DirectoryReport(NamedTuple):
    """One cache directory: counters, and what is there and may come; None when its disk does not answer."""

    path: Path
    counters: VolumeStatistics
    level: StockLevel | None


class Inventory:
    """What the cache has.

    Args:
        cache: that runs.
    """

    def __init__(self, cache: DiskCache) -> None:
        self._cache = cache

    @property
    def block_size(self) -> int:
        """Of the largest blocks, bytes."""
        return self._cache.block_size

    async def scanned(self) -> None:
        """Wait until everything that was on disk at the start is known: only then absence is."""
        await self._cache.scanned()

    def content(self, object_id: ObjectId, size: int) -> CachedContent | None:
        """See `DiskCache.content`."""
        return self._cache.content(object_id, size)

    def footprint(self, content: CachedContent) -> int:
        """The bytes of an object on disk, in the largest blocks."""
        n_blocks = -(-content.size // self._cache.block_size)
        return allocated(content.size + n_blocks * HEADER_BYTES)

    async def capacity(self) -> int:
        """The bytes that the cache may hold as the disks are now; none on one that does not answer."""
        return sum([report.level.capacity for report in await self.report() if report.level is not None])

    def holes(self, content: CachedContent) -> Iterator[ByteRange | None]:
        """For each largest block of an object what one GET has to bring of it; None when it is on disk."""
        for block in split(ByteRange(0, content.size), self._cache.block_size):
            start, stop = block
            while start < stop and (held := self._held(content, start)):
                start = held.stop
            while start < stop and block.length > _WHOLE and (held := self._held(content, stop - 1)):
                stop = held.start
            yield ByteRange(start, stop) if start < stop else None

    def _held(self, content: CachedContent, offset: int) -> ByteRange | None:
        """The block on disk that has a byte."""
        stock = self._cache.volume(content, offset).stock
        return next((block.span for block in content.holders(offset) if stock.has(block.name)), None)

    async def keep(self, content: CachedContent, start: int, reply: bytes) -> Keeping:
        """Have what S3 sent written; returns when the queues of the disks have taken it.

        Args:
            start: where in the object the reply begins; what makes no whole blocks is left out.
        """
        kept = []
        for volume, job in self._cache.jobs(content, start, reply):
            await volume.stock.put(job)
            kept.append((volume.stock, job.block))
        return Keeping(kept)

    async def remove(self, content: CachedContent) -> int:
        """Remove every block of an object version.  Returns their number.

        Raises:
            OSError: a disk failed.
        """
        names: dict[Stock, list[bytes]] = defaultdict(list)
        for size in content.sizes:
            for number, piece in enumerate(split(ByteRange(0, content.size), size)):
                if number % _AT_ONCE == _AT_ONCE - 1:
                    await trio.lowlevel.checkpoint()
                stock = self._cache.volume(content, piece.start).stock
                name = content.block(size, piece.start).name
                if stock.has(name):
                    names[stock].append(name)
        return sum([await stock.remove(some) for stock, some in names.items()])

    async def clear(self) -> int:
        """Remove all blocks of all objects, also those of other mounts.  Returns their bytes."""
        await self._cache.scanned()
        return await self._cache.evict()

    async def verify(self, on_progress: OnProgress) -> dict[Path, BlockCounts]:
        """See `DiskCache.verify`."""
        return await self._cache.verify(on_progress)

    async def report(self) -> list[DirectoryReport]:
        """Every directory."""
        counters = self._cache.statistics()
        reports = []
        for path, volume in self._cache.volumes.items():
            try:
                level = await volume.stock.level()
            except OSError:
                level = None
            reports.append(DirectoryReport(path, counters[path], level))
        return reports
