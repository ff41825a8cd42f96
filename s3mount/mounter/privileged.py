"""`s3mount-mount`: the part of a service that has privileges, and nothing else.

`serve NAME` waits for requests of the confined service (`fuse.mountservice`): mount, unmount, abort and read-ahead
of one directory, the one that /etc/s3mount/NAME.conf names.  Whoever asks chooses neither the directory nor the type,
and of the options only those below; a mount is always nosuid and nodev.  It keeps no descriptor: whose mount it is,
keeps it.

`clear NAME` is what the unit runs when `serve` has ended.  What is dead there is unmounted; and after an end that is
meant ($SERVICE_RESULT of systemd.exec(5)), which comes after the confined service's, whatever s3mount has there is
aborted, which frees each process that waits for it, and unmounted.

INVARIANT: nothing but a mount of s3mount is ever unmounted.
"""

import argparse
import array
import json
import logging
import os
import pwd
import socket
import stat
import struct
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from s3mount.fuse.device import abort, mount_for, unmount
from s3mount.fuse.kernel import READ_AHEAD_RANGE_KIB, set_read_ahead
from s3mount.fuse.mountinfo import FILE_SYSTEM_TYPE, mounted_on
from s3mount.fuse.mountservice import MAX_PACKET
from s3mount.mounter.sdnotify import ServiceManager

log = logging.getLogger(__name__)

CONFIG_DIRECTORY = Path("/etc/s3mount")
SOCKET_DIRECTORY = Path("/run/s3mount-mount")
_FLAGS = {"ro", "nosuid", "nodev", "noexec", "noatime", "allow_other", "allow_root", "default_permissions"}
_VALUES = {"fsname", "subtype", "max_read"}
_ALWAYS = {"nosuid", "nodev", "subtype=s3mount"}
_PEERCRED = struct.Struct("3i")  # socket(7), SO_PEERCRED: pid, uid, gid
_BACKLOG = 8
#: Seconds for a request that was begun, and for a mount that may be dead to say so.
_REQUEST_S = 5
_DEAD_S = 2


def main() -> None:
    """What the unit runs; ends with 2 when NAME cannot be meant."""
    parser = argparse.ArgumentParser(prog="s3mount-mount", description="The privileged part of s3mount@NAME.service.")
    parser.add_argument("verb", choices=["serve", "clear"])
    parser.add_argument("name", metavar="NAME", help=f"of {CONFIG_DIRECTORY}/NAME.conf")
    parser.add_argument("--user", default="s3mount", help="who may ask  [default: s3mount]")
    given = parser.parse_args()
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.INFO)
    try:
        owner = pwd.getpwnam(given.user).pw_uid if given.verb == "serve" else 0
        directory = directory_of(CONFIG_DIRECTORY / f"{given.name}.conf")
    except KeyError:
        sys.exit(
            f"s3mount-mount: there is no user {given.user}: make install-service makes it, and so does systemd-sysusers"
        )
    except (OSError, ValueError) as error:
        sys.exit(f"s3mount-mount: {error}")
    if given.verb == "clear":
        clear(directory, is_over=os.environ.get("SERVICE_RESULT") == "success")
        return
    clear(directory, is_over=False)
    serve(SOCKET_DIRECTORY / f"{given.name}.sock", owner, directory, ServiceManager.of(os.environ))


def directory_of(config: Path) -> str:
    """Where a configuration file wants its mount, without symbolic links.

    Raises:
        OSError, ValueError: it cannot be read, is not root's alone to write, or names no directory.
    """
    with config.open("rb") as file:
        found = os.fstat(file.fileno())
        if found.st_uid != 0 or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ValueError(f"{config} must belong to root, and nobody else may write to it")
        directory = tomllib.load(file).get("directory")
    if not isinstance(directory, str) or not os.path.isabs(directory):
        raise ValueError(f'{config} must have a line directory = "/…"')
    parent, name = os.path.split(os.path.normpath(directory))
    return os.path.join(os.path.realpath(parent), name)  # what is there itself may be a mount that does not answer


