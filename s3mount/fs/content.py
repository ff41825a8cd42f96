"""Where the bytes of a version come from: the disk cache, S3, or both; and how far S3 is.

    on disk            what is fetched                              S3 is asked
    -----------------  -------------------------------------------  -----------
    all of a range     nothing                                      no
    its two ends       what is between them, in one GET             yes
    else               all of it                                    yes

What a GET brings goes to the disk without waiting for it.  Blocks are named by the version's ETag, so what is
on disk is right whatever S3 has by now, and proves nothing of it: `Arrival.is_from_disk` says so to who must know.

The disk is no part of what is learned of S3: only GETs count for the distance.
"""

import math

import trio

from s3mount.cache.disk import DiskCache
from s3mount.core.attrs import ObjectId
from s3mount.core.cells import CachedContent
from s3mount.core.distance import Distance
from s3mount.core.ranges import ByteRange
from s3mount.core.waits import Arrival
from s3mount.fs.objects import OpenObject
from s3mount.fs.pace import START, Pace
from s3mount.store.base import RangeReader


class ContentReader:
    """Reads ranges of open objects.

    Args:
        cache: that runs; None for none.
    """

    def __init__(self, store: RangeReader, cache: DiskCache | None = None) -> None:
        self._store = store
        self._cache = cache
        self._pace = Pace()

    @property
    def distance(self) -> Distance:
        """Of S3, as observed."""
        return self._pace.distance

    @property
    def has_disk(self) -> bool:
        """Whether `peek` may find anything."""
        return self._cache is not None

    def _cached(self, opened: OpenObject) -> CachedContent | None:
        """What the disk cache calls an object; None without one, and for what cannot be cached."""
        if opened.cached is None and self._cache is not None:
            opened.cached = self._cache.content(opened.object_id, opened.size)
        return opened.cached

    def knows(self, opened: OpenObject, span: ByteRange) -> bool:
        """Whether a range should be on disk as a whole; only a read can tell.

        Args:
            span: within the object; one without bytes is not.
        """
        content = self._cached(opened)
        return self._cache is not None and content is not None and self._cache.knows(content, span)

    async def peek(self, opened: OpenObject, wanted: ByteRange) -> memoryview | None:
        """Bytes that are on disk as a whole, and nothing else is read there; None when S3 must be asked.

        Args:
            wanted: not empty, within the object.
        """
        content = self._cached(opened)
        if self._cache is None or content is None:
            return None
        found = self._cache.get_nowait(content, wanted)
        return await self._cache.get(content, wanted, self._patience_s(wanted)) if found is None else found

    async def fetch(self, opened: OpenObject, span: ByteRange, arrival: Arrival) -> bytes | memoryview:
        """Exactly a range of an open object.

        Args:
            span: not empty, within the object.
            arrival: is told how far it got.

        Raises:
            ObjectChanged: the key has another version now, and not all of the range is on disk.
            StoreError.
        """
        content = self._cached(opened)
        if self._cache is None or content is None:
            return await self._get(opened.object_id, span, arrival)
        arrival.disk_until = math.inf
        before, after = await self._cache.ends(content, span, self._patience_s(span))
        arrival.disk_until = arrival.sent_at = trio.current_time()
        hole = ByteRange(span.start + len(before), span.stop - len(after))
        if hole.length == 0:
            arrival.last_byte_at = arrival.disk_until
            arrival.is_from_disk = True
            return before if len(before) == span.length else b"".join((before, after))
        reply = await self._get(opened.object_id, hole, arrival)
        self._cache.put(content, hole.start, reply)
        return reply if hole == span else b"".join((before, reply, after))

    def _patience_s(self, span: ByteRange) -> float:
        """What the same would take from S3; from a server nearby not less than in AWS's own region.

        A request saved is worth something, too, and beside 1 ms a busy loop looks like a slow disk.
        """
        latency_s, bytes_per_s = self._pace.distance
        return max(latency_s, START.latency_s) + span.length / min(bytes_per_s, START.bytes_per_s)

    async def _get(self, object_id: ObjectId, span: ByteRange, arrival: Arrival) -> bytes:
        reply = await self._store.get_range(object_id, span, arrival)
        self._pace.note_arrival(span.length, arrival, trio.current_time())
        return reply
