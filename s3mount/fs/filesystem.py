"""The file system's verbs, in our own types: no pyfuse3, no botocore, no errno.

The caller is the FUSE front end, or a test.  Every verb is one that the kernel knows; numbers
are inode numbers and handles as the kernel gets them.  Between two awaits the code is atomic:
inodes are interned, granted and pinned without an await in between.

Consistency (docs/semantics.md): what the kernel and this daemon use without asking S3 is at most
one second old, or one TTL (fs.versions); an open file is one version until it is closed.
"""

import math
from collections.abc import Callable, Sequence

from s3mount.cache.answers import Record
from s3mount.cache.metadata import MetadataCache
from s3mount.cache.shown import ShownAttributes
from s3mount.core.attrs import FileAttrs, Ownership, absent_attrs
from s3mount.core.inode import Inode
from s3mount.core.inodes import InodeTable
from s3mount.core.keys import MAX_KEY_BYTES, SEPARATOR, child_key, name_to_kernel
from s3mount.core.listing import Entry
from s3mount.errors import NameNotFound, NotADirectory, ObjectChanged, StaleInode
from s3mount.fs.blocks import BlockStore
from s3mount.fs.directories import DirectoryLister
from s3mount.fs.handles import HandleTable
from s3mount.fs.kernel_view import KernelView
from s3mount.fs.notifier import KernelNotifier
from s3mount.fs.open_directory import OpenDirectory
from s3mount.fs.reader import NO_LIMIT, FileReader, Limit
from s3mount.fs.statistics import FileSystemStatistics
from s3mount.fs.tree import Tree
from s3mount.fs.versions import VersionCheck, openable

#: Takes (name, attributes, offset of the next entry); False when the reply is full.
Emit = Callable[[bytes, FileAttrs, int], bool]


