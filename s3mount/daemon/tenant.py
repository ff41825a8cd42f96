"""The daemon's side of a mount that a mounter keeps (`s3mount.mounter`).

It borrows the device, says what a later daemon need not find out again, leaves the service manager to the mounter, and
hands over when it is told to.  When the mounter is gone it goes on, and then the mount is its own to end.
"""

import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from s3mount.core.ledger import Ledger, succeed
from s3mount.daemon.keeper import Obstacle
from s3mount.daemon.memory import MemoryArea
from s3mount.errors import FuseUnavailable, StartupError
from s3mount.fuse.boundary import Boundary
from s3mount.fuse.device import Device
from s3mount.fuse.handshake import InitFlag, InitRequest
from s3mount.fuse.marks import CallMarks
from s3mount.fuse.options import FuseConfig
from s3mount.fuse.session import MAX_TASKS, Connection, stop_reading
from s3mount.mounter.channel import Channel, Message

log = logging.getLogger(__name__)

#: Of a takeover record.
_AREAS = 2
#: Seconds for the calls in flight when another daemon takes over on demand; new ones wait in the kernel meanwhile.
_ANSWER_S = 1.0
#: Seconds until the next one serves, which is prepared.
_RELEASE_S = 10.0

_GOES_ON = "the daemon goes on as it is"


