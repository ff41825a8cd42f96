"""MOUNT on the command line → the mount it lies in and its daemon's socket.

The kernel's table says what is mounted; no file of a mount is touched, since a daemon that hangs would take the
command with it.
"""

import os
import socket
import struct
from contextlib import suppress
from pathlib import Path

import click

from s3mount.daemon import rundir
from s3mount.errors import printable
from s3mount.fuse.mountinfo import FILE_SYSTEM_TYPE, Mounted, mounts

#: The command's status for a mount that is not there or a daemon that does not answer.
NOT_THERE = 3
_PEERCRED = struct.Struct("3i")  # socket(7), SO_PEERCRED: pid, uid, gid
#: Seconds to be connected: the kernel does it, whatever the daemon does, unless very many wait.
_CONNECT_S = 1.0


class NotThere(click.ClickException):
    """There is no such mount, or its daemon does not answer."""

    exit_code = NOT_THERE


def ours() -> list[Mounted]:
    """The mounts of s3mount on this host that this process can see."""
    return [each for each in mounts() if each.kind == FILE_SYSTEM_TYPE]


def locate(path: str) -> tuple[Mounted, str]:
    """The mount that a path lies in, and where in it.

    Raises:
        NotThere: it lies in none.
    """
    known = {each.target: each for each in ours()}
    parts = os.path.abspath(path).split("/")[1:]
    at = "/"
    for number, part in enumerate(parts):
        if at in known:
            return known[at], "/".join(parts[number:])
        at = os.path.join(at, part)
        if at not in known:
            at = os.path.realpath(at)  # a link may lead to the mount, or into it
        inside = next((point for point in known if at.startswith(point.rstrip("/") + "/")), None)
        if inside is not None:
            return known[inside], "/".join([os.path.relpath(at, inside), *parts[number + 1 :]])
    if at not in known:
        raise NotThere(f"{printable(path)} is not in a mount of s3mount; s3mountctl list shows those of this host")
    return known[at], ""


def socket_path(found: Mounted) -> Path:
    """Where the daemon of a mount listens.

    Raises:
        NotThere: it has no socket, or it is another user's.
    """
    path = rundir.find(found.target, found.uid, os.environ)
    if path is None:
        is_ours = os.geteuid() in (0, found.uid)
        advice = "its log says why" if is_ours else f"only uid {found.uid}, who mounted it, and root may ask it"
        raise NotThere(f"the daemon of {printable(found.target)} cannot be reached: {advice}")
    return path


def daemon_pid(found: Mounted) -> int | None:
    """The process that listens for commands of a mount, which need not answer; None when there is none."""
    with suppress(OSError, NotThere), socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(_CONNECT_S)
        sock.connect(str(socket_path(found)))
        pid, _, _ = _PEERCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEERCRED.size))
        return int(pid)
    return None
