"""One open file: clamps what is asked to what the file has, and counts what was delivered.

The version is fixed at open: whatever happens to the key, this handle reads bytes of that
version or fails with `ObjectChanged`.
"""

from s3mount.core.inodes import Inode
from s3mount.core.ranges import ByteRange
from s3mount.core.readahead import SMALL_FILE
from s3mount.fs.blocks import BlockStore


class FileReader:
    """A handle for reading.

    Args:
        inode: of a file; its version is what is read.
    """

    def __init__(self, blocks: BlockStore, inode: Inode) -> None:
        if inode.found is None:
            raise ValueError(f"inode {inode.ino} is a directory")
        self.inode = inode
        self._size = inode.found.size
        self._blocks = blocks
        self._opened = blocks.open(inode.found.id, inode.found.size)

    @property
    def is_small(self) -> bool:
        """Whether `begin` fetches the whole file."""
        return self._size <= SMALL_FILE

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
        span = self._opened.planner.on_open()
        if self.inode.was_delivered(span):
            return False
        return await self._blocks.begin(self._opened, span, wait=wait or self.is_small)

    def read_nowait(self, offset: int, length: int) -> memoryview | None:
        """As `read`, if it needs no waiting and starts no request; else None."""
        wanted = ByteRange(min(offset, self._size), min(offset + length, self._size))
        if wanted.length == 0:
            return memoryview(b"")
        content = self._blocks.read_nowait(self._opened, wanted)
        if content is not None:
            self.inode.deliver(wanted)
        return content

    async def read(self, offset: int, length: int) -> memoryview:
        """Bytes at an offset, before the end of the file; fewer than asked only up to that.

        Raises:
            StoreError: they could not be had.
        """
        wanted = ByteRange(min(offset, self._size), min(offset + length, self._size))
        content = await self._blocks.read(self._opened, wanted)
        self.inode.deliver(wanted)
        return content

    def close(self) -> None:
        """The handle is gone."""
        self._blocks.close(self._opened)
