"""What a user says of the disk cache: where, how much, and what is kept of which content."""

import math
from dataclasses import dataclass
from pathlib import Path

from s3mount.cache.writing import MAX_QUEUED
from s3mount.core.cells import BLOCK_SIZE, CELL_SIZE
from s3mount.core.epochs import CachePolicy
from s3mount.errors import BadOption
from s3mount.units import format_size

DEFAULT_MIN_FREE_PERCENT = 5.0


@dataclass(frozen=True)
class DiskCacheConfig:
    """Where and how much.

    Attributes:
        directories: at least one.
        max_bytes: of all directories together, shared in proportion to their disks; infinite is as
            much as `min_free_percent` leaves.
        min_free_percent: of each file system, always free for others.
        block_size: of the largest blocks, bytes, a power of two.
        policy: of content whose key begins with none of `prefix_policies`.
        prefix_policies: of content whose key begins so; the longest such prefix counts.
        group: gid of those who share the directories; None for one user.
        max_queued: bytes that may wait to be written, for each directory; at least one block.
    """

    directories: tuple[Path, ...]
    max_bytes: float = math.inf
    min_free_percent: float = DEFAULT_MIN_FREE_PERCENT
    block_size: int = BLOCK_SIZE
    policy: CachePolicy = CachePolicy.AUTO
    prefix_policies: tuple[tuple[str, CachePolicy], ...] = ()
    group: int | None = None
    max_queued: int = MAX_QUEUED

    def __post_init__(self) -> None:
        """Raises BadOption for numbers that cannot be kept."""
        if not CELL_SIZE <= self.block_size <= BLOCK_SIZE or self.block_size & (self.block_size - 1):
            raise BadOption(
                f"--cache-block-size must be a power of two, {format_size(CELL_SIZE)} to {format_size(BLOCK_SIZE)}"
            )
        if not 0 <= self.min_free_percent < 100:
            raise BadOption("--cache-min-free must be at least 0 and less than 100")
        if self.max_bytes <= 0:
            raise BadOption("--max-cache-size must be greater than 0")

    def policy_of(self, key: str) -> CachePolicy:
        """What the content of a key may replace, or that it is not kept."""
        matching = [each for each in self.prefix_policies if key.startswith(each[0])]
        return max(matching, key=lambda each: len(each[0]))[1] if matching else self.policy
