"""Renames of files and symbolic links: S3 copies the object, then what had the old name goes.

    copied       the new name has it, in this mount too; what it replaced is an orphan
    deleted      the old name is gone, unless another host has used it since the copy

A directory bucket does both by one request (store.renaming).

Killed in between, both names have it, complete.  A file that is being written is made durable first, and is written
under its new name from then on.  Its inode keeps its number; who reads it reads on, and so does who reads what it
replaces, if that is not much (fs.holds).

A copy gets the time when it is made; S3 takes no other.
"""

from collections.abc import Sequence

from s3mount.cache.answers import Record
from s3mount.core.attrs import ObjectId, ObjectStat
from s3mount.core.keys import split_key
from s3mount.core.symlinks import is_link_key, link_key
from s3mount.fs.attribute_changes import AttributeChanges
from s3mount.fs.copies import Copies
from s3mount.fs.deletion import delete_version
from s3mount.fs.drafts import Drafts
from s3mount.fs.holds import Holds
from s3mount.fs.kept_directories import KeptDirectories
from s3mount.fs.pinned import pinned
from s3mount.fs.tree import Tree
from s3mount.store.writing import Attributes, Writer


class FileRenames:
    """Renames of single files in one mount."""

    def __init__(
        self,
        tree: Tree,
        drafts: Drafts,
        copies: Copies,
        writer: Writer,
        kept: KeptDirectories,
        changes: AttributeChanges,
        holds: Holds,
    ) -> None:
        self._holds = holds
        self._changes = changes
        self._tree = tree
        self._drafts = drafts
        self._copies = copies
        self._writer = writer
        self._kept = kept

    async def rename(
        self, path: str, found: ObjectStat, new_path: str, replaced: Record | None, *, is_new: bool
    ) -> None:
        """Give a file another name.

        Args:
            found: what is under the path.
            replaced: the file that has the new name.
            is_new: nothing may have it.

        Raises:
            AlreadyExists: there is one.
            ObjectChanged: there is another version under the path.
            StoreError: S3 refused; after a refused deletion the file has both names.
        """
        new_key = link_key(new_path) if is_link_key(found.key) else new_path

        attributes: Attributes | None = None
        stamps, moved, source = self._drafts.stamps, found, found

        async def move(version: ObjectStat) -> ObjectStat:
            nonlocal attributes, moved, source
            source = version
            attributes = await stamps.merged(path, version) if stamps.is_pending(path) else None
            if attributes is None:
                moved = await self._copies.move(version, new_key, is_new=is_new)
            else:
                moved = await self._copies.copy(version, new_key, is_new=is_new, attributes=attributes)
            return moved

        victim = None if replaced is None else self._tree.inodes.peek(new_path, replaced.found)
        async with self._changes.held(path, new_path), self._holds.kept(victim):
            if (open_there := self._drafts.find(new_path)) is not None:
                await open_there.hold()
            if (draft := self._drafts.find(path)) is not None:
                async with pinned(self._drafts, [draft]):
                    await self._drafts.rename(path, move)
            else:
                await move(found)
                await self._drafts.unlink(new_path)
                self._move(path, found, new_path, moved)
            if attributes is not None:
                stamps.made(new_path, moved, attributes)
        left = [] if self._copies.is_moving and attributes is None else [source.id]
        if replaced is not None and replaced.found is not None and replaced.found.key != new_key:
            left.append(replaced.found.id)
        await self._remove(path, new_path, left)

    def _move(self, path: str, found: ObjectStat, new_path: str, moved: ObjectStat) -> None:
        """The inode stands for the copy from now on."""
        tree = self._tree
        inode, replaced = tree.inodes.peek(path, found), tree.known(new_path)
        if replaced is not None and replaced is not inode:
            tree.orphan(replaced)
        if inode is not None:
            tree.inodes.rewrite(inode, new_path, moved)
        tree.shown.moved(path, new_path)
        tree.shown.saved(new_path, moved.etag)
        tree.cache.made(new_path, moved)

    async def _remove(self, path: str, new_path: str, left: Sequence[ObjectId]) -> None:
        cache, directory_key = self._tree.cache, split_key(path)[0]
        cache.local.add_removed(path)
        if not new_path.startswith(directory_key):
            self._kept.keep(directory_key)
        is_gone = False
        try:
            is_gone = all([await delete_version(self._writer, each.key, each.etag) for each in left])
        finally:
            cache.local.forget_removed(path)
            if is_gone:
                cache.gone(path)
            else:
                for each in path, new_path:
                    self._tree.kernel.forget_name(each)
                cache.drop(path)
            if not new_path.startswith(directory_key):
                self._kept.keep(directory_key)
