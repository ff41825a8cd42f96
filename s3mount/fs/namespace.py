"""The verbs that change names: directories, removals, renames, links; `fs.file_writes` changes what is in files.

    mkdir     a marker, so that other hosts see the directory      fs.directory_changes
    rmdir     nothing but its marker may be below it               fs.directory_changes
    unlink    gone here at once; the DELETE follows                fs.removals
    rename    a copy, then a DELETE; in a directory bucket one     fs.renames
              request
    link      a copy that must be new: not the same file           fs.copies
    symlink   an object beside, with a suffix                      fs.symlinks

Before something new is under a name, what was removed there is gone in S3: `Removals.settle`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import trio

from s3mount.core.attrs import FileAttrs, ObjectStat
from s3mount.core.inode import Inode
from s3mount.errors import IsADirectory, StaleInode
from s3mount.fs.attribute_changes import AttributeChanges
from s3mount.fs.copies import Copies
from s3mount.fs.directory_changes import DirectoryChanges
from s3mount.fs.directory_renames import DirectoryRenames
from s3mount.fs.draft import Draft
from s3mount.fs.drafts import Drafts
from s3mount.fs.file_renames import FileRenames
from s3mount.fs.holds import Holds
from s3mount.fs.kept_directories import KeptDirectories
from s3mount.fs.names import Names
from s3mount.fs.removal import RemovalStatistics
from s3mount.fs.removals import Removals
from s3mount.fs.renames import Renames
from s3mount.fs.symlinks import Symlinks
from s3mount.fs.tree import Tree
from s3mount.fs.write_policy import WritePolicy
from s3mount.fs.write_room import WriteRoom
from s3mount.store.base import ObjectStore
from s3mount.store.conditions import Conditions
from s3mount.store.renaming import Mover
from s3mount.store.writing import Writer


@dataclass(frozen=True)
class NamespaceConfig:
    """How names are changed.

    Attributes:
        has_markers: directories that are made have an object.
        rename_dir_limit: objects of the largest directory that is renamed.
        conditions: what is known of the server's; None to find out when it matters.
        clock: seconds since the epoch.
        mover: where the bucket can rename objects.
    """

    has_markers: bool = True
    rename_dir_limit: int = 100_000
    conditions: Conditions | None = None
    clock: Callable[[], float] = time.time
    mover: Mover | None = None


@dataclass(frozen=True)
class NamespaceStatistics:
    """What `fs.removals` counts; objects copied since the start; files whose attributes are on their way, and kept."""

    removals: RemovalStatistics
    copied: int
    changing: int
    held: int


class Namespace:
    """The names of one mount.

    Args:
        room: the memory of writers.
        nursery: the mount's.

    Attributes:
        removals: names whose DELETE is on its way; who makes a file settles its name.
        changes: attributes that are on their way; who opens a file waits for its name.
    """

    def __init__(
        self,
        tree: Tree,
        drafts: Drafts,
        policy: WritePolicy,
        store: ObjectStore,
        writer: Writer,
        room: WriteRoom,
        nursery: trio.Nursery,
        config: NamespaceConfig,
    ) -> None:
        root_key = tree.inodes.root.key
        self._tree = tree
        self._drafts = drafts
        self._policy = policy
        self._writer = writer
        self._kept = KeptDirectories(tree.cache, store, root_key, nursery)
        self._holds = Holds(drafts.spool, nursery)
        self.removals = Removals(tree.cache, tree.kernel, self._kept, writer, self._holds, nursery)
        self._names = Names(tree, policy, self.removals)
        self._directories = DirectoryChanges(
            self._names,
            drafts,
            store,
            writer,
            self._kept,
            has_markers=config.has_markers and policy.is_rw,
        )
        self._symlinks = Symlinks(self._names, store, writer, config.clock)
        self._copies = Copies(store, writer, root_key, config.clock, room, config.conditions, config.mover)
        self.changes = AttributeChanges(tree, drafts, policy, nursery)
        files = FileRenames(tree, drafts, self._copies, writer, self._kept, self.changes, self._holds)
        directories = DirectoryRenames(
            tree, drafts, self._copies, store, writer, self._kept, self.changes, config.rename_dir_limit
        )
        self._renames = Renames(self._names, files, directories)

    # -- directories ----------------------------------------------------------------------------

    async def mkdir(self, parent_ino: int, name: bytes, mode: int) -> FileAttrs:
        """A new directory; the kernel holds one more reference.

        Raises: AlreadyExists, KeyTooLong, InvalidName, ReadOnlyMount, StoreError.
        """
        return await self._directories.make(parent_ino, name, mode)

    async def rmdir(self, parent_ino: int, name: bytes) -> None:
        """A directory with nothing in it goes.

        Raises:
            DirectoryNotEmpty, NotADirectory, NameNotFound, NotAllowed, ReadOnlyMount.
            StoreError: also that of a file in it which could not be removed.
        """
        await self._directories.remove(parent_ino, name)

    # -- links ----------------------------------------------------------------------------------

    async def link(self, ino: int, parent_ino: int, name: bytes) -> FileAttrs:
        """A copy of a file under a name that nothing had; the kernel holds one more reference to it.

        Raises:
            AlreadyExists, IsADirectory, KeyTooLong, InvalidName, ReadOnlyMount, StaleInode, StoreError.
        """
        inode = self._tree.inodes.get(ino)
        if inode.found is None:
            raise IsADirectory(f"{inode.key!r} is a directory")
        suffix = inode.found.key.removeprefix(inode.key)  # of a symbolic link
        path = await self._names.new_path(parent_ino, name, "link", suffix)
        with self._names.taking(path):
            found = await self._names.retried(inode.key, partial(self._link, inode, path + suffix))
        return self._names.made(path, found)

    async def _link(self, inode: Inode, key: str) -> ObjectStat:
        await self.changes.settle(inode.key)
        found = inode.found
        if isinstance(inode.unsaved, Draft):
            await inode.unsaved.fsync()
            found = inode.unsaved.base
        if found is None or inode.is_orphan:
            raise StaleInode(f"{inode.key!r} was removed")
        return await self._copies.copy(found, key, is_new=True)

    async def symlink(self, parent_ino: int, name: bytes, target: bytes) -> FileAttrs:
        """A symbolic link under a name that nothing had; the kernel holds one more reference.

        Raises: AlreadyExists, KeyTooLong, InvalidName, ReadOnlyMount, StoreError.
        """
        return await self._symlinks.make(parent_ino, name, target)

    async def readlink(self, ino: int) -> bytes:
        """Where a symbolic link points to.

        Raises:
            InvalidName: it is none.
            ObjectChanged, StaleInode, StoreError.
        """
        return await self._symlinks.target(self._tree.inodes.get(ino))

    # -- removing and renaming ------------------------------------------------------------------

    async def unlink(self, parent_ino: int, name: bytes) -> None:
        """A name goes; who has the file open goes on with it.

        Raises: IsADirectory, NameNotFound, NotAllowed, ReadOnlyMount, StoreError.
        """
        path, cache = self._tree.path_of(parent_ino, name), self._tree.cache
        self._policy.check_delete(path)
        await self.changes.quiet(path)
        found = (await self._names.to_remove(path)).found
        if found is None:
            raise IsADirectory(f"{path!r} is a directory")
        if (open_here := self._drafts.find(path)) is not None:
            await open_here.hold()
        inode, draft = self._tree.inodes.peek(path, found), self._drafts.find(path)
        cache.local.add_removed(path)
        if draft is None:
            if inode is not None:
                self._tree.orphan(inode)
            self._tree.shown.removed(path)
        await self._drafts.unlink(path)
        if draft is None or draft.base is not None:
            self.removals.add(path, found.id, inode)
        else:
            cache.local.forget_removed(path)
            cache.gone(path)

    async def rename(
        self, parent_ino: int, name: bytes, new_parent_ino: int, new_name: bytes, *, may_replace: bool
    ) -> None:
        """Another name for a file or a directory; see `fs.renames`.

        Raises:
            AlreadyExists: there is something, and it may not be replaced.
            IsADirectory, NotADirectory, DirectoryNotEmpty: something of another kind, or not empty.
            NameNotFound, InvalidName, KeyTooLong, NotAllowed, ReadOnlyMount, StoreError.
        """
        path, new_path = self._tree.path_of(parent_ino, name), self._tree.path_of(new_parent_ino, new_name)
        await self._renames.rename(path, new_path, may_replace=may_replace)

    # -- parts ----------------------------------------------------------------------------------

    async def sync(self) -> None:
        """What was removed is gone in S3 when this returns, and attributes that were set are there.

        Raises:
            StoreError: S3 refused one of them; its name is there again, or its attributes are what they were.
        """
        try:
            await self.changes.settle_all()
        finally:
            await self.removals.settle("")

    def statistics(self) -> NamespaceStatistics:
        """A snapshot of the counters."""
        copied, changing, held = self._copies.copied, self.changes.n_waiting, self._holds.n_held
        return NamespaceStatistics(self.removals.statistics(), copied, changing, held)

    def check_invariants(self) -> None:
        """Raises ValueError when a part's invariant does not hold."""
        for part in self.removals, self._holds, self._kept, self._renames, self._symlinks, self.changes:
            part.check_invariants()
