"""Directories that are made and removed.

    made       a marker, an empty object `NAME/`, so that other hosts see it; or it is known here alone
    removed    nothing but its marker may be below it: one LIST tells, after the DELETEs that are on their way; the
               marker goes with the next of them

Who has a removed directory open or works in it finds it empty.
"""

from s3mount.cache.shown import Shown
from s3mount.core.attrs import FileAttrs, ObjectId
from s3mount.core.keys import SEPARATOR
from s3mount.errors import AlreadyExists, DirectoryNotEmpty, NotADirectory
from s3mount.fs.drafts import Drafts
from s3mount.fs.kept_directories import KeptDirectories
from s3mount.fs.names import Names
from s3mount.store.base import MAX_PAGE, Catalogue
from s3mount.store.writing import NEW, Writer


class DirectoryChanges:
    """mkdir and rmdir of one mount.

    Args:
        has_markers: directories that are made have one.
    """

    def __init__(
        self,
        names: Names,
        drafts: Drafts,
        catalogue: Catalogue,
        writer: Writer,
        kept: KeptDirectories,
        *,
        has_markers: bool,
    ) -> None:
        self._names = names
        self._drafts = drafts
        self._catalogue = catalogue
        self._writer = writer
        self._kept = kept
        self._has_markers = has_markers

    async def make(self, parent_ino: int, name: bytes, mode: int) -> FileAttrs:
        """See `Namespace.mkdir`."""
        path = await self._names.new_path(parent_ino, name, "mkdir", SEPARATOR)
        tree, key = self._names.tree, path + SEPARATOR
        if self._has_markers:
            with self._names.taking(path):
                await self._mark(key)
        else:
            tree.cache.local.add_directory(key)
        tree.cache.made(path, None)
        inode = tree.intern(path, None)
        if mode & 0o7777 != tree.owner.dir_mode:
            tree.shown.set(inode, Shown(mode=mode & 0o7777))
        return self._names.granted(inode)

    async def _mark(self, key: str) -> None:
        try:
            await self._writer.put(key, [], NEW)
        except AlreadyExists:
            page = await self._catalogue.list_page(key, delimiter="", max_keys=1)
            if not page.is_empty:
                raise
            await self._writer.put(key, [])  # the server remembers a directory that was removed

    async def remove(self, parent_ino: int, name: bytes) -> None:
        """See `Namespace.rmdir`."""
        tree, removals = self._names.tree, self._names.removals
        path = tree.path_of(parent_ino, name)
        self._names.policy.check_delete(path)
        if (await self._names.named(path)).found is not None:
            raise NotADirectory(f"{path!r} is a file")
        await removals.settle(path, waits_for_readers=True)
        key = path + SEPARATOR
        has_marker = await self._check_empty(key)
        inode = tree.inodes.find(key)
        if inode is not None:
            tree.orphan(inode)
        tree.shown.removed(key)
        removals.directory_removed(key)
        self._kept.removed(key)
        tree.cache.local.ghosts.add(key)
        if has_marker:
            removals.add(path, ObjectId(key, ""))
        else:
            tree.cache.gone(path)

    async def _check_empty(self, key: str) -> bool:
        """Whether S3 has a marker; raises DirectoryNotEmpty when there is anything else."""
        going = self._names.removals.keys_below(key)
        n_expected = len(going) + 1
        page = await self._catalogue.list_page(key, delimiter="", max_keys=min(n_expected + 1, MAX_PAGE))
        there = {found.key for found in page.objects}
        is_local = self._drafts.below(key) or self._names.tree.cache.local.entries(key)
        if is_local or there - going - {key} or page.next_token is not None:
            raise DirectoryNotEmpty(f"{key!r} is not empty")
        return key in there
