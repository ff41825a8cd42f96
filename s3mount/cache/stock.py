"""What one directory has, for who asks on purpose: to fill it, to empty it, to know it.

Readers take what they find and give what they have (cache.patience, cache.writing); a person wants to know
whether it worked.  So here a block is waited for until it is on disk or not, and presence is told without a read:
by the index, which is complete when the first scan is.
"""

from collections.abc import Callable
from typing import NamedTuple

import trio

from s3mount.cache.descriptors import OpenBlocks
from s3mount.cache.directory import BlockDirectory
from s3mount.cache.space import SpaceKeeper, WriteJob
from s3mount.cache.upkeep import Upkeep
from s3mount.cache.writing import BlockWriter
from s3mount.core.lru import N_FOLDERS, BlockIndex


class StockLevel(NamedTuple):
    """Bytes of one directory, and seconds.

    Attributes:
        capacity: that it may hold as the disk is now, what it has included.
        free: of the file system.
        oldest_s: since when the least recently used block was not used; None without blocks.
    """

    capacity: int
    free: int
    oldest_s: float | None


class Stock:
    """The blocks of one directory, on demand.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        directory: BlockDirectory,
        opened: OpenBlocks,
        index: BlockIndex,
        keeper: SpaceKeeper,
        writer: BlockWriter,
        upkeep: Upkeep,
        clock: Callable[[], float],
    ) -> None:
        self._directory = directory
        self._opened = opened
        self._index = index
        self._keeper = keeper
        self._writer = writer
        self._upkeep = upkeep
        self._clock = clock

    def has(self, name: bytes) -> bool:
        """Whether a block is on disk, as far as is known; asking counts as its use, so that it stays."""
        if name not in self._index:
            return False
        now = self._clock()
        if self._index.use(name, now):
            self._upkeep.note_use(name, now)
        return True

    async def put(self, job: WriteJob) -> None:
        """Have a block written as soon as the queue has room for it; `landed` tells what came of it."""
        await self._writer.wait_room(len(job.content))
        self._writer.put(job)

    async def landed(self, name: bytes) -> bool:
        """Whether a block that was put in is on disk, once that is decided."""
        await self._writer.wait_written(name)
        return name in self._index

    async def remove(self, names: list[bytes]) -> int:
        """Remove those of some blocks that are known.  Returns their number.

        Raises:
            OSError: the disk failed; some may be left.
        """
        known = [name for name in names if name in self._index]
        if not known:
            return 0
        try:
            await trio.to_thread.run_sync(self._remove, known, abandon_on_cancel=True)
        finally:
            for name in known:
                self._index.discard(name)
        return len(known)

    def _remove(self, names: list[bytes]) -> None:
        for name in names:
            self._directory.remove(name)
            self._opened.drop(name)

    async def level(self) -> StockLevel:
        """What is there and may come.

        Raises:
            OSError: the disk failed.
        """
        space = await trio.to_thread.run_sync(self._directory.space, abandon_on_cancel=True)
        oldest: list[float] = []
        for folder in range(N_FOLDERS):
            if (used_s := self._index.oldest_in(folder)) is not None:
                oldest.append(used_s)
            await trio.lowlevel.checkpoint()
        capacity = max(0, self._keeper.room(space) + self._index.n_bytes)
        return StockLevel(capacity, space.free, self._clock() - min(oldest) if oldest else None)
