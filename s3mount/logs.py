"""Where the log goes: stderr in the foreground, syslog (which journald serves) in the background,
or a file in a directory.

Records are written by a thread: a full pipe or a slow disk must not hold up the trio loop.  When
that thread falls behind by `_MAX_QUEUED` records, new ones are dropped.

Lines never hold what they should not: newlines and terminal codes in keys are escaped where the
message is made, and credentials are in no message of ours; botocore's own debug log, which has
signatures, is kept off even with --debug.
"""

import logging
import logging.handlers
import os
import queue
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from s3mount.errors import BadOption

SYSLOG_SOCKET = Path("/dev/log")
_MAX_QUEUED = 10_000
_FILE_MODE = 0o640
_LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@dataclass(frozen=True)
class LogConfig:
    """Attributes: where the log goes; a directory, else stderr or syslog."""

    directory: Path | None
    is_debug: bool = False
    is_off: bool = False


class _DroppingQueueHandler(logging.handlers.QueueHandler):
    """The queue itself has no bound, because the listener's end mark must always fit."""

    def __init__(self, records: "queue.Queue[logging.LogRecord]") -> None:
        super().__init__(records)
        self.records = records

    def enqueue(self, record: logging.LogRecord) -> None:
        if self.records.qsize() < _MAX_QUEUED:
            self.records.put_nowait(record)


@contextmanager
def logging_to(config: LogConfig, *, is_foreground: bool, pid: int | None = None) -> Iterator[int | None]:
    """Logging works inside the block, and everything logged is written when it ends.

    Yields the descriptor behind it, for what cannot wait for a thread; None where that is none that takes lines.

    Args:
        pid: what names the file; None for this process.  All processes of a mount append to one file.

    Raises:
        BadOption: the log directory cannot be written.
    """
    root = logging.getLogger()
    root.setLevel(logging.DEBUG if config.is_debug else logging.INFO)
    for noisy in ("botocore", "aiobotocore", "httpx2", "httpcore2", "pyfuse3", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    sink = _sink(config, pid or os.getpid(), is_foreground=is_foreground)
    sinks = [sink]
    if not is_foreground and not config.is_off and not _is_stderr(sink):
        sinks.append(_terminal())
    records: queue.Queue[logging.LogRecord] = queue.Queue()
    handler = _DroppingQueueHandler(records)
    listener = logging.handlers.QueueListener(records, *sinks, respect_handler_level=True)
    root.addHandler(handler)
    listener.start()
    try:
        yield sink.stream.fileno() if isinstance(sink, logging.StreamHandler) else None
    finally:
        root.removeHandler(handler)
        listener.stop()
        sink.close()


def close_stderr() -> None:
    """Whoever waits for the end of it need not wait for the mount's."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 2)
    os.close(null)


def _sink(config: LogConfig, pid: int, *, is_foreground: bool) -> logging.Handler:
    if config.is_off:
        return logging.NullHandler()
    if config.directory is not None:
        return _file(config.directory, pid)
    if not is_foreground:
        return _syslog() if SYSLOG_SOCKET.exists() else _terminal()
    stderr = logging.StreamHandler()
    stderr.setFormatter(logging.Formatter(_LINE))
    return stderr


def _is_stderr(sink: logging.Handler) -> bool:
    return isinstance(sink, logging.StreamHandler) and sink.stream is sys.stderr


def _terminal() -> logging.Handler:
    """Warnings while the parent waits; stderr becomes /dev/null when the mount is ready."""
    stderr = logging.StreamHandler()
    stderr.setLevel(logging.WARNING)
    stderr.setFormatter(logging.Formatter("s3mount: %(levelname)s: %(message)s"))
    stderr.addFilter(lambda record: record.levelno < logging.ERROR)  # the parent prints the error
    return stderr


def _syslog() -> logging.Handler:
    handler = logging.handlers.SysLogHandler(str(SYSLOG_SOCKET), logging.handlers.SysLogHandler.LOG_DAEMON)
    handler.ident = f"s3mount[{os.getpid()}]: "
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    return handler


def _file(directory: Path, pid: int) -> logging.Handler:
    path = directory / f"s3mount-{pid}.log"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, _FILE_MODE))
        handler = logging.FileHandler(path)
    except OSError as error:
        raise BadOption(
            f"the log directory {str(directory)!r} cannot be written ({error.strerror}); choose another"
        ) from error
    handler.setFormatter(logging.Formatter(_LINE))
    return handler
