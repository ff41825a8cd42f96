"""Renames of directories: S3 copies every object below, and when all are copied the old ones go.

    listed      every key below; more than the limit is refused before anything happens
    copied      many at once; files that are being written come last, each made durable and moved as a rename of it
    moved       names, inodes, handles and what programs set of them are those of the new directory
    deleted     exactly what was copied

A directory bucket renames every object (store.renaming): nothing but markers is copied and deleted.

A failure leaves the old directory whole as long as not all is copied; what was renamed has its new name.  What was
done is remembered, so the same rename, asked again, goes on where this one ended, and takes the half of a directory
that it finds for its own.  Other hosts see both directories meanwhile.

What another host adds or replaces below the old name after it was listed may stay there or be lost.
"""

from collections.abc import Iterable

import trio

from s3mount.core.attrs import ObjectStat
from s3mount.core.keys import SEPARATOR, is_directory_key, split_key
from s3mount.core.symlinks import shown_name
from s3mount.errors import DirectoryNotEmpty, NameNotFound, NotAllowed, ObjectChanged, ObjectNotFound, StoreError
from s3mount.fs.attribute_changes import AttributeChanges
from s3mount.fs.copies import Copies
from s3mount.fs.drafts import Drafts
from s3mount.fs.kept_directories import KeptDirectories
from s3mount.fs.pinned import pinned
from s3mount.fs.rename_job import RenameJob
from s3mount.fs.tree import Tree
from s3mount.store.base import MAX_PAGE, ObjectStore
from s3mount.store.writing import Writer

#: Copies at once: at 60 ms, what S3 takes for one, a thousand take a second.
_AT_ONCE = 64
#: Renames that failed and may be asked again.
_MAX_UNFINISHED = 8


