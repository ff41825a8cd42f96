"""The verbs that change names: directories, removals, renames, links; `fs.file_writes` changes what is in files.

What has to be known first (is there anything, is it a directory) is answered from the cache, as the look-up before the
call was; that nothing is replaced or lost all the same is what the conditions of the requests are for.

    mkdir     a marker, so that other hosts see the directory      PUT, If-None-Match
    rmdir     nothing but its marker may be below it               LIST; the marker goes with the next DELETEs
    unlink    gone here at once; the DELETE follows                fs.removals
    rename    a copy, then a DELETE                                fs.file_renames, fs.directory_renames
    link      a copy that must be new: not the same file           fs.copies
    symlink   an object beside, with a suffix                      core.symlinks

Before something new is under a name, what was removed there is gone in S3: `settle`.
"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import trio

from s3mount.cache.answers import Record
from s3mount.core.attrs import FileAttrs, ObjectStat
from s3mount.core.inode import Inode
from s3mount.core.keys import SEPARATOR, fits_in_key
from s3mount.core.symlinks import MAX_TARGET, link_key
from s3mount.errors import (
    AlreadyExists,
    DirectoryNotEmpty,
    InvalidName,
    IsADirectory,
    KeyTooLong,
    NameNotFound,
    NotADirectory,
    ObjectChanged,
    StaleInode,
)
from s3mount.fs.copies import Copies, CopyStatistics
from s3mount.fs.directory_renames import DirectoryRenames
from s3mount.fs.draft import Draft
from s3mount.fs.drafts import Drafts
from s3mount.fs.file_renames import FileRenames
from s3mount.fs.kept_directories import KeptDirectories
from s3mount.fs.link_targets import LinkTargets
from s3mount.fs.removals import Removals, RemovalStatistics
from s3mount.fs.shown import Shown
from s3mount.fs.tree import Tree
from s3mount.fs.write_policy import WritePolicy
from s3mount.fs.written import WrittenInodes
from s3mount.store.base import ObjectStore
from s3mount.store.conditions import Conditions
from s3mount.store.writing import ANYTHING, NEW, Writer

T = TypeVar("T")

#: Attempts at what another host changes meanwhile.
_ATTEMPTS = 3


@dataclass(frozen=True)
class NamespaceConfig:
    """How names are changed.

    Attributes:
        writes_markers: directories are seen by other hosts; --no-dir-markers.
        rename_dir_limit: keys below a directory that may be renamed.
        has_conditions: PUTs that must be new are refused where there is something.
        conditions: what is known of the server; None to find out.
        clock: seconds since the epoch.
    """

    writes_markers: bool = True
    rename_dir_limit: int = 100_000
    has_conditions: bool = True
    conditions: Conditions | None = None
    clock: Callable[[], float] = time.time


@dataclass(frozen=True)
class NamespaceStatistics:
    """Of the parts."""

    removals: RemovalStatistics
    copies: CopyStatistics


class Namespace:
    """The names of one mount.

    Attributes:
        removals: names whose DELETE is on its way; who makes a file settles its name.
    """

    def __init__(
        self,
        tree: Tree,
        drafts: Drafts,
        written: WrittenInodes,
        policy: WritePolicy,
        store: ObjectStore,
        writer: Writer,
        nursery: trio.Nursery,
        config: NamespaceConfig,
    ) -> None:
        root_key = tree.inodes.root.key
        self._tree = tree
        self._drafts = drafts
        self._policy = policy
        self._store = store
        self._writer = writer
        self._config = config
        self._kept = KeptDirectories(tree.cache.local, store, root_key, nursery)
        self._copies = Copies(store, writer, root_key, config.clock, config.conditions)
        self._files = FileRenames(tree, drafts, self._copies, writer, self._kept)
        self._directories = DirectoryRenames(
            tree, drafts, self._copies, store, writer, self._kept, config.rename_dir_limit
        )
        self._targets = LinkTargets(store)
        self.removals = Removals(tree.cache, tree.kernel, self._kept, writer, nursery)

    # -- directories ----------------------------------------------------------------------------

    async def mkdir(self, parent_ino: int, name: bytes, mode: int) -> FileAttrs:
        """A new directory; the kernel holds one more reference.

        Raises:
            AlreadyExists, KeyTooLong, InvalidName, ReadOnlyMount, StoreError.
        """
        path = await self._new_path(parent_ino, name, "mkdir", SEPARATOR)
        tree, key = self._tree, path + SEPARATOR
        if self._config.writes_markers and self._policy.is_rw:
            await self._writer.put(key, [], NEW if self._config.has_conditions else ANYTHING)
        else:
            tree.cache.local.add_directory(key)
        tree.cache.put(path, None, tree.cache.now())
        inode = tree.intern(path, None)
        if mode & 0o7777 != tree.owner.dir_mode:
            tree.shown.set(inode, Shown(mode=mode & 0o7777))
        return self._granted(inode)

    async def rmdir(self, parent_ino: int, name: bytes) -> None:
        """A directory with nothing in it goes.

        Raises:
            DirectoryNotEmpty, NotADirectory, NameNotFound, NotAllowed, ReadOnlyMount.
            StoreError: also that of a file in it which could not be removed.
        """
        path = self._tree.path_of(parent_ino, name)
        key, cache = path + SEPARATOR, self._tree.cache
        self._policy.check_delete(path)
        if (await self._resolve(path)).found is not None:
            raise NotADirectory(f"{path!r} is a file")
        if self._drafts.below(key) or cache.local.entries(key):
            raise DirectoryNotEmpty(f"{path!r} is not empty")
        await self.removals.settle(path, waits_for_readers=True)
        going = self.removals.keys_below(key)
        page = await self._store.list_page(key, delimiter="", max_keys=min(len(going) + 2, 1000))
        keys = {found.key for found in page.objects}
        if keys - going - {key}:
            raise DirectoryNotEmpty(f"{path!r} is not empty")
        inode = self._tree.inodes.find(key)
        if inode is not None:
            self._tree.inodes.orphan(inode)
        self._tree.shown.removed(key)
        self.removals.directory_removed(key)
        self._kept.removed(key)
        if key in keys:
            self.removals.add(path, key)
        else:
            cache.put_absent(path, cache.now())

    # -- files ----------------------------------------------------------------------------------

    async def unlink(self, parent_ino: int, name: bytes) -> None:
        """A name goes; who has the file open goes on with it.

        Raises:
            IsADirectory, NameNotFound, NotAllowed, ReadOnlyMount, StoreError.
        """
        path = self._tree.path_of(parent_ino, name)
        cache = self._tree.cache
        self._policy.check_delete(path)
        found = (await self._resolve(path)).found
        if found is None:
            raise IsADirectory(f"{path!r} is a directory")
        inode, draft = self._tree.inodes.peek(path, found), self._drafts.find(path)
        cache.local.add_removed(path)
        if inode is not None and draft is None:
            self._tree.inodes.orphan(inode)
        self._tree.shown.removed(path)
        await self._drafts.unlink(path)
        if draft is None or draft.base is not None:
            self.removals.add(path, found.key, inode)
        else:
            cache.local.forget_removed(path)
            cache.put_absent(path, cache.now())

    async def link(self, ino: int, parent_ino: int, name: bytes) -> FileAttrs:
        """A copy of a file under a name that nothing had; the kernel holds one more reference to it.

        Raises:
            AlreadyExists, IsADirectory, KeyTooLong, InvalidName, ReadOnlyMount, StaleInode, StoreError.
        """
        inode = self._tree.inodes.get(ino)
        if inode.found is None:
            raise IsADirectory(f"{inode.key!r} is a directory")
        path = await self._new_path(parent_ino, name, "link")
        found = await self._retried(inode.key, partial(self._link, inode, path))
        return self._made(path, found)

    async def _link(self, inode: Inode, path: str) -> ObjectStat:
        found = inode.found
        if isinstance(inode.unsaved, Draft):
            await inode.unsaved.fsync()
            found = inode.unsaved.base
        if found is None or inode.is_orphan:
            raise StaleInode(f"{inode.key!r} was removed")
        key = path + found.key.removeprefix(inode.key)  # of a symbolic link, too
        return await self._copies.copy(found, key, is_new=True)

    async def symlink(self, parent_ino: int, name: bytes, target: bytes) -> FileAttrs:
        """A symbolic link under a name that nothing had; the kernel holds one more reference.

        Raises:
            AlreadyExists, KeyTooLong, InvalidName, ReadOnlyMount, StoreError.
        """
        if not 0 < len(target) <= MAX_TARGET:
            raise InvalidName(f"a link to {len(target)} bytes")
        path = await self._new_path(parent_ino, name, "symlink", link_key(""))
        condition = NEW if self._config.has_conditions else ANYTHING
        written = await self._writer.put(link_key(path), [target], condition)
        mtime_s = int(self._config.clock()) if written.mtime_s is None else written.mtime_s
        found = ObjectStat(link_key(path), written.id.etag, len(target), mtime_s)
        self._targets.put(found.id, target)
        return self._made(path, found)

    async def readlink(self, ino: int) -> bytes:
        """Where a symbolic link points to.

        Raises:
            InvalidName: it is none.
            ObjectChanged, StaleInode, StoreError.
        """
        inode = self._tree.inodes.get(ino)
        return await self._targets.get(inode)

    async def rename(
        self, parent_ino: int, name: bytes, new_parent_ino: int, new_name: bytes, *, may_replace: bool
    ) -> None:
        """Another name for a file or a directory; see `fs.file_renames` and `fs.directory_renames`.

        Raises:
            AlreadyExists: there is something, and it may not be replaced.
            IsADirectory, NotADirectory, DirectoryNotEmpty: something of another kind, or not empty.
            NameNotFound, InvalidName, KeyTooLong, NotAllowed, ReadOnlyMount, StoreError.
        """
        path, new_path = self._tree.path_of(parent_ino, name), self._tree.path_of(new_parent_ino, new_name)
        for each in path, new_path:
            self._policy.check_edit(each, "rename")
        if path == new_path:
            return
        if new_path.startswith(path + SEPARATOR):
            raise InvalidName(f"{path!r} cannot be moved into itself")
        await self._retried(path, partial(self._rename, path, new_path, may_replace=may_replace))

    async def _rename(self, path: str, new_path: str, *, may_replace: bool) -> None:
        found = (await self._resolve(path)).found
        _check_fits(new_path + (SEPARATOR if found is None else found.key.removeprefix(path)))
        replaced = await self._there(new_path)
        if replaced is not None:
            _check_replaces(new_path, found, replaced, may_replace=may_replace)
        await self.removals.settle(new_path)
        if found is not None:
            await self._files.rename(path, found, new_path, replaced, is_new=not may_replace)
            return
        await self.removals.settle(path)
        await self._directories.rename(path + SEPARATOR, new_path + SEPARATOR, is_replacing=replaced is not None)

    # -- what they have in common ---------------------------------------------------------------

    async def _resolve(self, path: str) -> Record:
        versions = self._tree.versions
        return await versions.waits.of_names(versions.resolver.resolve(path))

    async def _there(self, path: str) -> Record | None:
        try:
            return await self._resolve(path)
        except NameNotFound:
            return None

    async def _new_path(self, parent_ino: int, name: bytes, what: str, suffix: str = "") -> str:
        """A path that nothing has, in S3 either.

        Args:
            suffix: of the key.
        """
        path = self._tree.path_of(parent_ino, name)
        self._policy.check_create(path, what)
        _check_fits(path + suffix)
        await self.removals.settle(path)
        if await self._there(path) is not None:
            raise AlreadyExists("there is one", key=path, operation=what)
        return path

    async def _retried(self, path: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Again, when another host replaced what is under a path."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return await attempt()
            except ObjectChanged:
                self._tree.cache.drop(path)
        return await attempt()

    def _made(self, path: str, found: ObjectStat) -> FileAttrs:
        self._tree.cache.put(path, found, self._tree.cache.now())
        return self._granted(self._tree.intern(path, found))

    def _granted(self, inode: Inode) -> FileAttrs:
        self._tree.inodes.grant(inode)
        return self._tree.attrs(inode, self._tree.cache.ages.fresh_s)

    # -- durability -----------------------------------------------------------------------------

    async def sync(self) -> None:
        """What was removed is gone in S3 when this returns.

        Raises:
            StoreError: S3 refused one of them; its name is there again.
        """
        await self.removals.settle("")

    def statistics(self) -> NamespaceStatistics:
        """A snapshot of the counters."""
        return NamespaceStatistics(self.removals.statistics(), self._copies.statistics())

    def check_invariants(self) -> None:
        """Raises ValueError when a part's invariant does not hold."""
        for part in self.removals, self._kept, self._directories, self._targets:
            part.check_invariants()


def _check_fits(key: str) -> None:
    if not fits_in_key(key):
        raise KeyTooLong(f"{key!r} is longer than a key can be")


def _check_replaces(path: str, found: ObjectStat | None, replaced: Record, *, may_replace: bool) -> None:
    """Whether something may take the place of what is under a path."""
    if not may_replace:
        raise AlreadyExists("there is one", key=path, operation="rename")
    if found is None and replaced.found is not None:
        raise NotADirectory(f"{path!r} is a file")
    if found is not None and replaced.found is None:
        raise IsADirectory(f"{path!r} is a directory")
