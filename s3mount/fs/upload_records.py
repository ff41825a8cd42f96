"""Multipart uploads that daemons of this host have under way, beside the spool, so that those of dead ones are found.

    DIR/NAME.uploads        the record of one daemon (core.upload_record)
    DIR/NAME.new-uploads    one being made

The daemon holds a flock(2) on its record while it lives, from before the record has its name: who can lock one knows
that its daemon is dead.  A record is made with the first upload, made anew when it is long, and removed when nothing
is under way in it.

A disk that fails does not stop a write: what is not recorded is left to the bucket's lifecycle rule, and a warning says
so.  The next change makes a new record with everything that is under way.

INVARIANT: what was given up is under way.
"""

import contextlib
import fcntl
import logging
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import trio

from s3mount.core import upload_record
from s3mount.core.upload_record import RecordedUpload, under_way
from s3mount.errors import SpoolFailed, SpoolFull
from s3mount.fs.spool import Spool
from s3mount.store.writing import Upload
from s3mount.units import MIB

log = logging.getLogger(__name__)

#: Bytes of a record after which it is made anew: some thousand uploads.
_LONG = 1 * MIB


class LeftUpload(NamedTuple):
    """An upload that nobody works on.

    Attributes:
        record: of the daemon that died; None for one of this daemon's own.
    """

    upload: RecordedUpload
    record: Path | None


@dataclass(frozen=True)
class RecordStatistics:
    """Uploads of this daemon under way, and of those the ones that could not be aborted."""

    under_way: int
    given_up: int


class UploadRecords:
    """The record of this daemon, and those of dead ones (`store.recording_writer.UploadLog`).

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, spool: Spool, clock: Callable[[], float]) -> None:
        self._spool = spool
        self._clock = clock
        self._uploads: dict[str, RecordedUpload] = {}
        self._given_up: set[str] = set()
        self._fd = -1
        self._path = spool.directory
        self._size = 0
        self._is_failing = False
        self._lock = trio.Lock()

    # -- this daemon's --------------------------------------------------------------------------

    async def began(self, upload: Upload) -> None:
        """See `UploadLog.began`; what is recorded survives kill -9 and the loss of power."""
        recorded = RecordedUpload(upload.upload_id, upload.key, int(self._clock()))
        self._uploads[upload.upload_id] = recorded
        await self._append(_write_through, upload_record.began(recorded))

    def gave_up(self, upload: Upload) -> None:
        """See `UploadLog.gave_up`."""
        if upload.upload_id in self._uploads:
            self._given_up.add(upload.upload_id)

    async def ended(self, upload: Upload) -> None:
        """See `UploadLog.ended`."""
        if self._uploads.pop(upload.upload_id, None) is not None:
            self._given_up.discard(upload.upload_id)
            await self._append(_write, upload_record.ended(upload.upload_id))

    async def _append(self, write: Callable[[int, bytes], None], line: bytes) -> None:
        with trio.CancelScope(shield=True):
            async with self._lock:
                try:
                    if self._fd < 0 or self._is_failing or self._size > _LONG:
                        await self._spool.call(self._renew, b"".join(map(upload_record.began, self._uploads.values())))
                    else:
                        await self._spool.call(write, self._fd, line)
                        self._size += len(line)
                except (SpoolFull, SpoolFailed) as error:
                    if not self._is_failing:
                        log.warning("what this daemon uploads is not recorded, and stays in S3 if it dies: %s", error)
                    self._is_failing = True
                    return
                self._is_failing = False

    def _renew(self, lines: bytes) -> None:
        """Make a record of these lines; the one before goes after that, so that none is lost in between."""
        directory, name = self._spool.directory, secrets.token_hex(8)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        new, path = directory / f"{name}.new-uploads", directory / f"{name}.uploads"
        fd = os.open(new, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _write_through(fd, lines)
            new.rename(path)
            self._spool.sync_directory()
        except OSError:
            os.close(fd)
            for each in (new, path):
                each.unlink(missing_ok=True)
            raise
        self._drop()
        self._fd, self._path, self._size = fd, path, len(lines)

    def _drop(self) -> None:
        if self._fd >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1

    async def close(self) -> None:
        """Let go of the record; it stays while something in it is under way."""
        async with self._lock:
            if self._uploads and self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
            with contextlib.suppress(SpoolFailed, SpoolFull):  # a record of nothing is removed by the next daemon
                await self._spool.call(self._drop)

    # -- those of dead ones ---------------------------------------------------------------------

    async def left(self) -> list[LeftUpload]:
        """Uploads that nobody works on, oldest first: of daemons that are dead, and what this one gave up.

        Raises:
            SpoolFailed.
        """
        found = {each.upload.upload_id: each for each in await self._spool.call(self._left)}
        found |= {each: LeftUpload(self._uploads[each], None) for each in self._given_up}
        return sorted(found.values(), key=lambda each: each.upload.began_s)

    def _left(self) -> list[LeftUpload]:
        found: list[LeftUpload] = []
        for path in self._spool.directory.glob("*.uploads"):
            with contextlib.suppress(FileNotFoundError, BlockingIOError), _of_dead(path, os.O_RDONLY) as fd:
                uploads = under_way(_content(fd))
                if not uploads:
                    path.unlink(missing_ok=True)
                found += [LeftUpload(each, path) for each in uploads]
        return found

    async def forget(self, left: LeftUpload) -> None:
        """S3 does not have it any more.

        Raises:
            SpoolFull, SpoolFailed.
        """
        if left.record is not None:
            await self._spool.call(self._forget, left.record, left.upload.upload_id)

    def _forget(self, path: Path, upload_id: str) -> None:
        with contextlib.suppress(FileNotFoundError, BlockingIOError), _of_dead(path, os.O_RDWR | os.O_APPEND) as fd:
            _write(fd, upload_record.ended(upload_id))
            if not under_way(_content(fd)):
                path.unlink(missing_ok=True)

    def statistics(self) -> RecordStatistics:
        """A snapshot of the gauges."""
        return RecordStatistics(len(self._uploads), len(self._given_up))

    def check_invariants(self) -> None:
        """Raises ValueError when an invariant of the module does not hold."""
        if not self._given_up <= self._uploads.keys():
            raise ValueError("an upload was given up that is not under way")


@contextlib.contextmanager
def _of_dead(path: Path, flags: int) -> Iterator[int]:
    """A record whose daemon is dead.  Others may look at it, too: an upload may be aborted twice.

    Raises:
        FileNotFoundError: it is not needed any more.
        BlockingIOError: its daemon lives.
    """
    fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield fd
    finally:
        os.close(fd)


def _write(fd: int, lines: bytes) -> None:
    while lines:
        lines = lines[os.write(fd, lines) :]


def _write_through(fd: int, lines: bytes) -> None:
    _write(fd, lines)
    os.fdatasync(fd)


def _content(fd: int) -> bytes:
    return os.pread(fd, os.fstat(fd).st_size, 0)
