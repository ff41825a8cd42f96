"""Where something is served: an address of this host, or a Unix socket.

An address must be one of this host's, said as such: what is served has no password, so "everywhere" is no place for it.
"""

import ipaddress
import os
import socket
import stat
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from s3mount.errors import BadOption

#: Connections that may wait to be accepted.
_BACKLOG = 16


@dataclass(frozen=True)
class Listen:
    """Attributes: the path of a Unix socket, or else a host and a port; and how it was said."""

    said: str
    path: Path | None
    host: str = ""
    port: int = 0


def parse_listen(text: str) -> Listen:
    """What `ADDRESS:PORT`, `[ADDRESS]:PORT` or a path means.

    Raises:
        BadOption: it is none of these, or every address.
    """
    if "/" in text:
        return Listen(text, Path(os.path.abspath(text)))
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise BadOption(f"{text!r} is no place to serve; write ADDRESS:PORT, as 127.0.0.1:9200, or /PATH/TO/SOCKET")
    return Listen(text, None, host, int(port))


def listen(where: Listen) -> socket.socket:
    """A listening socket.

    Raises:
        BadOption: the address is not this host's, or is every one; the port or the socket is in use.
    """
    try:
        return _listen_on_path(where.path) if where.path is not None else _listen_on_port(where)
    except OSError as error:
        raise BadOption(f"{where.said} cannot be served: {error.strerror or error}; choose another") from error


def _listen_on_port(where: Listen) -> socket.socket:
    found = socket.getaddrinfo(where.host, where.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    if ipaddress.ip_address(str(address[0]).partition("%")[0]).is_unspecified:
        raise BadOption(f"{where.said} is every address: anyone could read there; name one address of this host")
    return _bound(family, address)


def _bound(family: socket.AddressFamily, address: Any) -> socket.socket:
    with ExitStack() as undo:
        listener = undo.enter_context(socket.socket(family, socket.SOCK_STREAM))
        if family != socket.AF_UNIX:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a predecessor's connections linger
        listener.bind(address)
        listener.listen(_BACKLOG)
        undo.pop_all()
    return listener


def _listen_on_path(path: Path) -> socket.socket:
    """One that nobody listens on any more is replaced; members of its group may connect."""
    if path.exists() and not stat.S_ISSOCK(path.lstat().st_mode):
        raise BadOption(f"{str(path)!r} is there and no socket; choose another path")
    if path.exists():
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1)
            if probe.connect_ex(str(path)) == 0:
                raise BadOption(f"another process serves {str(path)!r}; choose another path")
        path.unlink()
    listener = _bound(socket.AF_UNIX, str(path))
    path.chmod(0o660)
    return listener