def clear(directory: str, *, is_over: bool) -> None:
    """Unmount what s3mount left there.

    Args:
        is_over: also what is not dead, which nobody serves any more.
    """
    while (found := mounted_on(directory)) is not None and found.kind == FILE_SYSTEM_TYPE:
        if not is_over and not _is_dead(directory):
            return
        log.info("unmounting what an s3mount that ended has left on %r", directory)
        abort(directory)
        left = mounted_on(directory)
        if left is not None and left.device == found.device:  # else the abort was the unmount, too
            unmount(directory)


def _is_dead(directory: str) -> bool:
    """A dead mount says so at once; one that waits for its next daemon says nothing."""
    try:
        result = subprocess.run(["stat", "-f", directory], check=False, capture_output=True, timeout=_DEAD_S)
    except subprocess.TimeoutExpired:
        return False
    return result.returncode != 0


def serve(path: Path, owner: int, directory: str, manager: ServiceManager) -> None:
    """Answer requests, one after the other, for ever.

    Args:
        owner: the one user who may ask, apart from root.
    """
    path.parent.mkdir(mode=0o711, exist_ok=True)
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC) as listener:
        os.fchmod(listener.fileno(), 0o600)  # which bind(2) gives to the name
        listener.bind(str(path))
        os.chown(path, owner, -1)
        listener.listen(_BACKLOG)
        manager.ready(f"mounts on {directory} when it is asked to")
        while True:
            connection, _ = listener.accept()
            with connection:
                _serve_one(connection, directory)


def _serve_one(connection: socket.socket, directory: str) -> None:
    connection.settimeout(_REQUEST_S)
    device = None
    try:
        _, uid, gid = _PEERCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEERCRED.size))
        device = perform(json.loads(connection.recv(MAX_PACKET)), directory, uid, gid)
        answer: dict[str, Any] = {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("refused: %s", error)
        answer = {"errno": getattr(error, "errno", None) or 0, "message": str(error)}
    try:
        rights = array.array("i", [] if device is None else [device])
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if rights else []
        connection.sendmsg([json.dumps(answer).encode()], ancillary)
    except OSError as error:
        log.warning("nobody takes the answer: %s", error)
    finally:
        if device is not None:
            os.close(device)


def perform(request: dict[str, Any], directory: str, uid: int, gid: int) -> int | None:
    """One request; the device of a new mount, which is then the caller's to close.

    Args:
        uid, gid: whose mount it becomes.

    Raises:
        OSError, ValueError, KeyError, TypeError: it was not done.
    """
    verb = request["verb"]
    if verb == "mount":
        clear(directory, is_over=False)
        if (taken := mounted_on(directory)) is not None and taken.kind != "autofs":
            raise ValueError(f"something of type {taken.kind} is mounted on {directory!r} already")
        log.info("mounting on %r for uid %d", directory, uid)
        return mount_for(uid, gid, directory, allowed(request["options"]) | _ALWAYS)
    if verb not in ("unmount", "abort", "read-ahead"):
        raise ValueError(f"{verb!r} is no request")
    found = mounted_on(directory)
    if found is None or found.kind != FILE_SYSTEM_TYPE:
        return None
    if verb == "unmount":
        unmount(directory)
    elif verb == "abort":
        abort(directory)
    else:
        kib = int(request["kib"])
        if not READ_AHEAD_RANGE_KIB[0] <= kib <= READ_AHEAD_RANGE_KIB[1] or not set_read_ahead(found.device, kib):
            raise ValueError(f"read-ahead of {kib} KiB cannot be set")
    return None


def allowed(options: list[str]) -> set[str]:
    """Mount options that do not make a mount more than a file system of data.

    Raises:
        ValueError: another one is among them.
    """
    for option in options:
        name, equals, value = option.partition("=")
        is_plain = not equals and name in _FLAGS
        if not is_plain and (name not in _VALUES or not value or any(each in value for each in ",\0\n")):
            raise ValueError(f"the mount option {option!r} is not allowed")
    return set(options) - {option for option in options if option.startswith("subtype=")}