class S3FileSystem:
    """A view of one prefix of one bucket; `fs.file_writes` and `fs.namespace` change it.

    Args:
        inodes: of the prefix, with what a predecessor left.
        give_back: called when much memory became free.

    Attributes:
        tree: what they share.
    """

    def __init__(
        self,
        inodes: InodeTable,
        *,
        lister: DirectoryLister,
        cache: MetadataCache,
        blocks: BlockStore,
        versions: VersionCheck,
        notifier: KernelNotifier,
        owner: Ownership,
        give_back: Callable[[], None] = lambda: None,
    ) -> None:
        self._inodes = inodes
        self._resolver = versions.resolver
        self._lister = lister
        self._cache = cache
        self._blocks = blocks
        self._versions = versions
        self._waits = versions.waits
        self._kernel = KernelView(self._inodes, notifier)
        lister.lost.kernel = self._kernel
        self._give_back = give_back
        self._handles = HandleTable(inodes, lister, blocks)
        self._stored = versions.stored
        self.tree = Tree(inodes, self._handles, cache, versions, self._kernel, owner, ShownAttributes(), self._stored)
        self._attrs = self.tree.attrs

    # -- names and attributes -------------------------------------------------------------------

    def lookup_nowait(self, parent_ino: int, name: bytes) -> FileAttrs | None:
        """As `lookup`, if it needs no waiting; else None."""
        path = self.tree.path_of(parent_ino, name)
        record = self._last_known(path)
        return None if record is None else self._found(path, record, began_at=math.inf)

    async def lookup(self, parent_ino: int, name: bytes) -> FileAttrs:
        """The entry under a name; the kernel holds one more reference to it.

        Inode 0 is no reference: nothing has the name, and with a negative TTL the kernel keeps that.

        Raises:
            InvalidName, NameNotFound, NotADirectory, StaleInode, StoreError.
        """
        known = self.lookup_nowait(parent_ino, name)
        if known is not None:
            return known
        path = self.tree.path_of(parent_ino, name)
        began_at = self._cache.now()
        try:
            record = await self._waits.of_names(self._resolver.look_up(path))
        except NameNotFound as error:
            if error.ttl_s > 0 and self._kernel.may_keep_absent(path, parent_ino, name):
                return absent_attrs(error.ttl_s)
            raise
        return self._found(path, record, began_at=began_at)

    def _found(self, path: str, record: Record, *, began_at: float) -> FileAttrs:
        inode = self.tree.intern(path, record.found)
        is_name_kept = self._versions.looked_up(inode, record.asked_at, began_at)
        self._inodes.grant(inode)
        attrs = self._attrs(inode, self._cache.ages.remaining(record))
        return attrs if is_name_kept else attrs._replace(is_name_kept=False)

    def _last_known(self, path: str) -> Record | None:
        """What a look-up may answer without asking S3: the step after it asks, if it must."""
        record = self._cache.last_record(path)
        if record is None or self._cache.get(path) is not None:
            return record
        inode = self.tree.intern(path, record.found)
        return record if self._versions.may_answer(inode) else None

    def getattr_nowait(self, ino: int) -> FileAttrs | None:
        """As `getattr`, if it needs no waiting; else None."""
        inode = self._inodes.get(ino)
        if not self._stored.is_known(inode):
            return None
        left_s = self._known_for(inode)
        return None if left_s is None else self._attrs(inode, left_s)

    def _known_for(self, inode: Inode) -> float | None:
        """Seconds for which the kernel may use that this is the version under the name; None when S3 must be asked."""
        if inode is self._inodes.root or inode.handles or inode.is_orphan:
            return self._cache.ages.fresh_s(inode.key)
        record = self._versions.known(inode)
        return self._stored.proven_for(inode) if record is None else self._cache.ages.remaining(record)

    async def getattr(self, ino: int) -> FileAttrs:
        """The attributes of an inode; of an open file those of the version it was opened with.

        Raises:
            StaleInode: the name holds something else now; the kernel looks it up again.
            NameNotFound, StoreError.
        """
        attrs = self.getattr_nowait(ino)
        if attrs is None:
            inode = self._inodes.get(ino)
            await self._waits.of_names(self._stored.learn(inode))
            left_s = self._known_for(inode)
            if left_s is None:
                left_s = self._cache.ages.remaining(await self._waits.of_names(self._versions.current(inode)))
            attrs = self._attrs(inode, left_s)
        return attrs

    def forget(self, references: list[tuple[int, int]]) -> None:
        """The kernel let go of (inode, number of lookups)."""
        for ino, n_lookups in references:
            self._inodes.forget(ino, n_lookups)
        if self._inodes.has_shrunk:
            self._inodes.has_shrunk = False
            self._give_back()

    # -- directories ----------------------------------------------------------------------------

    def opendir_nowait(self, ino: int) -> int | None:
        """As `opendir`, if it needs no waiting; else None."""
        inode = self._inodes.get(ino)
        if not inode.is_directory:
            raise NotADirectory(f"{inode.key!r} is a file")
        if inode is not self._inodes.root and not inode.is_orphan and self._versions.known(inode) is None:
            return None
        return self._handles.new_directory(inode)

    async def opendir(self, ino: int) -> int:
        """A handle on a directory.

        Raises:
            NotADirectory, StaleInode, StoreError.
        """
        handle = self.opendir_nowait(ino)
        if handle is None:
            inode = self._inodes.get(ino)
            await self._waits.of_names(self._versions.check(inode))
            handle = self._handles.new_directory(inode)
        return handle

    def readdir_nowait(self, handle: int, offset: int, emit: Emit) -> bool:
        """As `readdir`, if it needs no waiting; returns whether it did it."""
        directory = self._handles.directory(handle)
        entries = self._lister.entries_nowait(directory, offset)
        return entries is not None and self._hand_on(directory, entries, offset, emit)

    async def readdir(self, handle: int, offset: int, emit: Emit) -> None:
        """Hand some entries from an offset on to `emit`, until it takes no more; none only at the end.

        Never waits for a page while it has entries to hand on, so that the first are shown, and
        looked up, while the next page comes.
        Each entry that `emit` took is one more reference of the kernel.

        Raises:
            BadHandle, StoreError.
        """
        directory = self._handles.directory(handle)
        entries = await self._waits.of_names(self._lister.entries_from(directory, offset))
        while not self._hand_on(directory, entries, offset, emit):
            offset += len(entries)
            entries = await self._waits.of_names(self._lister.entries_from(directory, offset))

    def _hand_on(self, directory: OpenDirectory, entries: Sequence[Entry | None], offset: int, emit: Emit) -> bool:
        """False when there are more, and all of these are removed: nothing would mean the end."""
        asked_at = directory.asked_at(offset)
        ages = self._cache.ages
        ttl_s = ages.remaining_in(directory.key, asked_at)
        is_any = not entries
        for next_offset, entry in enumerate(entries, offset + 1):  # a hundred thousand times for some
            if entry is None:
                continue
            name, found = entry
            is_any = True
            key = child_key(directory.key, name) if found else child_key(directory.key, name) + SEPARATOR
            inode = self._inodes.intern(key, found)
            if asked_at > inode.asked_at:
                inode.asked_at, inode.is_doubtful = asked_at, False
            left_s = ages.remaining_since(key, asked_at) if ttl_s is None else ttl_s
            if not emit(name_to_kernel(name), self._attrs(inode, left_s), next_offset):
                self._inodes.discard_if_unused(inode)
                break
            self._inodes.grant(inode)
        return is_any

    def releasedir(self, handle: int) -> None:
        """A directory handle is gone."""
        self._handles.release_directory(handle)

    # -- files ----------------------------------------------------------------------------------

    def open_nowait(self, ino: int, *, is_plain: bool = True) -> int | None:
        """As `open` that neither writes nor revalidates, if it is one and needs no waiting; else None."""
        if not is_plain:
            return None
        inode = openable(self._inodes.get(ino))
        reader = FileReader(self._blocks, inode)
        if inode.unsaved is not None:
            return self._handles.new_file(reader)
        return self._handles.new_file(reader) if self._versions.begin_nowait(reader.inode, reader) else None

    async def open(self, ino: int, *, revalidate: bool = False) -> int:
        """A handle on a file; a small file is here whole when it returns.

        Args:
            revalidate: ask S3 whether this is the version under the name now, whatever is known.

        Raises:
            IsADirectory, ArchivedObject, ObjectChanged, StaleInode, StoreError.
        """
        inode = openable(self._inodes.get(ino))
        reader = FileReader(self._blocks, inode)
        handle = self._handles.new_file(reader)
        if inode.unsaved is not None:
            return handle
        is_open = False
        try:
            await self._versions.begin(inode, reader, is_direct=revalidate)
            is_open = True
        except ObjectChanged:
            self.tree.note_change(inode)
            raise
        finally:
            if not is_open:
                self.release(handle)
        return handle

    def read_nowait(self, handle: int, offset: int, length: int) -> memoryview | None:
        """As `read`, if it needs no waiting and starts no request; else None.

        Raises:
            BadHandle.
        """
        return self._handles.file(handle).read_nowait(offset, length)

    async def read(self, handle: int, offset: int, length: int, limit: Limit = NO_LIMIT) -> memoryview:
        """Bytes of an open file; fewer than asked only at its end; `limit` holds what waits for S3.

        Raises:
            BadHandle, ObjectChanged, StoreError.
        """
        reader = self._handles.file(handle)
        try:
            return await reader.read(offset, length, limit)
        except ObjectChanged:
            if reader.inode.unsaved is None:
                self.tree.note_change(reader.inode)
            raise

    def release(self, handle: int) -> None:
        """A file handle is gone, with what was held only for it."""
        self._handles.release(handle)

    # -- for the log --------------------------------------------------------------------------------

    def inode_of(self, handle: int) -> int:
        """The number of the inode that a handle is on; the handle's own when it is not known."""
        inode = self._handles.inode(handle)
        return handle if inode is None else inode.ino

    def name_of(self, ino: int) -> str:
        """The key of an inode, quoted; its number when it is not known."""
        key = self.key_of(ino)
        return f"inode {ino}" if key is None else repr(key)

    def key_of(self, ino: int) -> str | None:
        """The key of an inode; None when it is not known."""
        try:
            return self._inodes.get(ino).key
        except StaleInode:
            return None

    # -- parts ----------------------------------------------------------------------------------

    async def refresh(self, path: str = "") -> None:
        """Forget what is known of a path, of everything below it, and of what should be above it: the next use asks S3.

        Args:
            path: relative to the mount's root; empty for all of it.
        """
        key = self._inodes.root.key + path
        self._cache.drop_below(key + SEPARATOR if path else key)
        await self._kernel.forget_below(key)

    @property
    def name_max(self) -> int:
        """Bytes of the longest name of a file at the top; below it there is less room in a key."""
        return MAX_KEY_BYTES - len(name_to_kernel(self._inodes.root.key))

    def statistics(self) -> FileSystemStatistics:
        """A snapshot of the counters."""
        return FileSystemStatistics(
            inodes=self._inodes.statistics(),
            metadata=self._cache.statistics(),
            resolver=self._resolver.statistics(),
            directories=self._lister.statistics(),
            blocks=self._blocks.statistics(),
            open_files=self._handles.n_files,
            takeover=self._inodes.ledger.statistics(),
            reader_wait_seconds=self._waits.statistics(),
        )

    def check_invariants(self) -> None:
        """Raises ValueError when a part's invariant does not hold, or handles and pins differ."""
        known = self.tree.shown, self._stored, self._kernel, self._cache
        for part in (self._inodes, self._handles, *known, self._resolver, self._lister, self._blocks):
            part.check_invariants()
