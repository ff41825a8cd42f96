"""The least a file system on pyfuse3 can do: one directory of files that are all the same constant.

usage: python -m benchmarks.reading.bare MOUNTPOINT DIRECTORY FILES BYTES

Names are 00000.jpg and so on.  No look-up, no state, no clock: what is left is the kernel, libfuse, pyfuse3 and trio.
"""

import errno
import stat
import sys

import pyfuse3
import trio

_TOP = 2
_FIRST = 3
_FOREVER_S = 3600.0


class Constant(pyfuse3.Operations):
    def __init__(self, directory: str, files: int, n_bytes: int) -> None:
        super().__init__()
        self._directory, self._files, self._content = directory.encode(), files, bytes(n_bytes)

    async def getattr(self, inode, ctx=None):  # type: ignore[no-untyped-def]
        return self._attributes(inode)

    async def lookup(self, parent, name, ctx=None):  # type: ignore[no-untyped-def]
        if parent == pyfuse3.ROOT_INODE and name == self._directory:
            return self._attributes(_TOP)
        number, _, extension = name.partition(b".")
        if parent == _TOP and extension == b"jpg" and int(number) < self._files:
            return self._attributes(_FIRST + int(number))
        raise pyfuse3.FUSEError(errno.ENOENT)

    async def opendir(self, inode, ctx):  # type: ignore[no-untyped-def]
        return inode

    async def readdir(self, fh, start_id, token):  # type: ignore[no-untyped-def]
        for index in range(start_id, self._files if fh == _TOP else 0):
            if not pyfuse3.readdir_reply(token, b"%05d.jpg" % index, self._attributes(_FIRST + index), index + 1):
                return

    async def open(self, inode, flags, ctx):  # type: ignore[no-untyped-def]
        return pyfuse3.FileInfo(fh=inode, keep_cache=True)

    async def read(self, fh, offset, size):  # type: ignore[no-untyped-def]
        return self._content[offset : offset + size]

    def _attributes(self, inode: int) -> pyfuse3.EntryAttributes:
        entry = pyfuse3.EntryAttributes()
        is_file = inode >= _FIRST
        entry.st_ino = inode
        entry.st_mode = stat.S_IFREG | 0o644 if is_file else stat.S_IFDIR | 0o755
        entry.st_size = len(self._content) if is_file else 0
        entry.attr_timeout = entry.entry_timeout = _FOREVER_S
        return entry


def main(mount_point: str, directory: str, files: str, n_bytes: str) -> None:
    operations = Constant(directory, int(files), int(n_bytes))
    pyfuse3.init(operations, mount_point, {"fsname=bare", *pyfuse3.default_options})
    try:
        trio.run(pyfuse3.main)
    finally:
        pyfuse3.close(unmount=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
