"""Our exceptions → errno, log level and counter: the one table, and the one catch-all.

pyfuse3 ends the process on any exception but FUSEError, and the mount dies with it (measured).
So every handler runs inside `Boundary.guard`, which lets nothing else out.  A bug becomes EIO
and a traceback in the log; it never becomes a dead mount.

The whole call has a deadline, because pyfuse3 hides interrupts: a killed process stays until
its call is answered.
"""

import errno
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Literal, NamedTuple

import pyfuse3
import trio

from s3mount import errors
from s3mount.fuse.marks import CODES, CallMarks

log = logging.getLogger(__name__)


class Answer(NamedTuple):
    """What the program gets, and how loudly the log says so."""

    errno: int
    level: int


#: Everything that may reach a handler; a class that is not here is answered as its base is.
#: Startup errors cannot happen in a handler: they get the answer of their base, a logged EIO.
TABLE: dict[type[errors.S3MountError], Answer] = {
    errors.S3MountError: Answer(errno.EIO, logging.ERROR),
    errors.FileSystemError: Answer(errno.EIO, logging.ERROR),
    errors.InvalidName: Answer(errno.EINVAL, logging.DEBUG),
    errors.NameNotFound: Answer(errno.ENOENT, logging.DEBUG),
    errors.NotADirectory: Answer(errno.ENOTDIR, logging.DEBUG),
    errors.IsADirectory: Answer(errno.EISDIR, logging.DEBUG),
    errors.DirectoryNotEmpty: Answer(errno.ENOTEMPTY, logging.DEBUG),
    errors.ReadOnlyMount: Answer(errno.EROFS, logging.INFO),
    errors.BadHandle: Answer(errno.EBADF, logging.WARNING),
    errors.StaleInode: Answer(errno.ESTALE, logging.DEBUG),
    errors.NotAllowed: Answer(errno.EPERM, logging.WARNING),
    errors.NotKept: Answer(errno.EIO, logging.WARNING),
    errors.SpoolFull: Answer(errno.ENOSPC, logging.ERROR),
    errors.SpoolFailed: Answer(errno.EIO, logging.ERROR),
    errors.StoreError: Answer(errno.EIO, logging.WARNING),
    errors.ObjectNotFound: Answer(errno.ENOENT, logging.DEBUG),
    errors.ObjectChanged: Answer(errno.ESTALE, logging.INFO),
    errors.AlreadyExists: Answer(errno.EEXIST, logging.DEBUG),
    errors.UploadNotFound: Answer(errno.EIO, logging.WARNING),
    errors.ObjectTooLarge: Answer(errno.EFBIG, logging.WARNING),
    errors.KeyTooLong: Answer(errno.ENAMETOOLONG, logging.DEBUG),
    errors.StorageFull: Answer(errno.ENOSPC, logging.ERROR),
    errors.NotSupported: Answer(errno.EIO, logging.WARNING),
    errors.ArchivedObject: Answer(errno.EACCES, logging.WARNING),
    errors.BucketNotFound: Answer(errno.ENOENT, logging.ERROR),
    errors.AccessDenied: Answer(errno.EACCES, logging.WARNING),
    errors.BadCredentials: Answer(errno.EACCES, logging.ERROR),
    errors.ExpiredCredentials: Answer(errno.EACCES, logging.ERROR),
    errors.NoCredentials: Answer(errno.EACCES, logging.ERROR),
    errors.WrongRegion: Answer(errno.EIO, logging.ERROR),
    errors.StoreUnreachable: Answer(errno.EIO, logging.WARNING),
    errors.UntrustedCertificate: Answer(errno.EIO, logging.ERROR),
    errors.NotS3: Answer(errno.EIO, logging.ERROR),
    errors.StoreThrottled: Answer(errno.EIO, logging.WARNING),
    errors.StoreFailure: Answer(errno.EIO, logging.WARNING),
    errors.StoreTimeout: Answer(errno.ETIMEDOUT, logging.WARNING),
}


def answer_for(error: errors.S3MountError) -> Answer:
    """The row of the nearest class in the table."""
    return next(TABLE[kind] for kind in type(error).__mro__ if kind in TABLE)


