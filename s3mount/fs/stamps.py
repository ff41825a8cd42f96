"""Modes, owners and times that programs set, as metadata of the objects (core.posix), with --posix-metadata.

What is set before a file is published goes with it, at no request.  Else its object is copied onto itself by S3, with
other metadata; the time of that is not the file's, so the file's is written, too.

INVARIANT: what was set and S3 does not have is in `cache.shown`, and is shown; what S3 has is in the inode.
"""

import time
from collections.abc import Callable

from s3mount.core.attrs import ObjectStat
from s3mount.core.posix import NOTHING_SAID, Posix, formatted, parsed
from s3mount.core.symlinks import is_link_key
from s3mount.core.uploads import PARALLEL_COPY
from s3mount.errors import ObjectChanged
from s3mount.fs.tree import Tree
from s3mount.store.copying import copy_object
from s3mount.store.writing import ANYTHING, Attributes, Condition, Writer


class PosixStamps:
    """`fs.draft_attributes.Stamps` of one mount.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, tree: Tree, writer: Writer, clock: Callable[[], float] = time.time) -> None:
        self._tree = tree
        self._writer = writer
        self._clock = clock

    def _said(self, key: str) -> Posix:
        return self._tree.stored.config.counting(self._tree.shown.posix(key))

    def is_pending(self, key: str) -> bool:
        """See `Stamps.is_pending`."""
        return self._tree.stored.is_on and self._said(key) != NOTHING_SAID

    def stamped(self, key: str, attributes: Attributes) -> Attributes:
        """See `Stamps.stamped`."""
        return _with(attributes, self._said(key), key) if self.is_pending(key) else attributes

    async def merged(self, key: str, found: ObjectStat) -> Attributes:
        """See `Stamps.merged`."""
        told = await self._writer.describe(found.key)
        if told.stat.etag != found.etag:
            raise ObjectChanged("it is another version now", key=found.key, operation="HeadObject")
        wanted = self.stamped(key, told.attributes)
        if parsed(wanted.metadata).mtime_s is None:
            wanted = _with(wanted, Posix(mtime_s=told.stat.mtime_s), found.key)
        return wanted

    async def copied(self, key: str, found: ObjectStat) -> tuple[ObjectStat, Attributes]:
        """See `Stamps.copied`."""
        attributes = await self.merged(key, found)
        # A copy by one request is of one version already, and not every server knows conditions of copies.
        condition = Condition(found.etag) if found.size > PARALLEL_COPY else ANYTHING
        written = await copy_object(self._writer, found, found.key, condition, attributes)
        mtime_s = int(self._clock()) if written.mtime_s is None else written.mtime_s
        made = found._replace(etag=written.id.etag, mtime_s=mtime_s, storage_class=found.kept_class, restored=False)
        return made, attributes

    def made(self, key: str, found: ObjectStat, attributes: Attributes) -> None:
        """See `Stamps.made`."""
        if not self._tree.stored.is_on:
            return
        inode = self._tree.inodes.peek(key, found)
        if inode is not None:
            self._tree.stored.made(inode, found, attributes)
        self._tree.shown.stored(key, parsed(attributes.metadata))


def _with(attributes: Attributes, said: Posix, key: str) -> Attributes:
    return Attributes(attributes.headers, {**attributes.metadata, **formatted(said, is_link=is_link_key(key))})
