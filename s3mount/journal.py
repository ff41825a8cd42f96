"""The journal of systemd as a place for the log: each record an entry with fields of its own.

systemd says in JOURNAL_STREAM which file its journal is; when that is this process's stderr, entries can go to the
journal's own socket and keep their priority and facts.  A sandbox may hide the socket, and then lines on stderr with
the priority before them do nearly as well.
"""

import contextlib
import errno
import logging
import os
import socket

from s3mount.log_lines import journal_entry

#: systemd.io/JOURNAL_NATIVE_PROTOCOL.
SOCKET = "/run/systemd/journal/socket"
#: Of an entry that is larger than a datagram may be.
_SHORT = 16_000


def is_journal(descriptor: int, journal_stream: str) -> bool:
    """Whether a descriptor is what systemd named: "DEVICE:INODE" in decimal."""
    try:
        found = os.fstat(descriptor)
    except OSError:
        return False
    return journal_stream == f"{found.st_dev}:{found.st_ino}"


class JournalHandler(logging.Handler):
    """Sends entries."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__()
        self._connection = connection

    @classmethod
    def connected(cls) -> "JournalHandler | None":
        """None where the journal's socket cannot be reached."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        try:
            connection.connect(SOCKET)
        except OSError:
            connection.close()
            return None
        return cls(connection)

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`; while journald is away entries are lost, as lines on stderr would be."""
        try:
            self._connection.send(journal_entry(record))
        except OSError as error:
            with contextlib.suppress(OSError):
                if error.errno == errno.EMSGSIZE:
                    record.msg = record.getMessage()[:_SHORT]
                    record.trace = getattr(record, "trace", "")[-_SHORT:]
                else:
                    self._connection.connect(SOCKET)  # journald was started anew, and its socket with it
                self._connection.send(journal_entry(record))

    def close(self) -> None:
        """See `logging.Handler`."""
        self._connection.close()
        super().close()
