"""The room on one disk, and who gives way.

Two limits: `max_bytes` of blocks, and a share of the file system that stays free, whoever fills it.
A block that comes is written only into room: there is some, or blocks go whose last use lies before
what the policy says (core.epochs), the least recently used first.  When something else fills the
disk, the oldest go under any policy.

What other processes use is seen in the files' mtimes: before a block is removed, its file is
asked for its last use, and one that another process used stays.
"""

import math
from dataclasses import dataclass

from s3mount.cache.descriptors import OpenBlocks
from s3mount.cache.directory import BlockDirectory, Space
from s3mount.core.blockfile import HEADER_BYTES
from s3mount.core.cells import Block
from s3mount.core.epochs import CachePolicy, EvictionPolicy
from s3mount.core.lru import BlockIndex, KnownBlock, allocated

#: mtimes are finer than the index, and a file is written a moment before the index knows.
_SLACK_S = 1.0


@dataclass(frozen=True)
class Limits:
    """Attributes: bytes of blocks at most, and the share of the file system that stays free."""

    max_bytes: float = math.inf
    min_free_share: float = 0.05


@dataclass(frozen=True)
class WriteJob:
    """A block that came from S3; its content is a slice of the GET's reply."""

    block: Block
    content: memoryview
    policy: CachePolicy = CachePolicy.AUTO

    @property
    def n_bytes(self) -> int:
        """On disk."""
        return allocated(HEADER_BYTES + len(self.content))


@dataclass
class Exchange:
    """What is to be written, and what goes for it."""

    jobs: list[WriteJob]
    victims: list[KnownBlock]
    refused: int = 0


class SpaceKeeper:
    """Decides what goes, and removes it.

    Args:
        index: of the directory; what is taken from it here is removed, or put back.
    """

    def __init__(
        self,
        directory: BlockDirectory,
        opened: OpenBlocks,
        index: BlockIndex,
        limits: Limits,
        policy: EvictionPolicy,
    ) -> None:
        self._directory = directory
        self._opened = opened
        self._index = index
        self._limits = limits
        self._policy = policy

    def room(self, space: Space) -> int:
        """Bytes that may be written; negative when blocks have to go."""
        above_floor = space.free - math.ceil(space.total * self._limits.min_free_share)
        return int(min(above_floor, self._limits.max_bytes - self._index.n_bytes))

    def plan(self, jobs: list[WriteJob], space: Space, now: float) -> Exchange:
        """Which of some blocks are written, and which others go for them."""
        room = self.room(space)
        exchange = Exchange([], [])
        for job in jobs:
            horizon = self._policy.horizon(job.block.name, job.policy, now)
            taken = self._index.take(job.n_bytes - room, horizon)
            gained = sum(victim.n_bytes for victim in taken)
            if room + gained < job.n_bytes:
                self.put_back(taken)
                exchange.refused += 1
                continue
            room += gained - job.n_bytes
            exchange.jobs.append(job)
            exchange.victims += taken
        return exchange

    def plan_giving_way(self, space: Space) -> list[KnownBlock]:
        """What goes because something else filled the disk, or the limit was lowered."""
        return self._index.take(-self.room(space), math.inf)

    def put_back(self, kept: list[KnownBlock]) -> None:
        """Blocks that were taken from the index and are still there."""
        for block in kept:
            self._index.add(block)

    def evict(self, victims: list[KnownBlock]) -> tuple[list[KnownBlock], int]:
        """Remove blocks; it blocks, so in a thread.

        Returns:
            Those that are still there: another process is evicting now, or used them.  And how many were
            removed; the others were gone.

        Raises:
            OSError: the disk failed; blocks that are gone nevertheless are found out later.
        """
        kept, n_removed = [], 0
        with self._directory.eviction() as is_ours:
            if not is_ours:
                return victims, 0
            for victim in victims:
                last_use = self._directory.last_use(victim.name)
                if last_use is not None and last_use > victim.used_s + _SLACK_S:
                    kept.append(victim._replace(used_s=last_use))
                    continue
                n_removed += self._directory.remove(victim.name)
                self._opened.drop(victim.name)
        return kept, n_removed
