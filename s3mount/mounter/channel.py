"""What mounter and daemon say to each other: JSON objects and descriptors, over a pair of SOCK_SEQPACKET sockets.

Each message is one packet: it arrives whole or not at all, also when its sender is killed in the middle.  Which they
are, in the order in which a mount comes to be:

    daemon → mounter   hello      who is mounted, how it was started, where the log goes (`Hello`); with the memory
                                  files that outlive it (`MEMORIES`)
                       kept       a mount that an earlier mounter made, with what its first daemon said with `ready`
                       mount      make this mount
    mounter → daemon   mounted    the device, and the INIT message for libfuse
                       refused    and why; the daemon lets libfuse mount, and the mounter only waits for its end
    daemon → mounter   ready      the mount answers; with what a later daemon need not find out again
                       status     what it does, in one line
                       stopping   somebody asked it to, and how long that may take
    mounter → daemon   take over  the first message to a later daemon: `Hello`, what was said with `ready`, the files
    daemon → mounter   prepared   everything is done that does not need the device
                       failed     and why; it ends
    mounter → daemon   go         the device
    daemon → mounter   memory     is short, or no longer: a standby is in the way, or not
                       restart    somebody asked for a new daemon
    mounter → daemon   cannot     and why
                       drain      a new one is prepared: answer what was read, and read no more
    daemon → mounter   drained    the new one may have the device
    mounter → daemon   released   and has it, and answers
                       busy?      nobody answers the mount
    daemon → mounter   busy       and why; without it the daemon is killed

A mounter may be older than its daemons, so a message may only get more facts, and what is not known is passed over.
Signals are signals, and the end of a process is the end of its socket.
"""

import json
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

#: Memory files that the mounter keeps for its daemons and never reads: the directories that the kernel knows, the open
#: files, and the calls in flight.  A later version may only append to this.
RECORD = ("record-0", "record-1")
MEMORIES = (*RECORD, "calls")
#: A command line can have 128 KiB an argument; what is longer than a socket's buffer is refused by send(2).
_MAX_BYTES = 1 << 18
_MAX_DESCRIPTORS = 8


@dataclass(frozen=True)
class Hello:
    """What a mounter must know of its mount.

    Attributes:
        arguments: of the command, for the next daemon; with `directory`, against which they are resolved.
        mount_point: as it was resolved before anything was mounted there.
        log_directory, is_debug, is_log_off, is_log_json: as `LogConfig`.
        hang_timeout_s: 0 for never.
        is_read_only: so that nothing is lost with a daemon.
    """

    arguments: list[str]
    directory: str
    mount_point: str
    is_foreground: bool
    log_directory: str | None
    is_debug: bool
    is_log_off: bool
    hang_timeout_s: float
    is_log_json: bool = False
    is_read_only: bool = False


class Message(NamedTuple):
    """Attributes: which it is, what it says, and the descriptors with it, which are the receiver's to close."""

    kind: str
    facts: dict[str, Any]
    descriptors: list[int]


class Channel:
    """One end."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    @classmethod
    def pair(cls) -> tuple["Channel", "Channel"]:
        """Both ends."""
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(one), cls(other)

    @classmethod
    def inherited(cls, fd: int) -> "Channel":
        """The end that this process was started with."""
        sock = socket.socket(fileno=fd)
        sock.set_inheritable(False)
        return cls(sock)

    def fileno(self) -> int:
        """For poll(2)."""
        return self._sock.fileno()

    def lend(self) -> int:
        """The descriptor, for the process that is started next."""
        self._sock.set_inheritable(True)
        return self._sock.fileno()

    def send(self, kind: str, descriptors: Sequence[int] = (), **facts: Any) -> None:
        """Say something.

        Raises:
            OSError: nobody is at the other end.
        """
        packet = json.dumps({"kind": kind, **facts}).encode()
        socket.send_fds(self._sock, [packet], descriptors)

    def receive(self) -> Message | None:
        """What the other end says next, waiting for it; None when it has ended."""
        try:
            packet, descriptors, _, _ = socket.recv_fds(self._sock, _MAX_BYTES, _MAX_DESCRIPTORS)
        except ConnectionResetError:
            return None
        for fd in descriptors:
            os.set_inheritable(fd, False)  # noqa: FBT003  recv_fds leaves out its flags, and so MSG_CMSG_CLOEXEC
        if not packet:
            return None
        facts = json.loads(packet)
        return Message(facts.pop("kind"), facts, list(descriptors))

    def close(self) -> None:
        """This end has nothing more to say."""
        self._sock.close()
