"""One side of a comparison: a directory on which the calls of programs are made, by the names of the calls.

The same calls on a mount and on a local directory have to give the same.  Where the mount differs by what the
documents say, the local side is the model of the mount (`Local`), so that nothing needs to be left out.
"""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_AT_FDCWD = -100
_NOREPLACE = 1
_BLOCK = 4096
#: Times that programs set are from these years, so that they are told from those of now.
SET_TIMES_BEFORE = 1_200_000_000

#: What a call gave: ("value", …) or ("error", the errno's name).
Outcome = tuple[str, Any]


class Side:
    """A directory, the descriptors that a program has open in it, and its child processes.

    Attributes:
        handles: descriptors in the order they were opened; the same place on both sides is the same file.
        children: processes that hold a descriptor; they write what they are given at their end.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.handles: list[int] = []
        self.children: list[subprocess.Popen[bytes]] = []

    def call(self, name: str, *arguments: Any) -> Outcome:
        try:
            return "value", getattr(self, name)(*arguments)
        except OSError as error:
            return "error", errno.errorcode.get(error.errno or 0, str(error))

    def at(self, path: str) -> str:
        return f"{self.root}/{path}"

    def handle(self, number: int) -> int:
        return self.handles[number % len(self.handles)]

    # -- descriptors ----------------------------------------------------------------------------

    def open(self, path: str, flags: int) -> None:
        self.handles.append(os.open(self.at(path), flags | os.O_CLOEXEC, 0o666))

    def dup(self, number: int) -> None:
        self.handles.append(os.dup(self.handle(number)))

    def close(self, number: int) -> None:
        os.close(self.handles.pop(number % len(self.handles)))

    def read(self, number: int, length: int) -> bytes:
        return os.read(self.handle(number), length)

    def pread(self, number: int, length: int, offset: int) -> bytes:
        return os.pread(self.handle(number), length, offset)

    def write(self, number: int, data: bytes) -> int:
        return os.write(self.handle(number), data)

    def pwrite(self, number: int, data: bytes, offset: int) -> int:
        return os.pwrite(self.handle(number), data, offset)

    def seek(self, number: int, offset: int, whence: int) -> int:
        descriptor = self.handle(number)
        if os.path.isdir(descriptor):
            return 0  # each file system counts its entries in its own way
        return os.lseek(descriptor, offset, whence)

    def ftruncate(self, number: int, size: int) -> None:
        os.ftruncate(self.handle(number), size)

    def allocate(self, number: int, size: int) -> None:
        os.posix_fallocate(self.handle(number), 0, size)

    def fsync(self, number: int) -> None:
        os.fsync(self.handle(number))

    def fdatasync(self, number: int) -> None:
        os.fdatasync(self.handle(number))

    def fstat(self, number: int) -> object:
        found = os.fstat(self.handle(number))
        return *_summary(found), found.st_nlink == 0

    def list_handle(self, number: int) -> list[str]:
        return sorted(os.listdir(self.handle(number)))

    def send_file(self, out: int, into: int, length: int) -> int:
        return os.sendfile(self.handle(out), self.handle(into), None, length)

    def copy_range(self, into: int, out: int, length: int) -> int:
        return os.copy_file_range(self.handle(into), self.handle(out), length)

    def is_same(self, number: int, path: str) -> bool:
        return os.path.samestat(os.fstat(self.handle(number)), os.lstat(self.at(path)))

    # -- memory ---------------------------------------------------------------------------------

    def map_read(self, number: int) -> bytes:
        descriptor = self.handle(number)
        if _size(descriptor) == 0:
            return b""
        with mmap.mmap(descriptor, 0, mmap.MAP_SHARED, mmap.PROT_READ) as mapped:
            return mapped[:]

    def map_write(self, number: int, data: bytes, offset: int, is_synced: bool) -> int:  # noqa: FBT001  a drawn value
        descriptor = self.handle(number)
        data = data[: max(_size(descriptor) - offset, 0)]
        if data:
            with mmap.mmap(descriptor, 0, mmap.MAP_SHARED) as mapped:
                mapped[offset : offset + len(data)] = data
                if is_synced:
                    mapped.flush()
        return len(data)

    def map_and_close(self, number: int, data: bytes, offset: int) -> int:
        """Written through a mapping that outlives its descriptor."""
        descriptor = self.handle(number)
        size = _size(descriptor)
        data = data[: max(size - offset, 0)]
        if not data:
            return 0
        mapped = _LIBC.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, descriptor, 0)
        if mapped == ctypes.c_void_p(-1).value:
            raise OSError(ctypes.get_errno(), "mmap")
        self.close(number)
        ctypes.memmove(mapped + offset, data, len(data))
        _LIBC.munmap(mapped, size)
        return len(data)

    # -- processes ------------------------------------------------------------------------------

    def child_writes(self, number: int, data: bytes) -> int:
        """A child that inherits the descriptor writes through it and ends."""
        done = subprocess.run(["cat"], input=data, stdout=self.handle(number), stderr=subprocess.DEVNULL, check=False)
        return done.returncode

    def child_starts(self, number: int) -> None:
        output = self.handle(number)
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=output, stderr=subprocess.DEVNULL)
        self.children.append(child)

    def child_ends(self, number: int, data: bytes) -> int:
        child = self.children.pop(number % len(self.children))
        with contextlib.suppress(BrokenPipeError):
            child.communicate(data)
        return child.wait()

    # -- names ----------------------------------------------------------------------------------

    def stat(self, path: str) -> object:
        return _summary(os.stat(self.at(path)))

    def lstat(self, path: str) -> object:
        return _summary(os.lstat(self.at(path)))

    def list(self, path: str) -> object:
        with os.scandir(self.at(path)) as entries:
            return sorted((each.name, each.is_dir(follow_symlinks=False), each.is_symlink()) for each in entries)

    def load(self, path: str) -> bytes:
        return Path(self.at(path)).read_bytes()

    def save(self, path: str, data: bytes) -> None:
        Path(self.at(path)).write_bytes(data)

    def append(self, path: str, data: bytes) -> None:
        with Path(self.at(path)).open("ab") as file:
            file.write(data)

    def truncate(self, path: str, size: int) -> None:
        os.truncate(self.at(path), size)

    def mkdir(self, path: str) -> None:
        os.mkdir(self.at(path))

    def rmdir(self, path: str) -> None:
        os.rmdir(self.at(path))

    def unlink(self, path: str) -> None:
        os.unlink(self.at(path))

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(self.at(path))

    def rename(self, old: str, new: str) -> None:
        os.rename(self.at(old), self.at(new))

    def rename_new(self, old: str, new: str) -> None:
        names = [os.fsencode(self.at(each)) for each in (old, new)]
        if _LIBC.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _NOREPLACE):
            raise OSError(ctypes.get_errno(), "renameat2")

    def symlink(self, target: str, path: str) -> None:
        os.symlink(target, self.at(path))

    def readlink(self, path: str) -> str:
        return os.readlink(self.at(path))

    def link(self, old: str, new: str) -> None:
        os.link(self.at(old), self.at(new), follow_symlinks=False)

    def chmod(self, path: str, mode: int) -> None:
        os.chmod(self.at(path), mode)

    def utime(self, path: str, seconds: int) -> None:
        os.utime(self.at(path), (seconds, seconds))

    def futime(self, number: int, seconds: int) -> None:
        os.utime(self.handle(number), (seconds, seconds))


def _size(descriptor: int) -> int:
    """Of what can be mapped."""
    found = os.fstat(descriptor)
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def _summary(found: os.stat_result) -> tuple[str, int, int, int]:
    """What of a stat has to be the same: type, mode, a file's size, and its time if a program set it."""
    is_file = stat.S_ISREG(found.st_mode)
    seconds = int(found.st_mtime)
    return (
        stat.filemode(found.st_mode)[0],
        0 if stat.S_ISLNK(found.st_mode) else stat.S_IMODE(found.st_mode),
        0 if stat.S_ISDIR(found.st_mode) else found.st_size,
        seconds if is_file and seconds < SET_TIMES_BEFORE else -1,
    )


