"""The disk cache: blocks of object content on one or several local directories.

    content = cache.content(object_id, size)            None: this version cannot be cached
    cache.get_nowait(content, span)                     on the loop, when the kernel has the pages
    await cache.get(content, span, patience_s)          in a thread; None is a miss
    await cache.ends(content, span, patience_s)         what is there at both ends of it; the rest is for S3
    cache.put(content, start, reply)                    what S3 sent; never waits

A get never raises and a put never waits; nothing that happens to a disk reaches a reader
(cache.patience, cache.writing).  Bytes that come out are the bytes that went in: names have one content only
(core.cells), and every granule is verified when it is read (core.blockfile).

Blocks are spread over the directories by the size of their disks (core.placement); one that
fails misses, and the others go on.
"""

import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from s3mount.cache.directory import BlockDirectory
from s3mount.cache.disk_config import DiskCacheConfig
from s3mount.cache.reading import Outcome, joined
from s3mount.cache.space import Limits, WriteJob
from s3mount.cache.verification import BlockCounts, OnProgress
from s3mount.cache.volume import Volume, VolumeStatistics
from s3mount.core.attrs import ObjectId
from s3mount.core.cells import CachedContent, cached_content
from s3mount.core.epochs import CachePolicy
from s3mount.core.placement import Place, choose
from s3mount.core.policies import PathPolicies
from s3mount.core.ranges import ByteRange, split


