"""The service manager's notification protocol (sd_notify(3)): datagrams to $NOTIFY_SOCKET."""

import socket


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

    def _send(self, message: str) -> None:
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            try:
                sock.sendto(message.encode(), self._address)
            except OSError:
                return  # a manager that is gone must not stop the mount