class Local(Side):
    """A local directory that differs from others as the mount does, by the documents."""

    def open(self, path: str, flags: int) -> None:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            os.close(os.open(self.at(path), os.O_DIRECTORY))
            raise OSError(errno.EOPNOTSUPP, "a file without a name")
        super().open(path, flags)

    def allocate(self, number: int, size: int) -> None:
        """The C library's own way, for file systems without fallocate: a byte in each block where there is none."""
        descriptor = self.handle(number)
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        if not flags & (os.O_WRONLY | os.O_RDWR) or flags & os.O_APPEND:
            raise OSError(errno.EBADF, "fallocate")
        end = os.fstat(descriptor).st_size
        for offset in range((size - 1) % _BLOCK, size, _BLOCK):
            if offset >= end or os.pread(descriptor, 1, offset) == b"\0":
                os.pwrite(descriptor, b"\0", offset)

    def link(self, old: str, new: str) -> None:
        """A link is a copy of what the file is now: an object has one name."""
        source = os.lstat(self.at(old))
        os.lstat(os.path.dirname(self.at(new)) + "/.")
        if os.path.lexists(self.at(new)):
            raise OSError(errno.EEXIST, "link")
        if stat.S_ISDIR(source.st_mode):
            raise OSError(errno.EPERM, "link")
        shutil.copy2(self.at(old), self.at(new), follow_symlinks=False)
