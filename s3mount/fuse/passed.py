"""A FUSE connection that the caller made: it opened /dev/fuse, called mount(2), and passed the descriptor.

Container runtimes and the node plugins of orchestrators do this, so that what serves the mount needs no privilege, and
nothing outside its own files.  The mount point is theirs, and may be in another mount namespace; this process never
touches it: it answers until the connection ends, and only closes the descriptor.
"""

import os
import stat

from s3mount.errors import FuseUnavailable, MountPointUnusable
from s3mount.fuse.device import Device, introduce
from s3mount.fuse.handshake import InitRequest, Wishes

#: Documentation/admin-guide/devices.txt.
_FUSE_DEVICE = os.makedev(10, 229)


class PassedDevice:
    """A descriptor to serve (`session.ServedDevice`)."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def close(self) -> None:
        """The kernel fails what was not answered, unless the caller has the descriptor, too."""
        os.close(self.fd)


def check(fd: int) -> None:
    """Find out why a descriptor cannot be served, before S3 is asked.

    Raises:
        MountPointUnusable: with what to do about it.
    """
    try:
        found = os.fstat(fd)
    except OSError as error:
        raise MountPointUnusable(
            f"no descriptor {fd} was passed: the caller must leave it open and inheritable"
        ) from error
    if not stat.S_ISCHR(found.st_mode) or found.st_rdev != _FUSE_DEVICE:
        raise MountPointUnusable(f"descriptor {fd} is not of /dev/fuse: open that, mount(2) with fd={fd}, and pass it")
    if not Device(fd, "").is_connected():
        raise MountPointUnusable(f"descriptor {fd} is of no mount: mount(2) with fd={fd} before, and do not unmount")


def adopt(fd: int, wishes: Wishes) -> tuple[PassedDevice, InitRequest]:
    """Answer the kernel's INIT on it.

    Raises:
        FuseUnavailable: the kernel does not open the connection, or not in a way that this program knows.
    """
    os.set_inheritable(fd, False)  # noqa: FBT003
    try:
        return PassedDevice(fd), introduce(fd, wishes)
    except (OSError, ValueError) as error:
        raise FuseUnavailable(
            f"descriptor {fd} cannot be served ({error}): it must be of a new mount that nobody has served yet"
        ) from error
