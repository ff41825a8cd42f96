"""What all verbs of the file system share: inodes, handles, and what is known of names.

INVARIANT: between two awaits inodes are interned, granted and pinned.
"""

import math
from dataclasses import dataclass

from s3mount.cache.metadata import MetadataCache
from s3mount.cache.shown import ShownAttributes
from s3mount.core.attrs import FileAttrs, ObjectStat, Ownership, directory_attrs, file_attrs
from s3mount.core.inode import Inode
from s3mount.core.inodes import InodeTable
from s3mount.core.keys import SEPARATOR, child_key, name_from_kernel
from s3mount.errors import NotADirectory
from s3mount.fs.handles import HandleTable
from s3mount.fs.kernel_view import KernelView
from s3mount.fs.stored_attributes import StoredAttributes
from s3mount.fs.versions import VersionCheck

#: Seconds for which the kernel may use the attributes of a file that is being written: an upload sets its time.
_WRITTEN_S = 1.0


@dataclass(frozen=True)
class Tree:
    """Parts of one mount.

    Attributes:
        kernel: what the kernel was told.
        owner: what entries show.
        stored: what their objects say instead.
        shown: what programs set, and S3 does not have.
    """

    inodes: InodeTable
    handles: HandleTable
    cache: MetadataCache
    versions: VersionCheck
    kernel: KernelView
    owner: Ownership
    shown: ShownAttributes
    stored: StoredAttributes

    def path_of(self, parent_ino: int, name: bytes) -> str:
        """The path of a name the kernel has: a key without a trailing slash.

        Raises:
            InvalidName, NotADirectory, StaleInode.
        """
        parent = self.inodes.get(parent_ino)
        if not parent.is_directory:
            raise NotADirectory(f"{parent.key!r} is a file")
        return child_key(parent.key, name_from_kernel(name))

    def intern(self, path: str, found: ObjectStat | None) -> Inode:
        """See `InodeTable.intern`; a path has no trailing slash."""
        return self.inodes.intern(path if found else path + SEPARATOR, found)

    def attrs(self, inode: Inode, ttl_s: float) -> FileAttrs:
        """What the kernel is told; it may use that for so many seconds."""
        if inode.found is None:
            attrs = directory_attrs(inode.ino, self.owner, ttl_s)
        else:
            attrs = file_attrs(inode.ino, inode.found, self.owner, ttl_s)
            if inode.unsaved is not None:
                attrs = attrs._replace(ttl_s=min(ttl_s, _WRITTEN_S))
        if inode.is_orphan:
            attrs = attrs._replace(nlink=0)
        return self.shown.applied(inode, self.stored.applied(inode, attrs))

    def known(self, path: str) -> Inode | None:
        """The inode the kernel has for a path, by what is known without asking."""
        record = self.cache.last_record(path)
        if record is None:
            return None
        return self.inodes.peek(path if record.found else path + SEPARATOR, record.found)

    def orphan(self, inode: Inode) -> None:
        """Its name is gone, or another inode's; what holds it goes on with what it is and shows."""
        if not inode.is_orphan:
            self.shown.orphaned(inode)
            self.inodes.orphan(inode)

    def note_change(self, inode: Inode) -> None:
        """A version that is gone contradicts what cache and kernel know of its name, and is not opened again."""
        inode.is_gone = True
        inode.vouched_until = -math.inf
        if inode.is_orphan:
            return  # the name is another's
        self.cache.drop(inode.key)
        self.kernel.forget_name(inode.key)
