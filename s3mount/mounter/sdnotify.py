"""The service manager's protocols: datagrams to $NOTIFY_SOCKET (sd_notify(3)), and descriptors that it keeps for a
service and gives to the next process of it (sd_listen_fds(3), file descriptor store).
"""

import math
import os
import re
import socket
import time
from collections.abc import Iterable, Mapping, MutableMapping

#: sd_listen_fds(3): the first descriptor that is passed.
_FIRST = 3
#: Signs of life within the time after which there must have been one: one may be late.
_BEATS = 3


class ServiceManager:
    """Tells the service manager how the service is; silent when there is none.

    Args:
        address: the value of NOTIFY_SOCKET; a path, or `@name` in the abstract namespace.
        watchdog_usec, watchdog_pid: the values of WATCHDOG_USEC and WATCHDOG_PID (sd_watchdog_enabled(3)).

    Attributes:
        beat_every_s: how often to call `beat`; infinity when nobody listens for it.
        beat_at: when to call it next, on the caller's clock.
    """

    def __init__(self, address: str | None, watchdog_usec: str | None = None, watchdog_pid: str | None = None) -> None:
        self._address = "\0" + address[1:] if address and address.startswith("@") else address
        self._is_stopping = False
        is_meant = bool(address) and watchdog_pid in (None, str(os.getpid()))
        is_watched = is_meant and re.fullmatch("[1-9][0-9]{0,15}", watchdog_usec or "") is not None
        self.beat_every_s = int(watchdog_usec or 0) / 1e6 / _BEATS if is_watched else math.inf
        self.beat_at = -math.inf if is_watched else math.inf

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> "ServiceManager":
        """The one that started this process."""
        return cls(*map(environ.get, ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")))

    def ready(self, status: str) -> None:
        """The mount answers."""
        self._send(f"READY=1\nSTATUS={status}")

    def status(self, status: str) -> None:
        """What it does now, in one line."""
        self._send(f"STATUS={status}")

    def beat(self, now: float, *, is_well: bool) -> None:
        """A sign of life, if it is time for one: without them the service is restarted."""
        if now >= self.beat_at:
            self.beat_at = now + self.beat_every_s
            if is_well:
                self._send("WATCHDOG=1")

    def reloading(self) -> None:
        """It is being renewed, until `ready` is said again."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def reloaded(self) -> None:
        """It goes on as it was."""
        self._send("READY=1")

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
