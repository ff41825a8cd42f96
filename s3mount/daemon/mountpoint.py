"""What must be true before mounting: the directory, /dev/fuse, fusermount3, /etc/fuse.conf.

Checked before S3 is asked, because a wrong directory is the user's most likely mistake and the
cheapest to find.  A dead mount that another s3mount left is cleared; any other is reported.
"""

import errno
import logging
import os
import shlex
import shutil
from pathlib import Path

from s3mount.errors import FuseUnavailable, MountPointUnusable
from s3mount.fuse import mountservice, passed
from s3mount.fuse.device import unmount
from s3mount.fuse.mountinfo import AUTOMOUNT_TYPE, FILE_SYSTEM_TYPE, mounted_on
from s3mount.fuse.options import FuseConfig

log = logging.getLogger(__name__)

_FUSE_DEVICE = "/dev/fuse"
_FUSE_CONF = Path("/etc/fuse.conf")
_FUSERMOUNT = "fusermount3"


def check(config: FuseConfig) -> None:
    """Find out why a mount would fail, before it is tried.

    Raises:
        MountPointUnusable, FuseUnavailable: with what to do about it.
    """
    if config.descriptor is not None:
        passed.check(config.descriptor)
        return
    if not mountservice.is_there():
        check_fuse(config)
    _check_directory(config.mount_point)


def check_fuse(config: FuseConfig) -> None:
    """Find out why no directory could be mounted on.

    Raises:
        FuseUnavailable: with what to do about it.
    """
    _check_device()
    if os.geteuid() != 0:
        _check_ordinary_user(config)


def clear_dead(path: str) -> None:
    """Detach what a daemon that died left there.  A mount that answers is somebody's and stays."""
    mounted = mounted_on(path)
    if mounted is not None and mounted.kind == FILE_SYSTEM_TYPE and _is_dead(path):
        unmount(path)


def _is_dead(path: str) -> bool:
    """A mount whose daemon is gone answers ENOTCONN to everything, ECONNABORTED while it goes.

    Asked by statvfs, because for a second the kernel answers a stat for the dead from its cache.
    """
    try:
        os.statvfs(path)
    except OSError as error:
        return error.errno in (errno.ENOTCONN, errno.ECONNABORTED)
    return False


def _check_device() -> None:
    try:
        os.close(os.open(_FUSE_DEVICE, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError as error:
        raise FuseUnavailable(
            f"{_FUSE_DEVICE} does not exist: load the module (modprobe fuse), "
            "or give the container the device (--device /dev/fuse --cap-add SYS_ADMIN)"
        ) from error
    except OSError as error:
        raise FuseUnavailable(
            f"{_FUSE_DEVICE} cannot be opened ({error.strerror}): its mode must be 0666, "
            "or the container must be allowed to use it (--device /dev/fuse)"
        ) from error


def _check_ordinary_user(config: FuseConfig) -> None:
    if shutil.which(_FUSERMOUNT) is None:
        raise FuseUnavailable(
            f"{_FUSERMOUNT} is not installed, and only root can mount without it: install the package fuse3"
        )
    if (config.allow_other or config.allow_root) and not _is_other_allowed():
        flag = "--allow-other" if config.allow_other else "--allow-root"
        raise FuseUnavailable(f"{flag} is not permitted here: add the line user_allow_other to {_FUSE_CONF}")


def _is_other_allowed() -> bool:
    try:
        lines = _FUSE_CONF.read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    return any(line.strip() == "user_allow_other" for line in lines)


def _check_directory(path: str) -> None:
    try:
        _clear_if_dead(path)
        if not os.path.isdir(path):
            advice = f"does not exist; create it: mkdir -p {shlex.quote(path)}"
            kind = "is not a directory; choose one" if os.path.lexists(path) else advice
            raise MountPointUnusable(f"the mount point {path!r} {kind}")
        taken = mounted_on(path)
        if taken is not None and taken.kind != AUTOMOUNT_TYPE:
            raise MountPointUnusable(
                f"something of type {taken.kind} is mounted on {path!r} already; "
                f"unmount it first: umount {shlex.quote(path)}"
            )
        if os.listdir(path):
            log.warning("the mount point %r is not empty; its files are hidden while this is mounted", path)
    except OSError as error:
        raise MountPointUnusable(f"the mount point {path!r} cannot be used: {error.strerror}") from error


def _clear_if_dead(path: str) -> None:
    if not _is_dead(path):
        return  # whatever else is wrong, the next check finds it and says it better
    dead = mounted_on(path)
    if dead is None or dead.kind != FILE_SYSTEM_TYPE:
        raise MountPointUnusable(
            f"a dead mount is on {path!r} (Transport endpoint is not connected); "
            f"clear it: fusermount3 -u {shlex.quote(path)}"
        )
    log.warning("clearing the dead mount that an earlier s3mount left on %r", path)
    unmount(path)
