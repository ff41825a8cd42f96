"""The boundary between our exceptions and errno: the table is whole, and nothing else gets out."""

import errno
import importlib
import logging
import pkgutil

import pyfuse3
import pytest
import trio
from trio.testing import MockClock

import s3mount
from s3mount import errors
from s3mount.fuse.boundary import TABLE, Boundary, answer_for

#: What the issue and the documentation promise to programs.
PROMISED = {
    errors.S3MountError: errno.EIO,
    errors.FileSystemError: errno.EIO,
    errors.InvalidName: errno.EINVAL,
    errors.NameNotFound: errno.ENOENT,
    errors.NotADirectory: errno.ENOTDIR,
    errors.IsADirectory: errno.EISDIR,
    errors.ReadOnlyMount: errno.EROFS,
    errors.DirectoryNotEmpty: errno.ENOTEMPTY,
    errors.BadHandle: errno.EBADF,
    errors.StaleInode: errno.ESTALE,
    errors.NotAllowed: errno.EPERM,
    errors.NotKept: errno.EIO,
    errors.SpoolFull: errno.ENOSPC,
    errors.SpoolFailed: errno.EIO,
    errors.StoreError: errno.EIO,
    errors.ObjectNotFound: errno.ENOENT,
    errors.ObjectChanged: errno.ESTALE,
    errors.AlreadyExists: errno.EEXIST,
    errors.UploadNotFound: errno.EIO,
    errors.ObjectTooLarge: errno.EFBIG,
    errors.KeyTooLong: errno.ENAMETOOLONG,
    errors.StorageFull: errno.ENOSPC,
    errors.NotSupported: errno.EIO,
    errors.ArchivedObject: errno.EACCES,
    errors.BucketNotFound: errno.ENOENT,
    errors.AccessDenied: errno.EACCES,
    errors.BadCredentials: errno.EACCES,
    errors.ExpiredCredentials: errno.EACCES,
    errors.NoCredentials: errno.EACCES,
    errors.WrongRegion: errno.EIO,
    errors.StoreUnreachable: errno.EIO,
    errors.UntrustedCertificate: errno.EIO,
    errors.NotS3: errno.EIO,
    errors.StoreThrottled: errno.EIO,
    errors.StoreFailure: errno.EIO,
    errors.StoreTimeout: errno.ETIMEDOUT,
}
#: Answers that programs cause all day: a log line each would drown the others.
QUIET = {
    errors.DirectoryNotEmpty,
    errors.NameNotFound, errors.ObjectNotFound, errors.NotADirectory, errors.IsADirectory, errors.InvalidName,
    errors.AlreadyExists, errors.KeyTooLong,
}  # fmt: skip


def every_error() -> list[type[errors.S3MountError]]:
    """All classes of our exception tree, in whatever module of the package they are."""
    for module in pkgutil.walk_packages(s3mount.__path__, "s3mount."):
        importlib.import_module(module.name)
    found: list[type[errors.S3MountError]] = []
    todo = [errors.S3MountError]
    while todo:
        kind = todo.pop()
        found.append(kind)
        todo += [sub for sub in kind.__subclasses__() if sub.__module__.startswith("s3mount.")]
    return found


def records_of(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "s3mount.fuse.boundary"]


def reply_to(boundary: Boundary, error: BaseException, operation: str = "read") -> int:
    """The errno that a handler which raises this answers with."""
    with pytest.raises(pyfuse3.FUSEError) as raised, boundary.guard(operation):
        raise error
    return raised.value.errno


# -- the table --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
def test_every_error_has_its_own_row(kind: type[errors.S3MountError]) -> None:
    """A class without a row of its own can only be one that stops the start."""
    assert kind in TABLE or issubclass(kind, errors.StartupError)
    assert kind in PROMISED or issubclass(kind, errors.StartupError)


def test_the_table_has_no_other_rows() -> None:
    """Every row is of a class that exists in the tree, and of none that stops the start."""
    assert set(TABLE) == set(PROMISED)
    assert set(TABLE) <= set(every_error())


