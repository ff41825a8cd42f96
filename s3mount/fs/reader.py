"""One open file: clamps what is asked to what the file has, and counts what was delivered.

The version is fixed at open: whatever others do to the key, this handle reads bytes of that
version or fails with `ObjectChanged`.  What this mount writes is another matter, as on any local file system: while the
file is being written a handle reads what is written so far, and then the version that became of it; renamed, what has
the new name; and what is kept for it (fs.holds) when its name is taken.  A read that is on its way meanwhile has the
version that it began with, to its end; if that is gone by then it reads again.

What is held of an object is opened when the first byte is asked for: a small file that the kernel has
is opened and closed, epoch after epoch, and never is.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from s3mount.core.inode import Inode
from s3mount.core.ranges import ByteRange
from s3mount.core.readahead import SMALL_FILE
from s3mount.errors import ObjectChanged
from s3mount.fs.blocks import BlockStore
from s3mount.fs.objects import OpenObject

Limit = Callable[[], AbstractContextManager[object]]
NO_LIMIT: Limit = nullcontext


class FileReader:
    """A handle for reading.

    Args:
        inode: of a file; its version is what is read.
    """

    def __init__(self, blocks: BlockStore, inode: Inode) -> None:
        if inode.found is None:
            raise ValueError(f"inode {inode.ino} is a directory")
        self.inode = inode
        self._found = inode.found
        self._size = inode.found.size
        self._blocks = blocks
        self._object: OpenObject | None = None

    @property
    def is_small(self) -> bool:
        """Whether `begin` fetches the whole file."""
        return self._size <= SMALL_FILE

    @property
    def is_with_kernel(self) -> bool:
        """Whether `begin` would fetch nothing, because the kernel got all of this version already; only for small."""
        return self.is_small and self.inode.was_delivered(ByteRange(0, self._size))

    @property
    def needs_no_fetch(self) -> bool:
        """Whether `begin` would do nothing: the kernel got all of a small file, or the disk should have it."""
        if self.is_with_kernel:
            return True
        is_cached = self.is_small and self._blocks.has_disk
        return is_cached and self._blocks.is_on_disk(self._opened, ByteRange(0, self._size))

    @property
    def _opened(self) -> OpenObject:
        if self._object is None:
            self._object = self._blocks.open(self._found.id, self._size)
        return self._object

    async def begin(self, *, wait: bool = False) -> bool:
        """Fetch what `open` fetches, unless the kernel got those bytes of this version already.

        Args:
            wait: also for the start of a file that is not small.

        Returns:
            Whether S3 gave those bytes for this open, and so said that this is the version it has.

        Raises:
            ObjectChanged: it is not.
            StoreError: they could not be fetched.
        """
        if self.is_with_kernel:
            return False
        span = self._opened.planner.on_open()
        if self.inode.was_delivered(span):
            return False
        return await self._blocks.begin(self._opened, span, wait=wait or self.is_small)

    def read_nowait(self, offset: int, length: int) -> memoryview | None:
        """As `read`, if it needs no waiting and starts no request; else None."""
        if self.inode.unsaved is not None:
            return None
        self._follow()
        wanted = ByteRange(min(offset, self._size), min(offset + length, self._size))
        if wanted.length == 0:
            return memoryview(b"")
        content = self._blocks.read_nowait(self._opened, wanted)
        if content is not None:
            self.inode.deliver(wanted)
        return content

    async def read(self, offset: int, length: int, limit: Limit = NO_LIMIT) -> memoryview:
        """Bytes at an offset, before the end of the file; fewer than asked only up to that.

        Args:
            limit: is entered where S3 may be asked; the disk has a limit of its own, and a deadline is not free.

        Raises:
            StoreError: they could not be had.
        """
        while True:
            if self.inode.unsaved is not None:
                with limit():
                    return memoryview(await self.inode.unsaved.read(offset, length))
            self._follow()
            found = self._found
            try:
                return await self._read(offset, length, limit)
            except ObjectChanged:
                current = self.inode.found
                if self.inode.unsaved is None and (current is None or current.id == found.id):
                    raise

    async def _read(self, offset: int, length: int, limit: Limit) -> memoryview:
        wanted = ByteRange(min(offset, self._size), min(offset + length, self._size))
        if wanted.length == 0:
            return memoryview(b"")
        opened = self._blocks.open(self._opened.object_id, self._size)  # another read may follow to another version
        try:
            content = await self._blocks.read_disk(opened, wanted) if self._blocks.has_disk else None
            if content is None:
                with limit():
                    content = await self._blocks.read(opened, wanted)
        finally:
            self._blocks.close(opened)
        self.inode.deliver(wanted)
        return content

    def _follow(self) -> None:
        """Read the version that was written here meanwhile."""
        found = self.inode.found
        if found is not None and found.id != self._found.id:
            self.close()
            self._object, self._found, self._size = None, found, found.size

    def close(self) -> None:
        """The handle is gone."""
        if self._object is not None:
            self._blocks.close(self._object)
