"""Copies of objects under new keys, also where the server's copies know no condition.

A copy that may only make a new object (link(2), rename without replacing) must be refused when two hosts try at once.

    the server refuses copies by If-None-Match     one request; of more than 128 MiB by parts
    only PUTs, of up to `_MAX_SENT`                GET and PUT: the bytes pass through here, in the room of writers
    neither, or larger                             HEAD, then the copy: two hosts at the same instant may both win

Which it is, is found out by trying, when it matters for the first time (store.conditions).
"""

import logging
from collections.abc import Callable

import trio

from s3mount.core.attrs import ObjectStat
from s3mount.core.ranges import ByteRange
from s3mount.errors import AlreadyExists, NotSupported, ObjectNotFound
from s3mount.fs.write_room import WriteRoom
from s3mount.store.base import ObjectStore
from s3mount.store.conditions import Conditions, find_conditions
from s3mount.store.copying import copy_object, stated
from s3mount.store.renaming import Mover
from s3mount.store.writing import ANYTHING, NEW, Attributes, Writer, Written
from s3mount.units import MIB

log = logging.getLogger(__name__)

#: Bytes that are worth a GET and a PUT: commit files are small.
_MAX_SENT = 8 * MIB


class Copies:
    """Copies for one mount.

    Args:
        prefix: below it two small objects are made and removed, if the conditions are to be found out.
        clock: seconds since the epoch.
        conditions: None where they are not known.
        mover: where the bucket can rename objects.

    Attributes:
        copied: objects, since the start.
    """

    def __init__(
        self,
        store: ObjectStore,
        writer: Writer,
        prefix: str,
        clock: Callable[[], float],
        room: WriteRoom,
        conditions: Conditions | None = None,
        mover: Mover | None = None,
    ) -> None:
        self._store = store
        self._writer = writer
        self._prefix = prefix
        self._clock = clock
        self._room = room
        self._conditions = conditions
        self._mover = mover
        self._finding = trio.Lock()
        self.copied = 0

    async def copy(
        self, source: ObjectStat, key: str, *, is_new: bool = False, attributes: Attributes | None = None
    ) -> ObjectStat:
        """The object that is under a key now.

        Args:
            is_new: there must be none before.
            attributes: instead of the source's.

        Raises:
            AlreadyExists: there is one.
            ObjectChanged: the source has another version, or is gone.
            StoreError.
        """
        if is_new:
            written = await self._copied_new(source, key, attributes)
        else:
            written = await copy_object(self._writer, source, key, ANYTHING, attributes)
        self.copied += 1
        mtime_s = int(self._clock()) if written.mtime_s is None else written.mtime_s
        return ObjectStat(key, written.id.etag, source.size, mtime_s, source.kept_class)

    @property
    def is_moving(self) -> bool:
        """Whether `move` leaves nothing under the old key."""
        return self._mover is not None

    async def move(self, source: ObjectStat, key: str, *, is_new: bool = False) -> ObjectStat:
        """The object under another key: renamed where the bucket can, else copied.  As `copy`."""
        if self._mover is not None:
            try:
                return await self._mover.move(source, key, is_new=is_new)
            except NotSupported as error:  # as in Local Zones
                log.info("the bucket does not rename objects, so they are copied: %s", error)
                self._mover = None
        return await self.copy(source, key, is_new=is_new)

    async def mark(self, key: str) -> ObjectStat:
        """An empty object, whatever there was: the marker of a directory.

        Raises:
            StoreError.
        """
        written = await self._writer.put(key, [])
        return ObjectStat(key, written.id.etag, 0, int(self._clock()))

    async def _copied_new(self, source: ObjectStat, key: str, attributes: Attributes | None) -> Written:
        conditions = await self._known_conditions()
        if conditions.of_copies:
            return await copy_object(self._writer, source, key, NEW, attributes)
        if conditions.of_puts and source.size <= min(_MAX_SENT, self._room.largest_part):
            return await self._sent(source, key, attributes)
        try:
            await self._store.head(key)
        except ObjectNotFound:
            return await copy_object(self._writer, source, key, ANYTHING, attributes)
        raise AlreadyExists("there is one", key=key, operation="CopyObject")

    async def _sent(self, source: ObjectStat, key: str, attributes: Attributes | None) -> Written:
        attributes = await stated(self._writer, source, attributes)
        async with self._room.holding(source.size):
            body = [await self._store.get_range(source.id, ByteRange(0, source.size))] if source.size else []
            return await self._writer.put(key, body, NEW, attributes)

    async def _known_conditions(self) -> Conditions:
        async with self._finding:
            if self._conditions is None:
                self._conditions = await find_conditions(self._writer, self._prefix)
            return self._conditions
