"""Where the log goes: stderr in the foreground, syslog (which journald serves) in the background,
or a file in a directory; under systemd the journal itself, which gets the facts of each line beside it.

Records are written by a thread: a full pipe or a slow disk must not hold up the trio loop.  When
that thread falls behind by `_MAX_QUEUED` records, new ones are dropped, and counted.

Lines never hold what they should not: newlines and terminal codes in keys are escaped where the
message is made, and credentials are in no message of ours; botocore's own debug log, which has
signatures, is kept off even with --debug.
"""

import copy
import logging
import logging.handlers
import os
import queue
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from s3mount.errors import BadOption
from s3mount.journal import JournalHandler, is_journal
from s3mount.log_limits import LeftOut, LogLimit
from s3mount.log_lines import JsonLines, TextLines, facts_of
from s3mount.units import counted

log = logging.getLogger(__name__)

SYSLOG_SOCKET = Path("/dev/log")
_MAX_QUEUED = 10_000
_FILE_MODE = 0o640
#: In the order in which a signal goes through them, from any other to the first.
LEVELS = {"info": logging.INFO, "debug": logging.DEBUG, "warning": logging.WARNING}


@dataclass(frozen=True)
class LogConfig:
    """Attributes: where the log goes; a directory, else stderr or syslog.

    is_json: one JSON object a line, wherever it goes.
    journal_stream: JOURNAL_STREAM as systemd set it (systemd.exec(5)): which file the journal is.
    """

    directory: Path | None
    is_debug: bool = False
    is_off: bool = False
    is_json: bool = False
    journal_stream: str = ""


class Log:
    """The log while it is on.

    Attributes:
        descriptor: behind it, for what cannot wait for a thread; None where that is none that takes lines.  It stays
            the same when the file is opened anew.
    """

    def __init__(self, sink: logging.Handler) -> None:
        self._sink = sink
        self.descriptor = _descriptor_of(sink)

    def reopen(self) -> None:
        """Go on in a new file when somebody moved the old one away (logrotate)."""
        if not isinstance(self._sink, logging.FileHandler) or self.descriptor is None:
            return
        try:
            new = _open_file(Path(self._sink.baseFilename))
        except OSError as error:
            log.error("the log goes on in its old file: %s", error)  # noqa: TRY400  the errno says it all
            return
        os.dup2(new, self.descriptor, inheritable=False)
        os.close(new)

    @property
    def level(self) -> str:
        """The least that is written."""
        return logging.getLevelName(logging.getLogger().level).lower()

    @level.setter
    def level(self, name: str) -> None:
        """One of `LEVELS`."""
        logging.getLogger().setLevel(LEVELS[name])
        log.log(LEVELS[name], "the log level is %s", name)

    def cycle_level(self) -> None:
        """The next of `LEVELS`."""
        names = list(LEVELS)
        self.level = names[(names.index(self.level) + 1) % len(names)]


def _descriptor_of(sink: logging.Handler) -> int | None:
    if isinstance(sink, JournalHandler):
        return sys.stderr.fileno()  # which is the journal, too
    return sink.stream.fileno() if isinstance(sink, logging.StreamHandler) else None


class _Collector(logging.handlers.QueueHandler):
    """Hands records to the thread, not too many; the queue has no bound of its own, because the end mark must fit."""

    def __init__(self, records: "queue.Queue[logging.LogRecord]", timer: Callable[[], float]) -> None:
        super().__init__(records)
        self.records = records
        self._limit = LogLimit(timer)
        self._dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.tell(self._limit.due())
        if self._limit.admits(record):
            super().emit(record)

    def tell(self, left_out: Iterable[LeftOut]) -> None:
        """Say what was left out."""
        for each in left_out:
            super().emit(_record(each.logger, each.level, "%d more lines were left out: %s", each.n_lines, each.words))

    def finish(self) -> None:
        """Say what was left out until the end."""
        self.tell(self._limit.rest())

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """As `QueueHandler` does, and with the facts beside the message."""
        ready = copy.copy(record)
        ready.facts = facts_of(record)
        ready.trace = "" if record.exc_info is None else logging.Formatter().formatException(record.exc_info)
        ready.msg = ready.message = record.getMessage()
        ready.args = ready.exc_info = ready.exc_text = None
        return ready

    def enqueue(self, record: logging.LogRecord) -> None:
        if self.records.qsize() >= _MAX_QUEUED:
            self._dropped += 1
            return
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            words = "%s dropped: whatever takes the log away is slower than they came"
            self.records.put_nowait(self.prepare(_record(__name__, logging.WARNING, words, counted(dropped, "line"))))
        self.records.put_nowait(record)


def _record(logger: str, level: int, words: str, *args: object) -> logging.LogRecord:
    return logging.getLogger(logger).makeRecord(logger, level, __file__, 0, words, args, None)


@contextmanager
def logging_to(config: LogConfig, *, is_foreground: bool, pid: int | None = None) -> Iterator[Log]:
    """Logging works inside the block, and everything logged is written when it ends.

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
    handler = _Collector(queue.Queue(), time.perf_counter)
    listener = logging.handlers.QueueListener(handler.records, *sinks, respect_handler_level=True)
    root.addHandler(handler)
    listener.start()
    try:
        yield Log(sink)
    finally:
        root.removeHandler(handler)
        handler.finish()
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
        sink = _file(config.directory, pid)
    elif is_foreground:
        sink = _stderr(config)
    else:
        sink = _syslog() if SYSLOG_SOCKET.exists() else _terminal()
    if config.is_json and not isinstance(sink, JournalHandler):
        sink.setFormatter(JsonLines())
    return sink


def _stderr(config: LogConfig) -> logging.Handler:
    has_journal = is_journal(sys.stderr.fileno(), config.journal_stream)
    if has_journal and not config.is_json and (journal := JournalHandler.connected()) is not None:
        return journal
    stderr = logging.StreamHandler()
    stderr.setFormatter(TextLines(has_priority=has_journal))
    return stderr


def _is_stderr(sink: logging.Handler) -> bool:
    return isinstance(sink, logging.StreamHandler) and sink.stream is sys.stderr


def _terminal() -> logging.Handler:
    """Warnings while the parent waits; stderr becomes /dev/null when the mount is ready."""
    stderr = logging.StreamHandler()
    stderr.setLevel(logging.WARNING)
    stderr.setFormatter(TextLines("s3mount: %(levelname)s: %(message)s"))
    stderr.addFilter(lambda record: record.levelno < logging.ERROR)  # the parent prints the error
    return stderr


def _syslog() -> logging.Handler:
    handler = logging.handlers.SysLogHandler(str(SYSLOG_SOCKET), logging.handlers.SysLogHandler.LOG_DAEMON)
    handler.ident = f"s3mount[{os.getpid()}]: "
    handler.setFormatter(TextLines("%(levelname)s %(name)s: %(message)s"))
    return handler


def _open_file(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, _FILE_MODE)


def _file(directory: Path, pid: int) -> logging.Handler:
    path = directory / f"s3mount-{pid}.log"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        os.close(_open_file(path))
        handler = logging.FileHandler(path)
    except OSError as error:
        raise BadOption(
            f"the log directory {str(directory)!r} cannot be written ({error.strerror}); choose another"
        ) from error
    handler.setFormatter(TextLines())
    return handler