class Boundary:
    """Wraps handlers.

    Args:
        deadline_s: total time of one call of the kernel.
        marks: where the next daemon sees what this one was handling when it died.
    """

    def __init__(self, deadline_s: float, marks: CallMarks | None = None) -> None:
        self._deadline_s = deadline_s
        self._marks = CallMarks() if marks is None else marks
        self._answers: Counter[str] = Counter()
        self._guards: dict[str, _Guard] = {}
        self._in_flight = 0
        self._is_idle = trio.Event()

    def guard(self, operation: str, subject: int = 0, name: int = 0, offset: int = 0) -> "_Guard":
        """A context manager that lets only FUSEError out; trio's cancellation passes untouched.

        Args:
            subject, name, offset: see `Call`.  Enter it before anything is awaited.
        """
        guard = self._guards.get(operation)
        if guard is None:
            guard = self._guards[operation] = _Guard(self, operation)
        self._marks.begin(guard.code, subject, name, offset)
        return guard

    @contextmanager
    def deadline(self) -> Iterator[None]:
        """What may wait for S3 waits inside this; it is not free, so nothing else does."""
        with self.waiting(), self.limit():
            yield

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """What may wait waits inside this, be it for a disk; `limit` goes inside it, where S3 may be asked."""
        slot = self._marks.keep()
        try:
            yield
        finally:
            self._marks.leave(slot)

    def limit(self) -> AbstractContextManager[trio.CancelScope]:
        """The deadline alone."""
        return trio.fail_after(self._deadline_s)

    @property
    def in_flight(self) -> int:
        """Calls that were not answered yet."""
        return self._in_flight

    def enter(self) -> None:
        """A call began."""
        self._in_flight += 1

    def leave(self, operation: str, error: BaseException | None) -> None:
        """A call ended, with its exception if it raised one.

        Raises:
            FUSEError: in place of any other Exception.
        """
        self._marks.end()
        self._in_flight -= 1
        if self._in_flight == 0:
            self._is_idle.set()
        if error is None:
            self._answers["ok"] += 1
        elif isinstance(error, errors.S3MountError):
            raise self._reply(operation, error) from error
        elif isinstance(error, trio.TooSlowError):
            late = errors.StoreTimeout(
                f"no answer within {self._deadline_s:g} s (--request-deadline, --on-outage)", operation=operation
            )
            raise self._reply(operation, late) from error
        elif isinstance(error, Exception) and not isinstance(error, pyfuse3.FUSEError):
            raise self._reply_to_bug(operation, error) from error

    def _reply(self, operation: str, error: errors.S3MountError) -> pyfuse3.FUSEError:
        answer = answer_for(error)
        if not error.logged:
            error.logged = True
            log.log(answer.level, "%s: %s: %s", operation, errno.errorcode[answer.errno], error)
        self._answers[errno.errorcode[answer.errno]] += 1
        return pyfuse3.FUSEError(answer.errno)

    def _reply_to_bug(self, operation: str, bug: Exception) -> pyfuse3.FUSEError:
        inner = errors.sole_cause(bug)
        if isinstance(inner, errors.S3MountError):
            return self._reply(operation, inner)
        log.error("%s: EIO: a bug in s3mount, please report it", operation, exc_info=inner)
        self._answers["EIO"] += 1
        return pyfuse3.FUSEError(errno.EIO)

    async def wait_idle(self, quiet_s: float = 0.0) -> None:
        """Until no call is being answered, and none was for a while: an open that was answered brings a read.

        Args:
            quiet_s: how long that while is.
        """
        is_quiet = False
        while not is_quiet:
            while self._in_flight:
                self._is_idle = trio.Event()
                await self._is_idle.wait()
            answered = self._answers.total()
            await trio.sleep(quiet_s)
            is_quiet = not self._in_flight and self._answers.total() == answered

    def statistics(self) -> dict[str, int]:
        """Calls answered, by errno name; "ok" for the good ones."""
        return dict(self._answers)

    def check_invariants(self) -> None:
        """Raises ValueError when more calls ended than began."""
        if self._in_flight < 0:
            raise ValueError("more calls ended than began")
        self._marks.check_invariants()


class _Guard:
    """Calls of one operation; a class and not a generator because every read pays for it.

    It knows nothing of a single call, so all share it.  This is the one catch-all of the program:
    `leave` turns any Exception into FUSEError.
    """

    __slots__ = ("_boundary", "_operation", "code")

    def __init__(self, boundary: Boundary, operation: str) -> None:
        self._boundary = boundary
        self._operation = operation
        self.code = CODES[operation]

    def __enter__(self) -> None:
        self._boundary.enter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        self._boundary.leave(self._operation, error)
        return False