@pytest.mark.parametrize(("kind", "number"), PROMISED.items(), ids=lambda value: getattr(value, "__name__", value))
def test_errno(kind: type[errors.S3MountError], number: int, caplog: pytest.LogCaptureFixture) -> None:
    """The program gets the promised errno, the log one line at the table's level, the statistics one count."""
    caplog.set_level(logging.DEBUG)
    boundary = Boundary(60.0)
    assert reply_to(boundary, kind("the reason")) == number
    (record,) = records_of(caplog)
    assert record.levelno == TABLE[kind].level
    assert record.getMessage() == f"read: {errno.errorcode[number]}: the reason"
    assert record.exc_info is None
    assert boundary.statistics() == {errno.errorcode[number]: 1}
    assert (record.levelno < logging.INFO) == (kind in QUIET or kind is errors.StaleInode)


@pytest.mark.parametrize("kind", [errors.StartupError, errors.BadOption, errors.MountNotAnswering])
def test_a_startup_error_is_a_logged_eio(kind: type[errors.S3MountError], caplog: pytest.LogCaptureFixture) -> None:
    """What cannot happen in a handler is answered as the root of the tree is."""
    assert reply_to(Boundary(60.0), kind("odd")) == errno.EIO
    assert [record.levelno for record in records_of(caplog)] == [logging.ERROR]


def test_a_new_class_is_answered_as_its_nearest_base() -> None:
    """Between the adding of a class and of its row, programs get what its base would give."""

    class TooNew(errors.ObjectChanged):
        pass

    assert answer_for(TooNew("new")) == TABLE[errors.ObjectChanged]


# -- what is logged ---------------------------------------------------------------------------


def test_a_store_error_is_logged_with_its_context(caplog: pytest.LogCaptureFixture) -> None:
    """Bucket, key, operation and request id stand in the one line of a failure; a newline in a key breaks nothing."""
    failure = errors.AccessDenied("denied", bucket="b", key="k\nforged", operation="GetObject", request_id="R1")
    assert reply_to(Boundary(60.0), failure) == errno.EACCES
    (record,) = records_of(caplog)
    assert record.getMessage() == (r"read: EACCES: denied (operation=GetObject bucket=b key='k\nforged' request-id=R1)")


