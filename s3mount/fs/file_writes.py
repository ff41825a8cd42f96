"""The verbs that change what is in files, from open to release; `fs.namespace` changes names.

A file that is written has a draft (fs.drafts), whoever opened it how often, and an inode that shows it (fs.written).
The version under the name is asked for as any open asks (fs.versions), so that what is written replaces what the
program saw, or is refused.

fsync and the last close of the opener return when S3 has the file (appends: when the spool has, decision 0038).
RELEASE comes after close has returned: what fails there is only logged.
"""

from collections.abc import Awaitable, Callable

from s3mount.cache.answers import Record
from s3mount.cache.shown import Shown
from s3mount.core.attrs import FileAttrs, ObjectStat
from s3mount.core.inode import Inode
from s3mount.core.posix import Posix
from s3mount.errors import AlreadyExists, IsADirectory, StaleInode
from s3mount.fs.attribute_changes import AttributeChanges
from s3mount.fs.draft import Draft
from s3mount.fs.drafts import Drafts, Opening
from s3mount.fs.names import check_fits
from s3mount.fs.object_headers import ObjectHeaders
from s3mount.fs.openers import process_of
from s3mount.fs.tree import Tree
from s3mount.fs.write_handle import WriteHandle
from s3mount.fs.write_policy import WritePolicy
from s3mount.fs.written import WrittenInodes


