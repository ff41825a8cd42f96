"""The device: made once, held to the end, lent to one daemon after the other.

It is never read here, and not polled while a daemon serves: each request would wake this process.  The kernel keeps
requests for as long as no daemon reads them.

Where the kernel sends requests again, all daemons have the same descriptor.  Else each has one of its own, and none is
kept here: what a daemon that died has left unanswered fails when its last duplicate is closed.
"""

import logging
import os
from collections.abc import Sequence
from typing import Any

from s3mount.fuse.device import Device, introduce, mount
from s3mount.fuse.handshake import InitFlag, InitRequest, Wishes, granted_for
from s3mount.fuse.mountinfo import FILE_SYSTEM_TYPE, mounts_on
from s3mount.mounter.crew import Crew
from s3mount.mounter.keeping import KEPT, to_keep
from s3mount.mounter.offspring import Offspring
from s3mount.mounter.sdnotify import ServiceManager

log = logging.getLogger(__name__)

#: Diagnostic: behave as on a kernel that cannot send requests again.
_WITHOUT_RESEND = "S3MOUNT_WITHOUT_RESEND"


class LentDevice:
    """A mount whose kernel is content."""

    def __init__(self, mount_point: str, device: Device, offer: InitRequest) -> None:
        self._mount_point = mount_point
        self._device = device
        self._offer = offer
        self._is_kept = False

    @classmethod
    def kept(cls, mount_point: str, fd: int, offer: str) -> "LentDevice":
        """A mount that was made before; the descriptor is taken."""
        device = cls(mount_point, Device(fd, mount_point), InitRequest.parse(bytes.fromhex(offer)))
        device._is_kept = True
        return device

    @classmethod
    def make(cls, mount_point: str, options: Sequence[str], max_background: int) -> "LentDevice":
        """Mount.

        Raises:
            OSError, ValueError: this program cannot mount here; nothing is mounted.
        """
        without = InitFlag.HAS_RESEND if _WITHOUT_RESEND in os.environ else InitFlag(0)
        flags = granted_for(options) & ~without
        device = mount(mount_point, set(options))
        try:
            return cls(mount_point, device, introduce(device.fd, Wishes(max_background, flags=flags)))
        except (OSError, ValueError):
            device.close()
            raise

    def lend(self, kind: str, daemon: Offspring, **facts: Any) -> None:
        """Send it with a message of this kind."""
        own = None
        if not self._offer.flags & InitFlag.HAS_RESEND:
            try:
                own = self._device.clone()
            except OSError as error:
                log.warning("calls in flight will hang when a daemon dies: the device cannot be cloned: %s", error)
        descriptors = [self._device.fd if own is None else own, *self._device.helper_fds]
        daemon.had_device = True
        daemon.tell(kind, descriptors, offer=self._offer.to_bytes().hex(), **facts)
        if own is not None:
            os.close(own)

    def keep_with(self, manager: ServiceManager, crew: Crew) -> None:
        """Leave it to the service manager, should this process die: once is enough, in place of what it has."""
        if not self._is_kept and crew.facts is not None:
            self._is_kept = True
            manager.drop(KEPT)
            manager.keep(to_keep(self._mount_point, self._device.fd, self._offer, crew.memories, crew.facts))

    def is_mounted(self) -> bool:
        """False after an abort and an unmount, also one that programs inside it hold up: one may wait for an answer."""
        return self._device.is_connected() and any(
            each.kind == FILE_SYSTEM_TYPE for each in mounts_on(self._mount_point)
        )

    def abort(self) -> None:
        """Fail every call that is not answered, also of a daemon that cannot be killed."""
        self._device.abort()

    def close(self) -> None:
        """Unmount."""
        self._device.close()