class DiskCache:
    """The blocks of one bucket's objects on this host.  Blocks while it is made: it looks at the directories.

    Args:
        origin: endpoint and bucket, spelled as every mount of it does.
        clock: seconds since the epoch.
        policies: what holds for some keys, before what `config` says of them.

    Attributes:
        block_size: of the largest blocks, bytes.
        volumes: the directories.

    Raises:
        BadOption: a directory cannot be used.
    """

    def __init__(
        self,
        config: DiskCacheConfig,
        origin: str,
        clock: Callable[[], float] = time.time,
        policies: PathPolicies | None = None,
    ) -> None:
        self._origin = origin
        self.block_size = config.block_size
        self._config = config
        self._policies = policies or PathPolicies()
        self.volumes: dict[Path, Volume] = {}
        self._places: list[Place] = []
        totals: dict[Path, int] = {}
        for path in dict.fromkeys(each.absolute() for each in config.directories):
            directory = BlockDirectory(path, config.group)
            directory.prepare()
            totals[path] = directory.space().total
        for path, total in totals.items():
            share = config.max_bytes * total / sum(totals.values())
            limits = Limits(share, config.min_free_percent / 100)
            volume = Volume(path, limits, config.group, clock=clock, max_queued=config.max_queued)
            volume.prepare()
            self.volumes[path] = volume
            self._places.append(Place(bytes(path), total))
        self._in_order = list(self.volumes.values())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Writes, evicts and scans while the block lasts."""
        async with AsyncExitStack() as stack:
            for volume in self._in_order:
                await stack.enter_async_context(volume.running())
            yield

    def content(self, object_id: ObjectId, size: int) -> CachedContent | None:
        """One object version; None when it is not cached: without an ETag nothing tells versions apart."""
        if not object_id.etag or size <= 0:
            return None
        policy = self._policies.for_key(object_id.key).cache or self._config.policy_of(object_id.key)
        if policy is CachePolicy.OFF:
            return None
        return cached_content(self._origin, object_id, size, self.block_size, policy)

    def volume(self, content: CachedContent, offset: int) -> Volume:
        """The directory of everything in one largest block."""
        if len(self._in_order) == 1:
            return self._in_order[0]
        return self._in_order[choose(content.block(self.block_size, offset).name, self._places)]

    def get_nowait(self, content: CachedContent, span: ByteRange) -> memoryview | None:
        """As `get`, when it takes no thread; None says nothing.

        Args:
            span: not empty, within the object.
        """
        return self.volume(content, span.start).reads.get_nowait(content, span)

    def knows(self, content: CachedContent, span: ByteRange) -> bool:
        """Whether all of a range should be on disk, as far as is known here: only a read can tell.

        Args:
            span: not empty, within the object.
        """
        at = span.start
        while at < span.stop:
            volume = self.volume(content, at)
            block = next((block for block in content.holders(at) if volume.knows(block.name)), None)
            if block is None:
                return False
            at = block.span.stop
        return True

    async def get(self, content: CachedContent, span: ByteRange, patience_s: float = math.inf) -> memoryview | None:
        """Bytes of an object version that are on disk as a whole; None for a miss, whatever the reason.

        Args:
            span: not empty, within the object.
            patience_s: what the same read would take from S3: a disk that is slower is left alone.
        """
        if span.start // self.block_size == (span.stop - 1) // self.block_size:
            outcome = await self._find(content, span, patience_s)
            return outcome.before if outcome.is_hit else None
        before, _ = await self.ends(content, span, patience_s)
        return before if len(before) == span.length else None

    async def ends(
        self, content: CachedContent, span: ByteRange, patience_s: float = math.inf
    ) -> tuple[memoryview, memoryview]:
        """As `get`, but what is on disk at the two ends of a range with a hole, too: one GET brings the rest.

        Returns:
            The bytes before the hole and those after it; of a hit, all and none.
        """
        before: list[memoryview] = []
        after: list[memoryview] = []
        pieces = deque(split(span, self.block_size))
        while pieces:
            first = await self._find(content, pieces.popleft(), patience_s)
            before.append(first.before)
            while pieces and not first.is_hit:
                last = await self._find(content, pieces.pop(), patience_s)
                after.insert(0, last.before if last.is_hit else last.after)
                if not last.is_hit:
                    return joined(before), joined(after)
            after.insert(0, first.after)
        return joined(before), joined(after)

    async def _find(self, content: CachedContent, piece: ByteRange, patience_s: float) -> Outcome:
        return await self.volume(content, piece.start).reads.find(content, piece, patience_s)

    def put(self, content: CachedContent, start: int, reply: bytes | memoryview) -> None:
        """Keep what S3 sent, as far as it makes whole blocks.

        Args:
            start: where in the object the reply begins.
        """
        for volume, job in self.jobs(content, start, reply):
            volume.put(job)

    def jobs(self, content: CachedContent, start: int, reply: bytes | memoryview) -> Iterator[tuple[Volume, WriteJob]]:
        """What `put` writes, and where."""
        view = memoryview(reply)
        for block in content.carve(ByteRange(start, start + len(view))):
            piece = view[block.span.start - start : block.span.stop - start]
            yield self.volume(content, block.span.start), WriteJob(block, piece, content.policy)

    async def drained(self) -> None:
        """Wait until everything put in is on disk or given up."""
        for volume in self._in_order:
            await volume.drained()

    async def scanned(self) -> None:
        """Wait until everything that was on disk at the start is known; reads find it before."""
        for volume in self._in_order:
            await volume.scanned()

    async def evict(self, n_bytes: float = math.inf) -> int:
        """Remove the least recently used blocks: so many bytes of them, shared by the directories, or all.

        Returns:
            The bytes removed; less when another process evicts or uses them.
        """
        total = sum(place.weight for place in self._places)
        shares = [n_bytes * place.weight / total for place in self._places]
        return sum([await volume.evict(share) for volume, share in zip(self._in_order, shares, strict=True)])

    async def verify(self, on_progress: OnProgress = lambda _: None) -> dict[Path, BlockCounts]:
        """Read every block on disk, and remove those that are wrong.

        Args:
            on_progress: told the bytes of each block that was read.
        """
        return {path: await volume.verify(on_progress) for path, volume in self.volumes.items()}

    def statistics(self) -> dict[Path, VolumeStatistics]:
        """A snapshot of the counters of each directory."""
        return {path: volume.statistics() for path, volume in self.volumes.items()}

    def check_invariants(self) -> None:
        """Raises ValueError when a part contradicts itself."""
        for volume in self._in_order:
            volume.check_invariants()
