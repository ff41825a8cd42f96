"""The handlers of a mount that may be written to, beside those of `fuse.operations`.

A mount that only reads has none of them: its kernel refuses to write by itself, and asks for no FLUSH, which costs
a third of the CPU of warm opens (measured).

A call that brings or makes durable what programs wrote has no deadline of its own: how long it takes depends on how
much that is.  Each request to S3 has one.
"""

import errno
import os
import stat
import zlib

import pyfuse3
from pyfuse3 import FileHandleT, FileNameT, FlagT, InodeT, ModeT, RequestContext

from s3mount.fs.drafts import Opening
from s3mount.fs.filesystem import S3FileSystem
from s3mount.fs.namespace import Namespace
from s3mount.fs.repeated_files import RepeatedFiles
from s3mount.fuse.boundary import Boundary
from s3mount.fuse.convert import made, to_entry, to_shown
from s3mount.fuse.operations import Operations

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_TRUNC | os.O_APPEND


class WritingOperations(Operations):
    """What the kernel asks of a mount that may be written to."""

    def __init__(self, filesystem: S3FileSystem, boundary: Boundary, files: RepeatedFiles, names: Namespace) -> None:
        super().__init__(filesystem, boundary)
        self._files = files
        self._names = names

    # -- files ----------------------------------------------------------------------------------

    async def open(self, inode: InodeT, flags: FlagT, ctx: RequestContext) -> pyfuse3.FileInfo:
        with self._boundary.guard("open", inode, pid=ctx.pid):
            if not flags & _WRITING:
                return self._opened(await self._open_to_read(inode, flags), inode, ctx)
            with self._boundary.deadline():
                handle = await self._files.open(inode, _opening(flags), ctx.pid)
            return self._opened(handle, inode, ctx, is_read=False)

    async def _open_to_read(self, inode: InodeT, flags: FlagT) -> int:
        if not self._files.is_settled(inode):
            with self._boundary.waiting():
                await self._files.settle(inode)
        return await super()._open_to_read(inode, flags)

    async def create(
        self, parent_inode: InodeT, name: FileNameT, mode: ModeT, flags: FlagT, ctx: RequestContext
    ) -> tuple[pyfuse3.FileInfo, pyfuse3.EntryAttributes]:
        with self._boundary.guard("create", parent_inode, zlib.crc32(name), pid=ctx.pid), self._boundary.deadline():
            handle, attrs = await self._files.create(parent_inode, name, _opening(flags), made(mode, ctx), ctx.pid)
            return self._opened(handle, InodeT(attrs.ino), ctx, is_read=False), to_entry(attrs)

    async def mknod(
        self, parent_inode: InodeT, name: FileNameT, mode: ModeT, rdev: int, ctx: RequestContext
    ) -> pyfuse3.EntryAttributes:
        with self._boundary.guard("mknod", parent_inode, zlib.crc32(name), pid=ctx.pid), self._boundary.waiting():
            if not stat.S_ISREG(mode):
                raise pyfuse3.FUSEError(errno.EPERM)
            return to_entry(await self._files.make(parent_inode, name, made(mode, ctx), ctx.pid))

    async def write(self, fh: FileHandleT, off: int, buf: bytes) -> int:
        with self._boundary.guard("write", fh, 0, off):
            if not self._files.append_nowait(fh, off, buf):
                with self._boundary.waiting():
                    await self._files.write(fh, off, buf)
            return self._callers.taken(fh, len(buf))

    async def flush(self, fh: FileHandleT) -> None:
        with self._boundary.guard("flush", fh):
            if not self._files.is_flushed(fh):
                with self._boundary.waiting():
                    await self._files.flush(fh)

    async def fsync(self, fh: FileHandleT, datasync: bool) -> None:
        with self._boundary.guard("fsync", fh), self._boundary.waiting():
            await self._files.fsync(fh)

    async def release(self, fh: FileHandleT) -> None:
        with self._boundary.guard("release", fh):
            if not self._files.release_nowait(self._callers.closed(fh)):
                with self._boundary.waiting():
                    await self._files.release(fh)

    async def setattr(
        self,
        inode: InodeT,
        attr: pyfuse3.EntryAttributes,
        fields: pyfuse3.SetattrFields,
        fh: FileHandleT | None,
        ctx: RequestContext,
    ) -> pyfuse3.EntryAttributes:
        with self._boundary.guard("setattr", inode, pid=ctx.pid), self._boundary.waiting():
            if fields.update_size:
                await self._files.truncate(inode, attr.st_size)
            return to_entry(self._files.show(inode, to_shown(attr, fields)))

    # -- names ----------------------------------------------------------------------------------

    async def mkdir(
        self, parent_inode: InodeT, name: FileNameT, mode: ModeT, ctx: RequestContext
    ) -> pyfuse3.EntryAttributes:
        with self._boundary.guard("mkdir", parent_inode, zlib.crc32(name), pid=ctx.pid), self._boundary.waiting():
            return to_entry(await self._names.mkdir(parent_inode, name, stat.S_IMODE(mode)))

    async def rmdir(self, parent_inode: InodeT, name: FileNameT, ctx: RequestContext) -> None:
        with self._boundary.guard("rmdir", parent_inode, zlib.crc32(name), pid=ctx.pid), self._boundary.waiting():
            await self._names.rmdir(parent_inode, name)

    async def unlink(self, parent_inode: InodeT, name: FileNameT, ctx: RequestContext) -> None:
        with self._boundary.guard("unlink", parent_inode, zlib.crc32(name), pid=ctx.pid), self._boundary.waiting():
            await self._names.unlink(parent_inode, name)

    async def rename(
        self,
        parent_inode_old: InodeT,
        name_old: FileNameT,
        parent_inode_new: InodeT,
        name_new: FileNameT,
        flags: FlagT,
        ctx: RequestContext,
    ) -> None:
        with (
            self._boundary.guard("rename", parent_inode_old, zlib.crc32(name_old), pid=ctx.pid),
            self._boundary.waiting(),
        ):
            if flags & ~pyfuse3.RENAME_NOREPLACE:
                raise pyfuse3.FUSEError(errno.EINVAL)
            may_replace = not flags & pyfuse3.RENAME_NOREPLACE
            await self._names.rename(parent_inode_old, name_old, parent_inode_new, name_new, may_replace=may_replace)

    async def link(
        self, inode: InodeT, new_parent_inode: InodeT, new_name: FileNameT, ctx: RequestContext
    ) -> pyfuse3.EntryAttributes:
        with (
            self._boundary.guard("link", new_parent_inode, zlib.crc32(new_name), pid=ctx.pid),
            self._boundary.waiting(),
        ):
            return to_entry(await self._names.link(inode, new_parent_inode, new_name))

    async def symlink(
        self, parent_inode: InodeT, name: FileNameT, target: FileNameT, ctx: RequestContext
    ) -> pyfuse3.EntryAttributes:
        with self._boundary.guard("symlink", parent_inode, zlib.crc32(name), pid=ctx.pid), self._boundary.waiting():
            return to_entry(await self._names.symlink(parent_inode, name, target))

    async def readlink(self, inode: InodeT, ctx: RequestContext) -> FileNameT:
        with self._boundary.guard("readlink", inode, pid=ctx.pid), self._boundary.deadline():
            return FileNameT(await self._names.readlink(inode))

    async def fsyncdir(self, fh: FileHandleT, datasync: bool) -> None:
        with self._boundary.guard("fsyncdir", fh), self._boundary.waiting():
            await self._names.sync()


def _opening(flags: int) -> Opening:
    access = flags & os.O_ACCMODE
    return Opening(
        is_random=access == os.O_RDWR,
        is_append=bool(flags & os.O_APPEND),
        is_truncating=bool(flags & os.O_TRUNC),
        is_exclusive=bool(flags & os.O_EXCL),
    )
