"""The service manager's protocols: datagrams to $NOTIFY_SOCKET (sd_notify(3)), and descriptors that it keeps for a
service and gives to the next process of it (sd_listen_fds(3), file descriptor store).
"""

import os
import socket
from collections.abc import Iterable, Mapping, MutableMapping

#: sd_listen_fds(3): the first descriptor that is passed.
_FIRST = 3


class ServiceManager:
    """Tells the service manager how the service is; silent when there is none.

    Args:
        address: the value of NOTIFY_SOCKET; a path, or `@name` in the abstract namespace.
    """

    def __init__(self, address: str | None) -> None:
        self._address = "\0" + address[1:] if address and address.startswith("@") else address
        self._is_stopping = False

    def ready(self, status: str) -> None:
        """The mount answers."""
        self._send(f"READY=1\nSTATUS={status}")

    def stopping(self) -> None:
        """The mount is on its way out; said once, whoever finds it out first."""
        if not self._is_stopping:
            self._is_stopping = True
            self._send("STOPPING=1")

    def keep(self, descriptors: Mapping[str, int]) -> None:
        """Have descriptors kept, by name, for a process that comes after this one dies."""
        for name, fd in descriptors.items():
            self._send(f"FDSTORE=1\nFDNAME={name}", [fd])

    def drop(self, names: Iterable[str]) -> None:
        """Have them closed."""
        for name in names:
            self._send(f"FDSTOREREMOVE=1\nFDNAME={name}")

    def _send(self, message: str, descriptors: Iterable[int] = ()) -> None:
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            try:
                sock.connect(self._address)
                socket.send_fds(sock, [message.encode()], list(descriptors))
            except OSError:
                return  # a manager that is gone must not stop the mount


def take_kept(environ: MutableMapping[str, str], pid: int) -> dict[str, int]:
    """The descriptors that this process was started with, by name; the variables are removed.

    What the variables say is not trusted: none but those that are open are given.

    Args:
        pid: of this process: they may be meant for another.
    """
    count, names, meant = (environ.pop(f"LISTEN_{each}", "") for each in ("FDS", "FDNAMES", "PID"))
    try:
        named = names.split(":")[: max(int(count), 0)] if meant == str(pid) else []
    except ValueError:
        return {}
    return {name: fd for fd, name in enumerate(named, _FIRST) if _is_open(fd)}


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True