class Tenant:
    """`Keeper` by the daemon's end of the channel.

    Args:
        memories: see `Keeper`.
        facts: what was said to `ready` by the first daemon; None for the first.
    """

    def __init__(self, channel: Channel, memories: list[int], facts: dict[str, Any] | None = None) -> None:
        self._channel = channel
        self.memories = memories
        self._is_successor = facts is not None
        self._is_alone = False
        self._device: Device | None = None
        self._held_open: list[int] = []  # see `Device.helper_fds`
        self._can_resend = False
        self.patience = trio.CancelScope()
        self._is_draining = False
        self._was_released = trio.Event()
        self._refusal: trio.Event | None = None
        self._refused_because = ""
        self._obstacle: Obstacle = str
        self.marks = CallMarks(memories[_AREAS] if len(memories) > _AREAS else None)
        self.is_to_blame = False
        self._go: Message | None = None
        self.region: str | None = None if facts is None else facts["region"]
        self.started_s = int(time.time()) if facts is None else facts["started_s"]

    async def turn(self) -> None:
        """See `Keeper.turn`; a later daemon says that it could serve, and waits for the device.

        Raises:
            FuseUnavailable: the mounter has ended.  Another daemon may go on, and what it writes is not touched.
        """
        if self._is_successor:
            self._say("prepared")
            while self._go is None or self._go.kind != "go":
                await trio.lowlevel.wait_readable(self._channel)
                self._go = self._channel.receive()
                if self._go is None:
                    raise FuseUnavailable("the mounter has ended, so this daemon takes nothing over")
            self.is_to_blame = self._go.facts.get("is_to_blame", False)
        await trio.lowlevel.checkpoint()

    def ledger(self, identity: str) -> Ledger:
        """See `Keeper.ledger`; nothing where a mounter that is older than this code has no record."""
        if len(self.memories) < _AREAS:
            return Ledger()
        first, second = map(MemoryArea, self.memories[:_AREAS])
        ledger = succeed((first, second), identity)
        if ledger.refusal:
            log.warning(
                "what the daemon before this one left is not used, so files that are open fail, and directories that "
                "processes work in: %s",
                ledger.refusal,
            )
        log.debug("inherited %d inodes", len(ledger.inherited))
        return ledger

    def connect(self, config: FuseConfig) -> Connection:
        """Borrow the device.

        Raises:
            FuseUnavailable: the mounter has ended.
        """
        message = self._go
        if not self._is_successor:
            self._say("mount", options=sorted(config.options), max_background=config.max_background)
            message = self._channel.receive()
            while message is not None and message.kind not in ("mounted", "refused"):
                message = self._channel.receive()  # a restart was asked for, and refused
        if message is None:
            raise FuseUnavailable("the mounter has ended, so nothing can be mounted")
        if message.kind == "refused":
            log.info("no daemon can take this mount over when this one dies")
            raise OSError(message.facts["reason"])
        return self._connection(message, config)

    def _connection(self, message: Message, config: FuseConfig) -> Connection:
        fd, *self._held_open = message.descriptors
        offer = InitRequest.parse(bytes.fromhex(message.facts["offer"]))
        self._device = Device(fd, config.mount_point)
        self._can_resend = bool(offer.flags & InitFlag.HAS_RESEND)
        return Connection(_Borrowed(self._device, self), offer, self._is_successor)

    def ready(self, status: str, region: str) -> None:
        """See `Keeper.ready`."""
        self._say("ready", status=status, region=region, started_s=self.started_s)

    def status(self, status: str) -> None:
        """See `Keeper.status`."""
        self._say("status", status=status)

    def stopping(self, patience_s: float) -> None:
        """See `Keeper.stopping`."""
        self._say("stopping", patience_s=patience_s)

    def failed(self, reason: str) -> None:
        """See `Keeper.failed`."""
        self._say("failed", reason=reason)

    def memory_is_short(self, *, is_short: bool) -> None:
        """See `Keeper.memory_is_short`."""
        self._say("memory", is_short=is_short)

    async def watch(self, boundary: Boundary, obstacle: Obstacle) -> None:
        """Do what the mounter says, until it is gone."""
        self._obstacle = obstacle
        while True:
            await trio.lowlevel.wait_readable(self._channel)
            message = self._channel.receive()
            if message is None:
                break
            if message.kind == "drain":
                await self._drain()
            elif message.kind == "released":
                self._was_released.set()
            elif message.kind == "cannot":
                self._refuse(message.facts["reason"])
            elif message.kind == "busy?" and boundary.in_flight >= MAX_TASKS:
                self._say("busy", reason=f"all its {MAX_TASKS} calls in flight wait for S3")
        self._is_alone = True
        self._refuse("the mounter is gone")
        log.warning("the mounter is gone: this daemon goes on, but nobody takes over from it any more")

    # -- restart ---------------------------------------------------------------------------

    async def restart(self) -> None:
        """Have a daemon of the installed code take over; it serves when this returns, and this one ends soon.

        Raises:
            StartupError: it did not start, or must not now, and this one goes on.
        """
        if reason := self._obstacle():
            raise StartupError(f"{_GOES_ON}: {reason}")
        self._refusal = self._refusal or trio.Event()
        self._say("restart")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_first_of, self._was_released, nursery.cancel_scope)
            nursery.start_soon(_first_of, self._refusal, nursery.cancel_scope)
        if not self._was_released.is_set():
            raise StartupError(f"{_GOES_ON}: {self._refused_because}")

    def _refuse(self, reason: str) -> None:
        self._refused_because = reason
        if self._refusal is not None:
            self._refusal.set()
            self._refusal = None

    async def _drain(self) -> None:
        """Read no more requests; where the kernel sends them again, those that wait for S3 are left to the next."""
        if self._device is None:
            return
        if reason := await stop_reading(self._device.fd, self._obstacle):
            log.error("not restarted: %s", reason)
            self._say("stays")
            self._refuse(reason)
            return
        self._is_draining = True
        if self._can_resend:
            self.patience.deadline = trio.current_time() + _ANSWER_S

    async def hand_over(self, settle: Callable[[], Awaitable[None]]) -> bool:
        """Tell the mounter that the next one may have the device, and live on until it serves."""
        if self._is_draining:
            await settle()
            self._say("drained")
            with trio.move_on_after(_RELEASE_S):
                await self._was_released.wait()
        await trio.lowlevel.checkpoint()
        return self._is_draining

    @property
    def is_alone(self) -> bool:
        """The mounter is gone."""
        return self._is_alone

    def _say(self, kind: str, **facts: Any) -> None:
        with contextlib.suppress(OSError):  # it is gone, and `watch` says so
            self._channel.send(kind, **facts)


class _Borrowed:
    """A device that the mounter has, too, and unmounts."""

    def __init__(self, device: Device, keeper: Tenant) -> None:
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


async def _first_of(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
