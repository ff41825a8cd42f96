"""Where symbolic links point to: one GET for each version of one, then remembered.

Bounded: the oldest go first.
"""

from s3mount.core.attrs import ObjectId
from s3mount.core.inode import Inode
from s3mount.core.ranges import ByteRange
from s3mount.core.symlinks import MAX_TARGET, is_link_key
from s3mount.errors import InvalidName, StaleInode, StoreError
from s3mount.store.base import RangeReader

#: Targets remembered: some 300 bytes each.
MAX_TARGETS = 10_000


class LinkTargets:
    """Targets by version."""

    def __init__(self, store: RangeReader) -> None:
        self._store = store
        self._targets: dict[ObjectId, bytes] = {}

    def put(self, version: ObjectId, target: bytes) -> None:
        """A link points there."""
        self._targets[version] = target
        if len(self._targets) > MAX_TARGETS:
            del self._targets[next(iter(self._targets))]

    async def get(self, inode: Inode) -> bytes:
        """Where it points to.

        Raises:
            InvalidName: it is no link.
            StaleInode: it was removed.
            StoreError: among them, that it can be no target.
        """
        found = inode.found
        if found is None or not is_link_key(found.key):
            raise InvalidName(f"{inode.key!r} is no symbolic link")
        target = self._targets.get(found.id)
        if target is None:
            if inode.is_orphan:
                raise StaleInode(f"{inode.key!r} was removed")
            if not 0 < found.size <= MAX_TARGET:
                raise StoreError("this object is too large or too small for a link", key=found.key)
            target = await self._store.get_range(found.id, ByteRange(0, found.size))
            if b"\0" in target:
                raise StoreError("this object is no target of a link", key=found.key)
            self.put(found.id, target)
        return target

    def check_invariants(self) -> None:
        """Raises ValueError when more is remembered than may be."""
        if len(self._targets) > MAX_TARGETS:
            raise ValueError(f"{len(self._targets)} targets are remembered")
