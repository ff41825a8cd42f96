"""Who keeps the mount while this daemon serves it: the daemon itself, or a mounter beside it (`daemon.tenant`)."""

import time
from collections.abc import Awaitable, Callable
from typing import Protocol

import trio

from s3mount.core.ledger import Ledger
from s3mount.errors import StartupError
from s3mount.fuse.boundary import Boundary
from s3mount.fuse.marks import CallMarks
from s3mount.fuse.options import FuseConfig
from s3mount.fuse.session import Connection, connected
from s3mount.mounter.sdnotify import ServiceManager

#: Why a daemon that works must not be replaced now; empty when it may.
Obstacle = Callable[[], str]


class Keeper(Protocol):
    """What outlives a daemon.

    Attributes:
        region: the bucket's, when this is not the first daemon of the mount; else None.
        memories: descriptors of memory files that outlive this process, as `MEMORIES` names them, or the first of
            them; none where nothing takes over.  Another daemon writes them until it is this one's `turn`.
        started_s: when the mount was made, in seconds since 1970: the time of its directories.
        marks: what is being handled.
        is_to_blame: the daemon before died in something it was asked for; known when it is this one's `turn`.
    """

    region: str | None
    started_s: int
    memories: list[int]
    marks: CallMarks
    is_to_blame: bool

    async def turn(self) -> None:
        """Until nobody else serves the mount."""
        ...

    def ledger(self, identity: str) -> Ledger:
        """What the daemon before this one left, and where to leave something to the next; not before `turn`."""
        ...

    def connect(self, config: FuseConfig) -> Connection:
        """See `session.mounted`."""
        ...

    def ready(self, status: str, region: str) -> None:
        """The mount answers."""
        ...

    def status(self, status: str) -> None:
        """What the daemon does now, in one line."""
        ...

    def stopping(self, patience_s: float) -> None:
        """The mount is on its way out, and is gone within that many seconds."""
        ...

    def failed(self, reason: str) -> None:
        """This daemon cannot serve, and ends."""
        ...

    def memory_is_short(self, *, is_short: bool) -> None:
        """Whether the next daemon's memory would be missed; said when it changes."""
        ...

    @property
    def patience(self) -> trio.CancelScope:
        """What serves is inside it."""
        ...

    async def hand_over(self, settle: Callable[[], Awaitable[None]]) -> bool:
        """Nothing is served here any more; returns whether another serves, as soon as it can do without this one.

        Args:
            settle: called before another serves, if one does.
        """
        ...

    async def restart(self) -> None:
        """Have a daemon of the installed code take over; it serves when this returns.

        Raises:
            StartupError: it does not, or must not now, and this one goes on.
        """
        ...

    async def watch(self, boundary: Boundary, obstacle: Obstacle) -> None:
        """For as long as it is served."""
        ...


class NoKeeper:
    """One process: mounted and served here."""

    region: str | None = None
    is_to_blame = False

    def __init__(self, manager: ServiceManager) -> None:
        self._manager = manager
        self.started_s = int(time.time())
        self.memories: list[int] = []
        self.marks = CallMarks()
        self.patience = trio.CancelScope()

    async def turn(self) -> None:
        """At once."""
        await trio.lowlevel.checkpoint()

    def ledger(self, identity: str) -> Ledger:
        """There is nobody before and after."""
        return Ledger()

    def connect(self, config: FuseConfig) -> Connection:
        """Mount."""
        return connected(config)

    def ready(self, status: str, region: str) -> None:
        """Tell the service manager."""
        self._manager.ready(status)

    def status(self, status: str) -> None:
        """Tell the service manager."""
        self._manager.status(status)

    def stopping(self, patience_s: float) -> None:
        """Tell the service manager."""
        self._manager.stopping()

    def failed(self, reason: str) -> None:
        """The exit code says it."""

    def memory_is_short(self, *, is_short: bool) -> None:
        """Nobody stands by."""

    async def hand_over(self, settle: Callable[[], Awaitable[None]]) -> bool:
        """To nobody."""
        await trio.lowlevel.checkpoint()
        return False

    async def restart(self) -> None:
        """Nobody can take over."""
        await trio.lowlevel.checkpoint()
        raise StartupError(
            "this mount has no mounter (--no-takeover), so no other daemon can take it over: mount it again"
        )

    async def watch(self, boundary: Boundary, obstacle: Obstacle) -> None:
        """There is nobody to watch; the service manager is told that the loop runs."""
        while True:
            self._manager.beat(trio.current_time(), is_well=True)
            await trio.sleep(self._manager.beat_every_s)
