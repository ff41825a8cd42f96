"""Content out of the disk cache: the blocks of the objects under some paths, in the versions that S3 has now.

Blocks of versions that were replaced have names that nobody can make any more; they age out.  Reads go on as
without the cache: who reads a block has it open.
"""

from dataclasses import dataclass

import trio

from s3mount.cache.inventory import Inventory
from s3mount.core.attrs import ObjectStat
from s3mount.fs.listener import Listener
from s3mount.fs.selection import Selector


@dataclass
class EvictCounts:
    """Of one run.

    Attributes:
        files: selected; blocks: removed; failed: files and paths that were told.
    """

    files: int = 0
    blocks: int = 0
    failed: int = 0


class Emptier:
    """Empties the cache of one mount."""

    def __init__(self, inventory: Inventory, selector: Selector) -> None:
        self._inventory = inventory
        self._selector = selector

    async def evict(self, paths: list[str], listener: Listener) -> EvictCounts:
        """Remove the blocks of everything under some paths.

        Args:
            paths: relative to the mount's root; none for all of it.
        """
        await self._inventory.scanned()
        counts = EvictCounts()

        async def fail(path: str, reason: str) -> None:
            counts.failed += 1
            await listener.tell("failed", path=path, reason=reason)

        async def found(files: list[ObjectStat]) -> None:
            for each in files:
                counts.files += 1
                content = self._inventory.content(each.id, each.size)
                if content is not None:
                    try:
                        removed = await self._inventory.remove(content)  # others count meanwhile
                        counts.blocks += removed
                    except OSError as error:
                        await fail(self._selector.path_of(each.key), f"the cache's disk: {error.strerror}")
                await trio.lowlevel.checkpoint()
            listener.progress(**vars(counts))

        await self._selector.find(paths or [""], found, fail)
        return counts
