"""A handle that may write: it reads what is written, and knows who opened it."""

from s3mount.core.inode import Inode
from s3mount.core.keys import split_key
from s3mount.fs.draft import Draft
from s3mount.fs.openers import has_open
from s3mount.fs.reader import NO_LIMIT, Limit


class WriteHandle:
    """A handle that may write; `HandleTable` has it, `FileWrites` releases its draft.

    Attributes:
        opener: process id, 0 where it is not known.
    """

    def __init__(self, inode: Inode, draft: Draft, *, is_append: bool, opener: int) -> None:
        self.inode = inode
        self.draft = draft
        self.is_append = is_append
        self.opener = opener

    def read_nowait(self, offset: int, length: int) -> memoryview | None:
        """It always waits for those who write."""
        return None

    async def read(self, offset: int, length: int, limit: Limit = NO_LIMIT) -> memoryview:
        """Bytes as they were written.  Raises as `Draft.read`."""
        with limit():
            return memoryview(await self.draft.read(offset, length))

    def close(self) -> None:
        """The handle is gone."""

    async def is_held_by_opener(self) -> bool:
        """Whether the process that opened it has it open still."""
        return await has_open(self.opener, self.inode.ino, split_key(self.inode.key)[1])