class DirectoryRenames:
    """Renames of directories in one mount, of at most `limit` keys each."""

    def __init__(
        self,
        tree: Tree,
        drafts: Drafts,
        copies: Copies,
        store: ObjectStore,
        writer: Writer,
        kept: KeptDirectories,
        changes: AttributeChanges,
        limit: int,
    ) -> None:
        self._changes = changes
        self._tree = tree
        self._drafts = drafts
        self._copies = copies
        self._store = store
        self._writer = writer
        self._kept = kept
        self._limit = limit
        self._unfinished: dict[tuple[str, str], RenameJob] = {}

    async def rename(self, old_key: str, new_key: str, *, is_replacing: bool) -> None:
        """Give a directory another name.

        Args:
            is_replacing: there is one of the new name, which has to be empty.

        Raises:
            DirectoryNotEmpty, NameNotFound.
            NotAllowed: there are more keys below than may be renamed.
            StoreError: see the module.
        """
        await self._changes.settle_below(old_key)
        async with self._changes.held(old_key):
            await self._rename(old_key, new_key, is_replacing=is_replacing)

    async def _rename(self, old_key: str, new_key: str, *, is_replacing: bool) -> None:
        job = self._unfinished.pop((old_key, new_key), None) or RenameJob(old_key, new_key)
        is_done = False
        try:
            if is_replacing:
                await self._check_empty(job)
            async with pinned(self._drafts, self._drafts.below(old_key)):
                await self._move(job)
            is_done = True
        finally:
            if not is_done and job.begun:
                if self._copies.is_moving:
                    self._tree.cache.drop_below(old_key)
                self._unfinished[old_key, new_key] = job
                if len(self._unfinished) > _MAX_UNFINISHED:
                    del self._unfinished[next(iter(self._unfinished))]

    async def _move(self, job: RenameJob) -> None:
        old_key = job.old_key
        for draft in self._drafts.below(old_key):
            await draft.fsync()
        found = await self._listed(old_key, self._limit)
        if len(found) > self._limit:
            raise NotAllowed(f"{old_key!r} has more than {self._limit} keys: --rename-dir-limit")
        if not found and not job.copied and not self._tree.cache.local.is_directory(old_key):
            raise NameNotFound(f"nothing is below {old_key!r} any more")
        await self._copy_all(job, found)
        for draft in self._drafts.below(old_key):
            if self._drafts.find(draft.key) is draft:  # it was not removed meanwhile
                await self._move_draft(job, draft.key)
        await self._move_names(job)

    async def go_on(self, old_key: str, new_key: str) -> None:
        """As `rename`, of one that a daemon may have begun before it died."""
        job = RenameJob(old_key, new_key)
        job.adopt(await self._listed(old_key, self._limit), await self._listed(new_key, self._limit))
        self._unfinished[old_key, new_key] = job
        await self.rename(old_key, new_key, is_replacing=True)

    async def _check_empty(self, job: RenameJob) -> None:
        there = await self._listed(job.new_key, len(job.begun) + 1)
        is_local = any(key != job.new_key for key in self._tree.cache.local.directories_below(job.new_key))
        if {found.key for found in there} - job.begun - {job.new_key} or self._drafts.below(job.new_key) or is_local:
            raise DirectoryNotEmpty(f"{job.new_key!r} is not empty")

    async def _listed(self, directory_key: str, limit: int) -> list[ObjectStat]:
        """Everything below a key, or more than a limit."""
        found: list[ObjectStat] = []
        token: str | None = None
        is_whole = False
        while not is_whole and len(found) <= limit:
            max_keys = min(limit + 1 - len(found), MAX_PAGE)
            page = await self._store.list_page(directory_key, delimiter="", token=token, max_keys=max_keys)
            found += page.objects
            token = page.next_token
            is_whole = token is None
        return found

    # -- copies ---------------------------------------------------------------------------------

    async def _copy_all(self, job: RenameJob, found: Iterable[ObjectStat]) -> None:
        """Whatever is not copied yet; after one that fails no other begins."""
        left = iter([each for each in found if not self._is_copied(job, each) and self._drafts.find(each.key) is None])
        failures: list[StoreError] = []

        async def work() -> None:
            for each in left:
                try:
                    await self._copy(job, each)
                except StoreError as error:
                    failures.append(error)
                if failures:
                    return

        async with trio.open_nursery() as nursery:
            for _ in range(_AT_ONCE):
                nursery.start_soon(work)
        if failures:
            raise failures[0]

    def _is_copied(self, job: RenameJob, found: ObjectStat) -> bool:
        known = job.copied.get(found.key)
        return known is not None and known[0].etag == found.etag

    async def _copy(self, job: RenameJob, found: ObjectStat) -> None:
        """Unless it is gone; what was replaced since it was listed is copied as it is now."""
        new_key = job.renamed(found.key)
        job.begun.add(new_key)
        if is_directory_key(found.key) and not found.size:  # a marker; some servers copy none
            job.copied[found.key] = found, await self._copies.mark(new_key)
            return
        try:
            copied = await self._copies.move(found, new_key)
        except ObjectChanged:
            try:
                found = await self._store.head(found.key)
            except ObjectNotFound:
                return
            copied = await self._copies.move(found, new_key)
        job.copied[found.key] = found, copied
        if self._copies.is_moving:
            job.deleted.add(found.key)
            inode = self._tree.inodes.peek(shown_name(found.key), found)
            if inode is not None:
                inode.found = copied  # who reads it reads on, while the others are still on their way

    async def _move_draft(self, job: RenameJob, key: str) -> None:
        async def copy(version: ObjectStat) -> ObjectStat:
            await self._copy(job, version)
            if key not in job.copied:
                raise ObjectChanged("it was removed meanwhile", key=key, operation="rename")
            return job.copied[key][1]

        await self._drafts.rename(key, copy)

    # -- names ----------------------------------------------------------------------------------

    async def _move_names(self, job: RenameJob) -> None:
        """All of it has the new name in this mount; then in S3 nothing has the old one."""
        tree, path, new_path = self._tree, job.old_key.removesuffix(SEPARATOR), job.new_key.removesuffix(SEPARATOR)
        parent_key = split_key(path)[0]
        self._kept.moved(job.old_key, job.new_key)
        tree.cache.local.add_removed(path)
        self._move_inodes(job)
        tree.handles.moved(job.old_key, job.new_key)
        tree.shown.moved(job.old_key, job.new_key)
        for version, copied in job.copied.values():
            tree.shown.saved(job.renamed(shown_name(version.key)), copied.etag)
        tree.cache.drop_below(job.new_key)
        tree.cache.made(new_path, None)
        is_gone, is_moved_out = False, not new_path.startswith(parent_key)
        if is_moved_out:
            self._kept.keep(parent_key)
        try:
            await job.delete_copied(self._writer)
            is_gone = True
        finally:
            tree.cache.local.forget_removed(path)
            tree.cache.drop_below(job.old_key)
            if is_gone:
                tree.cache.local.ghosts.add(job.old_key)
                tree.cache.gone(path)
            else:
                tree.kernel.forget_name(path)
                tree.kernel.forget_name(new_path)
            if is_moved_out:
                self._kept.keep(parent_key)

    def _move_inodes(self, job: RenameJob) -> None:
        inodes, moved = self._tree.inodes, {each[1].key: each for each in job.copied.values()}
        replaced = inodes.find(job.new_key)
        if replaced is not None:
            self._tree.orphan(replaced)
        for inode in inodes.below(job.old_key):
            if inode.is_orphan:
                continue
            if inode.found is None:
                inodes.rewrite(inode, job.renamed(inode.key), None)
                continue
            known = job.copied.get(inode.found.key) or moved.get(inode.found.key)
            if known is not None and known[0].etag == inode.found.etag:
                inodes.rewrite(inode, job.renamed(inode.key), known[1])
            else:
                self._tree.note_change(inode)  # another host's doing

    def check_invariants(self) -> None:
        """Raises ValueError when more failed renames are remembered than may be."""
        if len(self._unfinished) > _MAX_UNFINISHED:
            raise ValueError(f"{len(self._unfinished)} failed renames are remembered")
