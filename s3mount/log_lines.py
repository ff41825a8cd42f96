"""What one record of the log says, as text, as JSON, or as a journal entry: the same facts in each.

The facts stand beside the message, so that nobody need take it apart: what was asked of S3 and of what, S3's request
id, and the errno that a program got.  They are taken from the error that the record is about, where it has one.

Nothing here writes.  Newlines and terminal codes in keys are escaped where the message is made, and JSON escapes them
itself; the journal keeps them as they are, and journalctl shows them escaped.
"""

import json
import logging
import struct
from datetime import UTC, datetime

from s3mount.errors import StoreError

_LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"
#: RFC 5424, severities.
_PRIORITIES = {logging.CRITICAL: 2, logging.ERROR: 3, logging.WARNING: 4, logging.INFO: 6, logging.DEBUG: 7}
_IDENTIFIER = "s3mount"


def facts_of(record: logging.LogRecord) -> dict[str, str]:
    """The facts of a record that was just made: operation, bucket, key, request_id, call and errno, those it has."""
    arguments = record.args if isinstance(record.args, tuple) else ()
    error = next((each for each in arguments if isinstance(each, StoreError)), None)
    facts = {name: getattr(error, name, "") for name in ("operation", "bucket", "key", "request_id")}
    facts |= {name: getattr(record, name, "") for name in ("call", "errno")}
    return {name: value for name, value in facts.items() if value}


def priority_of(record: logging.LogRecord) -> int:
    """The priority of syslog(3)."""
    return _PRIORITIES.get(record.levelno, 6)


def _kept(record: logging.LogRecord, name: str) -> str:
    return str(getattr(record, name, ""))


def _text(record: logging.LogRecord) -> str:
    trace = _kept(record, "trace")
    return f"{record.getMessage()}\n{trace}" if trace else record.getMessage()


class TextLines(logging.Formatter):
    """For people; a traceback stands below its line.

    Args:
        layout: of the line.
        has_priority: whether `<N>` stands before it, which systemd takes for the priority (sd-daemon(3)).
    """

    def __init__(self, layout: str = _LINE, *, has_priority: bool = False) -> None:
        super().__init__(layout)
        self._has_priority = has_priority

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        line = super().format(record)
        trace = _kept(record, "trace")
        text = f"{line}\n{trace}" if trace else line
        prefix = f"<{priority_of(record)}>" if self._has_priority else ""
        return "\n".join(prefix + each for each in text.split("\n")) if prefix else text


class JsonLines(logging.Formatter):
    """For programs: one object a line; docs/operations.md lists its names."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "pid": record.process,
            "message": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        trace = _kept(record, "trace")
        return json.dumps(line | {"traceback": trace} if trace else line)


def journal_entry(record: logging.LogRecord) -> bytes:
    """A datagram of the journal's native protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL)."""
    fields = {
        "MESSAGE": _text(record),
        "PRIORITY": str(priority_of(record)),
        "SYSLOG_IDENTIFIER": _IDENTIFIER,
        "SYSLOG_PID": str(record.process),
        "LOGGER": record.name,
    } | {f"S3MOUNT_{name.upper()}": value for name, value in getattr(record, "facts", {}).items()}
    return b"".join(_field(name, value.encode("utf-8", "backslashreplace")) for name, value in fields.items())


def _field(name: str, value: bytes) -> bytes:
    if b"\n" in value:
        return name.encode() + b"\n" + struct.pack("<Q", len(value)) + value + b"\n"
    return name.encode() + b"=" + value + b"\n"
