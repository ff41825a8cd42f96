"""Who keeps the mount while this daemon serves it: the daemon itself, or a mounter beside it.

With a mounter (`s3mount.mounter`) the daemon borrows the device, says what a later daemon need not find out again, and
leaves the service manager to it.  When the mounter is gone the daemon goes on, and then the mount is its own to end.
"""

import contextlib
import logging
import os
import time
from typing import Any, Protocol

import trio

from s3mount.errors import FuseUnavailable
from s3mount.fuse.device import Device
from s3mount.fuse.handshake import InitRequest
from s3mount.fuse.options import FuseConfig
from s3mount.fuse.session import Connection, connected
from s3mount.mounter.channel import Channel, Message
from s3mount.mounter.sdnotify import ServiceManager

log = logging.getLogger(__name__)


class Keeper(Protocol):
    """What outlives a daemon.

    Attributes:
        region: the bucket's, when this is not the first daemon of the mount; else None.
        started_s: when the mount was made, in seconds since 1970: the time of its directories.
    """

    region: str | None
    started_s: int

    async def turn(self) -> None:
        """Until nobody else serves the mount."""
        ...

    def connect(self, config: FuseConfig) -> Connection:
        """See `session.mounted`."""
        ...

    def ready(self, status: str, region: str) -> None:
        """The mount answers."""
        ...

    def stopping(self) -> None:
        """The mount is on its way out."""
        ...

    async def watch(self) -> None:
        """For as long as it is served."""
        ...


class NoKeeper:
    """One process: mounted and served here."""

    region: str | None = None

    def __init__(self, manager: ServiceManager) -> None:
        self._manager = manager
        self.started_s = int(time.time())

    async def turn(self) -> None:
        """At once."""
        await trio.lowlevel.checkpoint()

    def connect(self, config: FuseConfig) -> Connection:
        """Mount."""
        return connected(config)

    def ready(self, status: str, region: str) -> None:
        """Tell the service manager."""
        self._manager.ready(status)

    def stopping(self) -> None:
        """Tell the service manager."""
        self._manager.stopping()

    async def watch(self) -> None:
        """There is nobody to watch."""
        await trio.lowlevel.checkpoint()


class MounterKeeper:
    """The daemon's end of the channel.

    Args:
        facts: what was said to `ready` by the first daemon; None for the first.
    """

    def __init__(self, channel: Channel, facts: dict[str, Any] | None = None) -> None:
        self._channel = channel
        self._is_successor = facts is not None
        self._is_alone = False
        self.region: str | None = None if facts is None else facts["region"]
        self.started_s = int(time.time()) if facts is None else facts["started_s"]

    async def turn(self) -> None:
        """See `Keeper.turn`; a later daemon says that it could serve, and waits for the device."""
        if self._is_successor:
            self._say("prepared")
            await trio.lowlevel.wait_readable(self._channel)
        await trio.lowlevel.checkpoint()

    def connect(self, config: FuseConfig) -> Connection:
        """Borrow the device.

        Raises:
            FuseUnavailable: the mounter has ended.
        """
        if not self._is_successor:
            self._say("mount", options=sorted(config.options), max_background=config.max_background)
        message = self._channel.receive()
        if message is None:
            raise FuseUnavailable("the mounter has ended, so nothing can be mounted")
        if message.kind == "refused":
            log.info("no daemon can take this mount over when this one dies")
            raise OSError(message.facts["reason"])
        return self._connection(message, config)

    def _connection(self, message: Message, config: FuseConfig) -> Connection:
        (fd,) = message.descriptors
        device = _Borrowed(Device(fd, config.mount_point), self)
        return Connection(device, InitRequest.parse(bytes.fromhex(message.facts["offer"])), self._is_successor)

    def ready(self, status: str, region: str) -> None:
        """See `Keeper.ready`."""
        self._say("ready", status=status, region=region, started_s=self.started_s)

    def stopping(self) -> None:
        """See `Keeper.stopping`."""
        self._say("stopping")

    async def watch(self) -> None:
        """Notice the end of the mounter."""
        await trio.lowlevel.wait_readable(self._channel)
        if self._channel.receive() is None:
            self._is_alone = True
            log.warning("the mounter is gone: this daemon goes on, but if it dies too the mount is dead")

    @property
    def is_alone(self) -> bool:
        """The mounter is gone."""
        return self._is_alone

    def _say(self, kind: str, **facts: Any) -> None:
        with contextlib.suppress(OSError):  # it is gone, and `watch` says so
            self._channel.send(kind, **facts)


class _Borrowed:
    """A device that the mounter has, too, and unmounts."""

    def __init__(self, device: Device, keeper: MounterKeeper) -> None:
        self._device = device
        self._keeper = keeper

    @property
    def fd(self) -> int:
        return self._device.fd

    def close(self) -> None:
        if self._keeper.is_alone:
            self._device.close()
        else:
            os.close(self._device.fd)
