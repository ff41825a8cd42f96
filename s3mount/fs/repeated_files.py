"""Files, for a daemon that has predecessors: what they had acknowledged, what is lost with them, what comes again.

What was acknowledged is in the spool, and is uploaded.  What programs wrote and was not saved is lost, and the takeover
record says of which files: a later write, fsync or close of a handle on one of them fails, once it is known here.

mknod is of all calls on files the one for which S3 does something before it is answered: if the kernel sends one again
that a dead daemon had done (fs.repeated_names), it succeeds if there is an empty file.  The others need no such excuse.
A file that is created or cut off as it is opened is in S3 with its close, by a daemon that has its content; and to cut
one off by its name has the same result twice.
"""

import logging

from s3mount.core.attrs import FileAttrs
from s3mount.core.posix import Posix
from s3mount.errors import AlreadyExists
from s3mount.fs.drafts import Opening
from s3mount.fs.file_writes import FileWrites
from s3mount.fs.interrupted import InterruptedCalls
from s3mount.fs.names import Names

log = logging.getLogger(__name__)

_NEW = Opening(is_exclusive=True)


class RepeatedFiles(FileWrites):
    """`FileWrites` for a kernel that sends calls again.

    Attributes:
        interrupted: the calls.
        names: what has which name in S3.
    """

    interrupted: InterruptedCalls
    names: Names

    async def recover(self) -> None:
        """Take over what dead daemons had acknowledged, and say what is lost with the last one.

        Raises:
            SpoolFailed.
        """
        await self._drafts.recover()
        for draft in self._drafts.below(""):
            self._written.begin(draft)
        for inode in [each for each in self._tree.inodes.below("") if each.is_lost]:
            log.error("what programs wrote to %r is lost: the daemon died before it was saved", inode.key)
            self._drafts.losses.add(inode.key)

    async def make(self, parent_ino: int, name: bytes, made: Posix, thread_id: int) -> FileAttrs:
        """An empty file that S3 has when this returns; the kernel holds one more reference.

        Raises:
            AlreadyExists: the name is taken.  And as `create` and `release`.
        """
        is_again = self.interrupted.take("mknod", parent_ino, name)
        try:
            return await self._make(parent_ino, name, made, thread_id)
        except AlreadyExists:
            path = self._tree.path_of(parent_ino, name)
            found = (await self.names.fresh(path)).found if is_again else None
            if found is None or found.size:
                raise
            return self.names.made(path, found)

    async def _make(self, parent_ino: int, name: bytes, made: Posix, thread_id: int) -> FileAttrs:
        handle, attrs = await self.create(parent_ino, name, _NEW, made, thread_id)
        is_made = False
        try:
            await self.release(handle)
            is_made = True
        finally:
            if not is_made:
                self._tree.inodes.forget(attrs.ino, 1)
        return attrs
