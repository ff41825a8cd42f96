"""A bare pyfuse3 file system: N files in the directory `small`, every answer a constant.

What an open, a read and a release cost below our code: the kernel, libfuse, pyfuse3 and trio.  With a local file it
has one file, whose reads are preads of that one in trio's threads: the least that a disk costs.

usage: python -m benchmarks.bare MOUNT_POINT N SIZE
       python -m benchmarks.bare MOUNT_POINT FILE
"""

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyfuse3
import trio

from benchmarks.contenders import Contender
from tests.support.mounts import clean_up, is_mounted
from tests.support.processes import running, wait_until

_FOREVER_S = 1e6
DIRECTORY = "small"
_TOP = pyfuse3.ROOT_INODE + 1
_FIRST = _TOP + 1
FILE = f"{DIRECTORY}/{0:08d}"


class Constants(pyfuse3.Operations):
    """Files `00000000` to N - 1; keeps the page cache."""

    supports_dot_lookup = False
    enable_writeback_cache = False

    def __init__(self, n: int, size: int) -> None:
        super().__init__()
        self._n = n
        self._size = size
        self._content = b""
        self._entry = pyfuse3.EntryAttributes()
        self._opened = pyfuse3.FileInfo(fh=1, direct_io=False, keep_cache=True)

    def _attributes(self, inode: int) -> pyfuse3.EntryAttributes:
        entry = self._entry
        entry.st_ino = inode
        entry.entry_timeout = entry.attr_timeout = _FOREVER_S
        entry.st_mode = (stat.S_IFREG if inode >= _FIRST else stat.S_IFDIR) | 0o755
        entry.st_size = self._size
        return entry

    async def getattr(self, inode: int, ctx: Any = None) -> pyfuse3.EntryAttributes:
        return self._attributes(inode)

    async def lookup(self, parent_inode: int, name: bytes, ctx: Any = None) -> pyfuse3.EntryAttributes:
        if parent_inode == pyfuse3.ROOT_INODE:
            if name == DIRECTORY.encode():
                return self._attributes(_TOP)
        elif name.isdigit() and int(name) < self._n:
            return self._attributes(_FIRST + int(name))
        raise pyfuse3.FUSEError(errno.ENOENT)

    async def opendir(self, inode: int, ctx: Any) -> int:
        return inode

    async def readdir(self, fh: int, start_id: int, token: Any) -> None:
        for index in range(start_id, self._n if fh == _TOP else 0):
            if not pyfuse3.readdir_reply(token, b"%08d" % index, self._attributes(_FIRST + index), index + 1):
                return

    async def open(self, inode: int, flags: int, ctx: Any) -> pyfuse3.FileInfo:
        return self._opened

    async def read(self, fh: int, off: int, size: int) -> memoryview:
        if not self._content:
            self._content = bytes(self._size)
        return memoryview(self._content)[off : off + size]

    async def release(self, fh: int) -> None:
        return None


class Pages(Constants):
    """One file, `FILE`, with the content of a local one."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_RANDOM)
        super().__init__(1, os.fstat(self._fd).st_size)

    async def read(self, fh: int, off: int, size: int) -> bytes:  # type: ignore[override]
        return await trio.to_thread.run_sync(os.pread, self._fd, size, off)


def bare(directory: Path, n: int, size: int) -> contextlib.AbstractContextManager[Contender]:
    """The file system mounted, and its process."""
    return _mounted(directory, str(n), str(size))


def bare_pages(directory: Path, file: Path) -> contextlib.AbstractContextManager[Contender]:
    """The one of one file, `FILE`, with the content of a local one."""
    return _mounted(directory, str(file))


@contextlib.contextmanager
def _mounted(directory: Path, *arguments: str) -> Iterator[Contender]:
    path = directory / "mnt"
    path.mkdir(parents=True)
    command = [sys.executable, "-m", "benchmarks.bare", str(path), *arguments]
    with running(command, directory / "bare.log") as process:
        try:
            wait_until(lambda: is_mounted(path), 30, "the bare file system mounting")
            yield Contender("bare pyfuse3", path, process.pid)
        finally:
            clean_up(path, process)


def main(mount_point: str, *arguments: str) -> None:
    shown = Pages(*arguments) if len(arguments) == 1 else Constants(*map(int, arguments))
    pyfuse3.init(shown, mount_point, {"ro", "fsname=bare"})
    try:
        trio.run(pyfuse3.main, 32, 1000)
    finally:
        pyfuse3.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
