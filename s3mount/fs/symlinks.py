"""Symbolic links of one mount (core.symlinks): made by one PUT, read by one GET for each version, then remembered.

Bounded: the oldest targets go first.
"""

from collections.abc import Callable

from s3mount.core.attrs import FileAttrs, ObjectId, ObjectStat
from s3mount.core.inode import Inode
from s3mount.core.ranges import ByteRange
from s3mount.core.symlinks import MAX_TARGET, SUFFIX, is_link_key, link_key
from s3mount.errors import InvalidName, StaleInode, StoreError
from s3mount.fs.names import Names
from s3mount.store.base import RangeReader
from s3mount.store.writing import NEW, Writer

#: Targets remembered: some 300 bytes each.
MAX_TARGETS = 10_000


class Symlinks:
    """Makes links, and knows where they point to.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, names: Names, store: RangeReader, writer: Writer, clock: Callable[[], float]) -> None:
        self._names = names
        self._store = store
        self._writer = writer
        self._clock = clock
        self._targets: dict[ObjectId, bytes] = {}

    async def make(self, parent_ino: int, name: bytes, target: bytes) -> FileAttrs:
        """See `Namespace.symlink`."""
        if not 0 < len(target) <= MAX_TARGET:
            raise InvalidName(f"a link to {len(target)} bytes")
        path = await self._names.new_path(parent_ino, name, "symlink", SUFFIX)
        with self._names.taking(path):
            written = await self._writer.put(link_key(path), [target], NEW)
        mtime_s = int(self._clock()) if written.mtime_s is None else written.mtime_s
        self._remember(written.id, target)
        return self._names.made(path, ObjectStat(link_key(path), written.id.etag, len(target), mtime_s))

    async def target(self, inode: Inode) -> bytes:
        """See `Namespace.readlink`."""
        found = inode.found
        if found is None or not is_link_key(found.key):
            raise InvalidName(f"{inode.key!r} is no symbolic link")
        if inode.is_orphan and found.id not in self._targets:
            raise StaleInode(f"{inode.key!r} was removed")
        return await self.read(found)

    async def read(self, found: ObjectStat) -> bytes:
        """Where the link that is an object points to.  Raises StoreError."""
        target = self._targets.get(found.id)
        if target is None:
            target = await self._fetched(found)
            self._remember(found.id, target)
        return target

    async def _fetched(self, found: ObjectStat) -> bytes:
        is_possible = 0 < found.size <= MAX_TARGET
        target = await self._store.get_range(found.id, ByteRange(0, found.size)) if is_possible else b""
        if not target or b"\0" in target:
            raise StoreError("this object can be no target of a link", key=found.key, operation="readlink")
        return target

    def _remember(self, version: ObjectId, target: bytes) -> None:
        self._targets[version] = target
        if len(self._targets) > MAX_TARGETS:
            del self._targets[next(iter(self._targets))]

    def check_invariants(self) -> None:
        """Raises ValueError when more is remembered than may be."""
        if len(self._targets) > MAX_TARGETS:
            raise ValueError(f"{len(self._targets)} targets are remembered")
