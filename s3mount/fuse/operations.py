"""pyfuse3's handlers: unpack, await one call, convert.  They never decide.

Not implemented on purpose, so that the kernel gets ENOSYS once and never asks again: extended
attributes, and here `flush` (it costs a third of the CPU of warm opens, and a mount that only reads needs none).
`direct_io` is never set: it breaks shared mappings.  `keep_cache` always is: a new version of an
object is a new inode, so pages of an old one cannot be taken for it.
"""

import contextlib
import os
import zlib
from collections.abc import Callable, Sequence

import pyfuse3
from pyfuse3 import FileHandleT, FileNameT, FlagT, InodeT

from s3mount.core.attrs import FileAttrs, permits
from s3mount.fs.filesystem import S3FileSystem
from s3mount.fuse.boundary import Boundary
from s3mount.fuse.convert import statfs, to_entry


class Operations(pyfuse3.Operations):
    """What the kernel asks of a mount that only reads, handed to the file system; it refuses to write by itself."""

    enable_writeback_cache = False
    supports_dot_lookup = False

    def __init__(self, filesystem: S3FileSystem, boundary: Boundary) -> None:
        super().__init__()
        self._fs = filesystem
        self._boundary = boundary
        self._callers = boundary.callers
        #: Called once, when libfuse has its INIT message and before anything else is read from the kernel.
        self.on_init: Callable[[], None] = lambda: None

    def init(self) -> None:
        self.on_init()

    async def lookup(
        self, parent_inode: InodeT, name: FileNameT, ctx: pyfuse3.RequestContext | None = None
    ) -> pyfuse3.EntryAttributes:
        with self._boundary.guard("lookup", parent_inode, zlib.crc32(name), pid=_pid(ctx)):
            attrs = self._fs.lookup_nowait(parent_inode, name)
            if attrs is None:
                with self._boundary.deadline():
                    attrs = await self._fs.lookup(parent_inode, name)
            return to_entry(attrs)

    async def forget(self, inode_list: Sequence[tuple[InodeT, int]]) -> None:
        # pyfuse3 sends no answer to this one, and an error that leaves it ends the process.
        with contextlib.suppress(pyfuse3.FUSEError), self._boundary.guard("forget"):
            self._fs.forget(list(inode_list))

    async def getattr(self, inode: InodeT, ctx: pyfuse3.RequestContext | None = None) -> pyfuse3.EntryAttributes:
        with self._boundary.guard("getattr", inode, pid=_pid(ctx)):
            attrs = self._fs.getattr_nowait(inode)
            if attrs is None:
                with self._boundary.deadline():
                    attrs = await self._fs.getattr(inode)
            return to_entry(attrs)

    async def access(self, inode: InodeT, mode: pyfuse3.ModeT, ctx: pyfuse3.RequestContext) -> bool:
        with self._boundary.guard("access", inode, pid=ctx.pid), self._boundary.deadline():
            return permits(await self._fs.getattr(inode), mode, ctx.uid, ctx.gid)

    async def opendir(self, inode: InodeT, ctx: pyfuse3.RequestContext) -> FileHandleT:
        with self._boundary.guard("opendir", inode, pid=_pid(ctx)):
            handle = self._fs.opendir_nowait(inode)
            if handle is None:
                with self._boundary.deadline():
                    handle = await self._fs.opendir(inode)
            return FileHandleT(self._callers.opened(handle, inode, _pid(ctx), is_file=False))

    async def readdir(self, fh: FileHandleT, start_id: int, token: pyfuse3.ReaddirToken) -> None:
        def emit(name: bytes, attrs: FileAttrs, next_id: int) -> bool:
            return pyfuse3.readdir_reply(token, FileNameT(name), to_entry(attrs), next_id)

        with self._boundary.guard("readdir", fh, 0, start_id):
            if not self._fs.readdir_nowait(fh, start_id, emit):
                with self._boundary.deadline():
                    await self._fs.readdir(fh, start_id, emit)

    async def releasedir(self, fh: FileHandleT) -> None:
        with self._boundary.guard("releasedir", fh):
            self._fs.releasedir(self._callers.closed(fh))

    async def open(self, inode: InodeT, flags: FlagT, ctx: pyfuse3.RequestContext) -> pyfuse3.FileInfo:
        with self._boundary.guard("open", inode, pid=_pid(ctx)):
            return self._opened(await self._open_to_read(inode, flags), inode, ctx)

    async def _open_to_read(self, inode: InodeT, flags: FlagT) -> int:
        handle = self._fs.open_nowait(inode, is_plain=not flags & os.O_DIRECT)
        if handle is None:
            with self._boundary.deadline():
                handle = await self._fs.open(inode, revalidate=bool(flags & os.O_DIRECT))
        return handle

    def _opened(
        self, handle: int, inode: InodeT, ctx: pyfuse3.RequestContext, *, is_read: bool = True
    ) -> pyfuse3.FileInfo:
        fh = FileHandleT(self._callers.opened(handle, inode, _pid(ctx), is_read=is_read))
        return pyfuse3.FileInfo(fh=fh, direct_io=False, keep_cache=True)

    async def read(self, fh: FileHandleT, off: int, size: int) -> bytes:
        with self._boundary.guard("read", fh, 0, off):
            content = self._fs.read_nowait(fh, off, size)
            if content is None:
                with self._boundary.waiting():
                    content = await self._fs.read(fh, off, size, self._boundary.limit)
            return self._callers.delivered(fh, content)  # type: ignore[return-value]  # any buffer will do

    async def release(self, fh: FileHandleT) -> None:
        with self._boundary.guard("release", fh):
            self._fs.release(self._callers.closed(fh))

    async def statfs(self, ctx: pyfuse3.RequestContext) -> pyfuse3.StatvfsData:
        with self._boundary.guard("statfs"):
            return statfs(self._fs.name_max)


def _pid(ctx: pyfuse3.RequestContext | None) -> int:
    """The thread that calls; 0 where there is none."""
    return 0 if ctx is None else ctx.pid
