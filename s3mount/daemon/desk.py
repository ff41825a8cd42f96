"""Where s3mountctl finds the daemon that serves a mount: a control socket, under the mount's name for just so long.

A mount without one is as good for all but s3mountctl.  When another daemon takes over, the name goes to it first, and
then this one waits until the commands it is still answering have heard their answers.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from s3mount.config import MountConfig
from s3mount.daemon import rundir
from s3mount.daemon.control import ControlServer, Verbs

log = logging.getLogger(__name__)

#: Seconds for answers that are on their way.
_LAST_WORDS_S = 1.0


class Desk:
    """One daemon's.

    Args:
        control: None where there can be no socket.
    """

    def __init__(self, control: rundir.ControlSocket | None, verbs: Verbs) -> None:
        self._control = control
        self._server = ControlServer(verbs)

    async def serve(self) -> None:
        """Answer commands until cancelled."""
        if self._control is not None:
            await self._server.serve(self._control.listener)

    def close(self) -> None:
        """Give the name up; commands under way go on."""
        if self._control is not None:
            self._control.close()

    async def finish(self) -> None:
        """Wait a moment for the commands under way."""
        with trio.move_on_after(_LAST_WORDS_S):
            await self._server.idle()


@contextmanager
def desk_of(config: MountConfig, verbs: Verbs) -> Iterator[Desk]:
    """A desk that is closed when the block ends; without a socket for a mount whose mount point is not known."""
    if config.fuse.descriptor is not None:
        yield Desk(None, verbs)
        return
    try:
        control = rundir.bind(config.runtime_directory, config.fuse.mount_point)
    except OSError as error:
        log.warning("s3mountctl cannot control this mount: %s", error)
        yield Desk(None, verbs)
        return
    desk = Desk(control, verbs)
    try:
        yield desk
    finally:
        desk.close()