def test_one_failure_of_many_readers_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Many calls that waited for the same request each get the errno, the log gets one line."""
    boundary = Boundary(60.0)
    failure = errors.StoreFailure("broke")
    assert [reply_to(boundary, failure) for _ in range(3)] == [errno.EIO] * 3
    assert len(records_of(caplog)) == 1
    assert boundary.statistics() == {"EIO": 3}
    reply_to(boundary, errors.StoreFailure("broke again"))
    assert len(records_of(caplog)) == 2


@pytest.mark.parametrize(
    "bug",
    [
        ValueError("impossible"),
        KeyError("x"),
        ExceptionGroup("nursery", [ValueError("impossible")]),
        ExceptionGroup("outer", [ExceptionGroup("inner", [ValueError("impossible")])]),
        ExceptionGroup("two", [ValueError("impossible"), errors.NameNotFound("x")]),
        AssertionError(),
        OSError(errno.ENOSPC, "no space"),
    ],
    ids=repr,
)
def test_a_bug_is_eio_and_one_traceback(bug: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """Anything that is not ours becomes EIO, never a dead mount, and its traceback is in the log once."""
    assert reply_to(Boundary(60.0), bug, "getattr") == errno.EIO
    (record,) = records_of(caplog)
    assert record.levelno == logging.ERROR
    assert record.getMessage() == "getattr: EIO: a bug in s3mount, please report it"
    assert record.exc_info is not None
    assert record.exc_info[1] is errors.sole_cause(bug)
    assert record.exc_info[2] is not None or isinstance(bug, ExceptionGroup)


def test_our_error_inside_a_group_is_answered_as_itself(caplog: pytest.LogCaptureFixture) -> None:
    """A nursery wraps what its task raised; the program still gets the errno of it, without a traceback."""
    group = ExceptionGroup("nursery", [ExceptionGroup("inner", [errors.AccessDenied("denied")])])
    assert reply_to(Boundary(60.0), group) == errno.EACCES
    assert [record.exc_info for record in records_of(caplog)] == [None]


# -- what passes ------------------------------------------------------------------------------


def test_fuse_errors_pass(caplog: pytest.LogCaptureFixture) -> None:
    """What is already an answer to the kernel goes out as it is, unlogged."""
    answer = pyfuse3.FUSEError(errno.ENOSYS)
    with pytest.raises(pyfuse3.FUSEError) as raised, Boundary(60.0).guard("read"):
        raise answer
    assert raised.value is answer
    assert records_of(caplog) == []


async def test_cancellation_passes(caplog: pytest.LogCaptureFixture) -> None:
    """A cancelled call ends as trio means it, is no failure of anybody, and is not in flight any more."""
    boundary = Boundary(60.0)
    with trio.CancelScope() as scope:
        scope.cancel()
        with boundary.guard("read"):
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert records_of(caplog) == []
    assert boundary.statistics() == {}
    await boundary.wait_idle()
    boundary.check_invariants()


@pytest.mark.parametrize("signal", [KeyboardInterrupt(), SystemExit(1)], ids=repr)
def test_the_end_of_the_process_passes(signal: BaseException) -> None:
    """Only Exceptions are answered; what ends the process ends it."""
    with pytest.raises(type(signal)), Boundary(60.0).guard("read"):
        raise signal


# -- time and number of calls -----------------------------------------------------------------


async def test_deadline(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    """A call that waits longer than the deadline is ETIMEDOUT at the deadline, and the log names the option."""
    boundary = Boundary(60.0)
    with pytest.raises(pyfuse3.FUSEError) as raised, boundary.guard("open"), boundary.deadline():
        await trio.sleep_forever()
    assert raised.value.errno == errno.ETIMEDOUT
    assert trio.current_time() == pytest.approx(60.0)
    (record,) = records_of(caplog)
    assert "no answer within 60 s (--request-deadline, --on-outage)" in record.getMessage()
    assert boundary.statistics() == {"ETIMEDOUT": 1}


async def test_an_answer_before_the_deadline(autojump_clock: MockClock) -> None:
    """A slow answer is still an answer, and leaves no deadline behind."""
    boundary = Boundary(60.0)
    with boundary.guard("open"), boundary.deadline():
        await trio.sleep(59.0)
    await trio.sleep(120.0)
    assert boundary.statistics() == {"ok": 1}


@pytest.mark.parametrize(
    "error", [errors.NameNotFound("x"), ValueError("bug"), pyfuse3.FUSEError(errno.EIO), None], ids=repr
)
async def test_no_call_stays_in_flight(error: Exception | None, autojump_clock: MockClock) -> None:
    """However a call ends, the stop does not wait for it."""
    boundary = Boundary(60.0)
    if error is not None:
        with pytest.raises(pyfuse3.FUSEError), boundary.guard("read"):
            raise error
    else:
        with boundary.guard("read"):
            pass
    with trio.fail_after(1):
        await boundary.wait_idle()
    boundary.check_invariants()


async def test_a_stop_waits_for_calls_in_flight(autojump_clock: MockClock) -> None:
    """Idle is when the last call is answered, also of those that came after the wait began."""
    boundary = Boundary(60.0)

    async def call(begin_s: float, end_s: float) -> None:
        await trio.sleep(begin_s)
        with boundary.guard("read"):
            await trio.sleep(end_s - begin_s)

    async with trio.open_nursery() as nursery:
        for begin_s, end_s in ((0.0, 3.0), (0.0, 5.0), (2.0, 8.0)):
            nursery.start_soon(call, begin_s, end_s)
        await trio.sleep(1.0)
        await boundary.wait_idle()
        assert trio.current_time() == pytest.approx(8.0)
    assert boundary.statistics() == {"ok": 3}


def test_more_ends_than_begins_are_noticed() -> None:
    """The counter's invariant is runnable and fails when a call ends twice."""
    boundary = Boundary(60.0)
    boundary.leave("read", None)
    with pytest.raises(ValueError, match="more calls ended"):
        boundary.check_invariants()
