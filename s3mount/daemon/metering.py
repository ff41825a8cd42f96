"""Where metrics are served, for as long as this daemon serves the mount.

The first daemon of a mount must get the address, or the mount is not made: who asked for metrics is told at once.  A
later one goes on without until the address is free, since no program may suffer for it.
"""

import logging
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import trio

from s3mount.daemon.scrapes import ScrapeServer
from s3mount.errors import BadOption
from s3mount.listening import Listen, listen

log = logging.getLogger(__name__)

_AGAIN_S = 1.0


class Meter:
    """One daemon's.

    Args:
        listener: None where the address is not free yet.
    """

    def __init__(self, where: Listen | None, server: ScrapeServer, listener: socket.socket | None) -> None:
        self._where = where
        self._server = server
        self._listener = listener
        self._scope = trio.CancelScope()

    async def serve(self) -> None:
        """Answer scrapes until `close`."""
        with self._scope:
            if self._where is None:
                return
            while self._listener is None:
                await trio.sleep(_AGAIN_S)
                self._listener = _try(self._where)
            self._listener.setblocking(False)  # noqa: FBT003
            ours = trio.socket.from_stdlib_socket(self._listener.dup())
            await self._server.serve(trio.SocketListener(ours))

    def close(self) -> None:
        """Give the address up."""
        self._scope.cancel()
        if self._listener is not None and self._listener.fileno() >= 0:
            self._listener.close()
            if self._where is not None and self._where.path is not None:
                self._where.path.unlink(missing_ok=True)


def _try(where: Listen) -> socket.socket | None:
    try:
        return listen(where)
    except BadOption as error:
        log.debug("no metrics yet: %s", error)
        return None


@contextmanager
def meter_of(where: Listen | None, snapshot: Callable[[], Mapping[str, Any]], *, is_first: bool) -> Iterator[Meter]:
    """A meter that is closed when the block ends.

    Raises:
        BadOption: this is the first daemon of the mount, and it cannot serve there.
    """
    listener = None
    if where is not None:
        listener = listen(where) if is_first else _try(where)
        if listener is None:
            log.warning("no metrics for now: %s is not free", where.said)
    meter = Meter(where, ScrapeServer(snapshot), listener)
    try:
        yield meter
    finally:
        meter.close()
