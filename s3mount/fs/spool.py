"""Local files for what cannot be streamed; every call of the disk is made in a thread.

    DIR/NAME.data   the bytes, at their offsets in the file; sparse
    DIR/NAME.json   the journal: there is one while bytes are acknowledged that S3 does not have
    DIR/NAME.new    a journal being written

Who uses a file holds a flock(2) on it, so several mounts share a directory, and what a dead one left is seen at once.
`recover` takes over what has a journal, of the prefix, since credentials and options of another may differ; and removes
what has none: nobody was told that it is safe.

A share of the disk stays free, as the cache leaves it.  A cancelled call goes on until the disk answers: what
comes after it must not overtake it.

Errors: `SpoolFull` and `SpoolFailed`, with the directory and what the system said.
"""

import contextlib
import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar, TypeVarTuple

import trio

from s3mount.core.ranges import ByteRange
from s3mount.core.spool_record import SpoolRecord, decode
from s3mount.errors import SpoolFailed, SpoolFull
from s3mount.fs.threads import Threads
from s3mount.store.writing import Body, size_of

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

#: IOV_MAX of Linux: pieces in one system call.
_MAX_PIECES = 1024
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}


class Spool:
    """One directory of spooled files.

    Args:
        min_free_share: of the file system, that spooled files leave free.
        prefix: of the mount; objects with other keys are not recovered.
    """

    def __init__(self, directory: Path, threads: Threads, min_free_share: float = 0.05, prefix: str = "") -> None:
        self.directory = directory
        self._prefix = prefix
        self._threads = threads
        self._min_free_share = min_free_share
        self.n_files = 0

    async def create(self) -> "SpoolFile":
        """An empty file, with no journal."""
        return SpoolFile(self, *await self.call(self._create))

    def _create(self) -> tuple[str, int]:
        while True:  # until no mount that recovers took it for a dead one's, before it was locked
            with contextlib.suppress(BlockingIOError, FileNotFoundError):
                return (name := secrets.token_hex(8)), self._open(name, os.O_CREAT | os.O_EXCL)

    def _open(self, name: str, flags: int = 0) -> int:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._check_directory()
        fd = os.open(self.path_of(name), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(fd).st_nlink == 0:
                raise FileNotFoundError(errno.ENOENT, "another mount removed it")
        except OSError:
            os.close(fd)
            raise
        return fd

    def _check_directory(self) -> None:
        """Raises OSError where others could put something, or links that lead away, in the place of files."""
        found = self.directory.stat()
        if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise OSError(errno.EPERM, f"it must belong to uid {os.geteuid()}, and nobody else may write to it")

    async def recover(self) -> list[tuple["SpoolFile", SpoolRecord]]:
        """What dead daemons left to be uploaded, oldest first; it is in use from now on."""
        return [(SpoolFile(self, name, fd), record) for name, fd, record in await self.call(self._recover)]

    def _recover(self) -> list[tuple[str, int, SpoolRecord]]:
        found = []
        for path in sorted(self.directory.glob("*.data"), key=_age):
            with contextlib.suppress(FileNotFoundError, BlockingIOError):
                record = self._record(path.stem)
                if record is not None and not record.key.startswith(self._prefix):
                    continue  # nor is it locked for a moment: its own mount may be looking for it
                fd = self._open(path.stem)
                record = self._record(path.stem)
                if record is not None:
                    found.append((path.stem, fd, record))
                    continue
                if not self.journal_of(path.stem).exists():  # one that cannot be read is for a person to look at
                    self.remove(path.stem)
                os.close(fd)
        return found

    def _record(self, name: str) -> SpoolRecord | None:
        try:
            return decode(self.journal_of(name).read_bytes())
        except FileNotFoundError:
            return None

    def path_of(self, name: str) -> Path:
        """Of the bytes of a file."""
        return self.directory / f"{name}.data"

    def journal_of(self, name: str) -> Path:
        """Of its journal."""
        return self.directory / f"{name}.json"

    def remove(self, name: str) -> None:
        """Blocks; the journal first, so that it never stands for bytes that are gone."""
        for path in (self.journal_of(name), self.directory / f"{name}.new", self.path_of(name)):
            path.unlink(missing_ok=True)

    def sync_directory(self) -> None:
        """Blocks until names that were made and changed are on disk."""
        fd = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def check_room(self, fd: int, n_bytes: int) -> None:
        """Raises OSError when that many bytes would take what stays free."""
        found = os.fstatvfs(fd)
        if found.f_bavail * found.f_frsize - n_bytes < found.f_blocks * found.f_frsize * self._min_free_share:
            raise OSError(errno.ENOSPC, f"{self._min_free_share:.0%} of the disk are left free", str(self.directory))

    async def call(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Call in a thread, to its end.

        Raises:
            SpoolFull, SpoolFailed: in place of OSError.
        """
        try:
            with trio.CancelScope(shield=True):
                result = await self._threads.run(function, *args)
        except OSError as error:
            kind = SpoolFull if error.errno in _NO_ROOM else SpoolFailed
            raise kind(f"--spool-dir {self.directory}: {error.strerror}") from error
        return result


class SpoolFile:
    """One file in use; `discard` or `abandon` it."""

    def __init__(self, spool: Spool, name: str, fd: int) -> None:
        self._spool = spool
        self.name = name
        self._fd = fd
        spool.n_files += 1

    async def write(self, offset: int, body: Body) -> None:
        """Bytes at an offset."""
        await self._spool.call(self._write, offset, body)

    def _write(self, offset: int, body: Body) -> None:
        self._spool.check_room(self._fd, size_of(body))
        for pieces in _batches(body):
            left = memoryview(b"")
            n_bytes = size_of(pieces)
            done = os.pwritev(self._fd, pieces, offset)
            if done < n_bytes:  # a disk that fills up, or more than 2 GiB at once
                left = memoryview(b"".join(pieces))[done:]
            while left:
                left = left[os.pwrite(self._fd, left, offset + n_bytes - len(left)) :]
            offset += n_bytes

    async def read(self, span: ByteRange) -> bytes:
        """Bytes of a range that was written.

        Raises:
            SpoolFailed: it is shorter than it was.
        """
        content = await self._spool.call(os.pread, self._fd, span.length, span.start)
        if len(content) != span.length:
            raise SpoolFailed(f"{self.path} lost its end: somebody cut it off")
        return content

    async def truncate(self, size: int) -> None:
        """Let go of what lies beyond a size."""
        await self._spool.call(os.ftruncate, self._fd, size)

    async def keep(self, record: SpoolRecord) -> None:
        """Acknowledge a state: when this returns it survives kill -9 and the loss of power."""
        await self._spool.call(self._keep, record)

    def _keep(self, record: SpoolRecord) -> None:
        os.fdatasync(self._fd)
        new = self._spool.directory / f"{self.name}.new"
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as journal:
            journal.write(record.encode())
            journal.flush()
            os.fsync(journal.fileno())
        new.rename(self._spool.journal_of(self.name))
        self._spool.sync_directory()

    async def forget(self) -> None:
        """S3 has what was acknowledged."""
        await self._spool.call(self._forget)

    def _forget(self) -> None:
        self._spool.journal_of(self.name).unlink(missing_ok=True)

    async def discard(self) -> None:
        """Nobody needs it any more."""
        try:
            await self._spool.call(self._spool.remove, self.name)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of it, and leave on disk what is there: `recover` finds it, here or in another daemon."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._spool.n_files -= 1

    @property
    def path(self) -> Path:
        """For messages."""
        return self._spool.path_of(self.name)


def _batches(body: Body) -> Iterator[Body]:
    for first in range(0, len(body), _MAX_PIECES):
        yield body[first : first + _MAX_PIECES]


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