class FileWrites:
    """Writes files of one mount.

    Args:
        settle: what was removed under a path is gone in S3 when it returns.
    """

    def __init__(
        self,
        tree: Tree,
        drafts: Drafts,
        written: WrittenInodes,
        policy: WritePolicy,
        headers: ObjectHeaders,
        settle: Callable[[str], Awaitable[None]],
        changes: AttributeChanges,
    ) -> None:
        self._tree = tree
        self._drafts = drafts
        self._written = written
        self._policy = policy
        self._headers = headers
        self._settle = settle
        self._changes = changes

    # -- opening and closing --------------------------------------------------------------------

    async def create(
        self, parent_ino: int, name: bytes, opening: Opening, made: Posix, thread_id: int
    ) -> tuple[int, FileAttrs]:
        """A handle on a new file, or on the one that is there after all; the kernel holds one more reference.

        Raises: AlreadyExists, IsADirectory, KeyTooLong, NotAllowed, ReadOnlyMount, and as `open`.
        """
        path = self._tree.path_of(parent_ino, name)
        self._policy.check_create(path)
        check_fits(path)
        with self._tree.handles.opening():
            await self._settle(path)
        record = self._tree.cache.get(path)
        if isinstance(record, Record):
            if opening.is_exclusive:
                raise AlreadyExists("there is one", key=path, operation="create")
            return await self._open_granted(self._tree.intern(path, record.found), opening, thread_id)
        opener = process_of(thread_id)
        draft = await self._drafts.open(path, None, opening, self._headers.of(path))  # does not wait: it is new
        inode = self._tree.intern(path, ObjectStat(path, "", 0, draft.mtime_s))
        handle = self._handle(inode, draft, opening, opener)
        self._tree.inodes.grant(inode)
        self._tree.versions.resolver.created(path)
        self._changes.created(inode, made)
        return handle, self._tree.attrs(inode, self._tree.cache.ages.fresh_s(inode.key))

    async def _open_granted(self, inode: Inode, opening: Opening, thread_id: int) -> tuple[int, FileAttrs]:
        self._tree.inodes.grant(inode)
        is_open = False
        try:
            handle = await self.open(inode.ino, opening, thread_id)
            is_open = True
        finally:
            if not is_open:
                self._tree.inodes.forget(inode.ino, 1)
        return handle, self._tree.attrs(inode, 0.0)

    async def open(self, ino: int, opening: Opening, thread_id: int) -> int:
        """A handle on an existing file that may write it.

        Raises:
            IsADirectory, NotAllowed, ReadOnlyMount, StaleInode, StoreError, and as `Drafts.open`.
        """
        inode = self._tree.inodes.get(ino)
        if inode.found is None:
            raise IsADirectory(f"{inode.key!r} is a directory")
        if inode.is_orphan:
            raise StaleInode(f"{inode.key!r} was removed")
        draft = inode.unsaved
        if not isinstance(draft, Draft) or draft.is_over_existing:
            self._policy.check_overwrite(inode.key, is_whole=opening.is_truncating, is_append=opening.is_append)
        if draft is None:
            with self._tree.handles.opening():
                await self._tree.versions.waits.of_names(self._tree.versions.check(inode))
        with self._tree.handles.opening():
            attributes = await self._changes.opened(inode, self._headers.of(inode.key), is_new=opening.is_truncating)
        opener = process_of(thread_id)
        draft = await self._drafts.open(inode.key, inode.found, opening, attributes)
        return self._handle(inode, draft, opening, opener)

    def _handle(self, inode: Inode, draft: Draft, opening: Opening, opener: int) -> int:
        self._written.begin(draft, inode)
        if opening.is_truncating:
            self._written.wrote(draft)
        return self._tree.handles.new_file(WriteHandle(inode, draft, is_append=opening.is_append, opener=opener))

    def is_settled(self, ino: int) -> bool:
        """Whether `settle` would do nothing."""
        draft = self._tree.inodes.get(ino).unsaved
        return not isinstance(draft, Draft) or not draft.is_acknowledged

    async def settle(self, ino: int) -> None:
        """Who opens a file to read it finds in S3 what was acknowledged; others may be told that it is there.

        Raises StoreError: it could not be written.
        """
        draft = await self._drafts.open_to_read(self._tree.inodes.get(ino).key)
        if draft is not None:
            await self._drafts.release(draft)

    def release_nowait(self, handle: int) -> bool:
        """As `release`, of a handle that only reads; returns whether it was one."""
        is_plain = not isinstance(self._tree.handles.peek(handle), WriteHandle)
        if is_plain:
            self._tree.handles.release(handle)
        return is_plain

    async def release(self, handle: int) -> None:
        """A handle is gone.  Raises BadHandle, and as `Drafts.release`."""
        file = self._tree.handles.release(handle)
        if isinstance(file, WriteHandle):
            await self._drafts.release(file.draft)

    # -- content --------------------------------------------------------------------------------

    def append_nowait(self, handle: int, offset: int, data: bytes) -> bool:
        """As `write`, of what is written in order, where that need not wait; else False, and nothing was done."""
        file = self._tree.handles.peek(handle)
        if not isinstance(file, WriteHandle) or file.is_append or not file.draft.append_nowait(offset, data):
            return False
        self._written.wrote(file.draft)
        return True

    async def write(self, handle: int, offset: int, data: bytes) -> None:
        """Bytes of an open file.

        Raises: BadHandle, NotKept, SpoolFull, SpoolFailed, StoreError.
        """
        file = self._file(handle)
        try:
            if file.is_append:
                await file.draft.append(data)
            else:
                await file.draft.write(offset, data)
        finally:
            self._written.wrote(file.draft)

    def _file(self, handle: int) -> WriteHandle:
        file = self._tree.handles.file(handle)
        if not isinstance(file, WriteHandle):
            raise StaleInode(f"{file.inode.key!r} was being written by a daemon that ended")
        return file

    async def truncate(self, ino: int, size: int) -> None:
        """A file has that size now; without a handle on it, S3 has it when this returns.

        Raises: As `open` and `write`.
        """
        inode = self._tree.inodes.get(ino)
        draft = inode.unsaved
        if isinstance(draft, Draft) and draft.users:  # without one it is acknowledged, and has to be published
            if draft.is_over_existing:
                self._policy.check_overwrite(inode.key, is_whole=False)
            draft.users += 1
            try:
                await draft.truncate(size)
            finally:
                self._written.wrote(draft)
                await self._drafts.release(draft)
            return
        handle = await self.open(ino, Opening(is_random=True, is_truncating=size == 0), 0)
        try:
            file = self._file(handle)
            await file.draft.truncate(size)
            self._written.wrote(file.draft)
            await self._drafts.flush(file.draft)
        finally:
            await self.release(handle)

    def show(self, ino: int, change: Shown) -> FileAttrs:
        """Modes, owners and times are shown as they were set; returns all attributes.

        Raises: ReadOnlyMount, StaleInode.
        """
        return self._changes.set(self._tree.inodes.get(ino), change)

    # -- durability -----------------------------------------------------------------------------

    def is_flushed(self, handle: int) -> bool:
        """Whether `flush` has nothing to do for this handle."""
        file = self._tree.handles.peek(handle)
        if file is None:
            return not self._tree.handles.is_lost(handle)
        return not isinstance(file, WriteHandle) or not file.draft.is_unsaved

    async def flush(self, handle: int) -> None:
        """A descriptor was closed; when it was the opener's last, the file is safe when this returns.

        Raises:
            StaleInode: what was written by it went with another daemon.  And as `Drafts.flush`.
        """
        file = self._tree.handles.file(handle)
        if isinstance(file, WriteHandle) and not await file.is_held_by_opener():
            await self._drafts.flush(file.draft)

    async def fsync(self, handle: int) -> None:
        """S3 has the file when this returns.  Raises as `Draft.fsync`."""
        file = self._tree.handles.file(handle)
        if isinstance(file, WriteHandle):
            await file.draft.fsync()
        await self._changes.settle(file.inode.key)

    def check_invariants(self) -> None:
        """Raises ValueError when a part's invariant does not hold."""
        self._drafts.check_invariants()
        self._written.check_invariants()
