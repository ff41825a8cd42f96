"""Answers Prometheus over HTTP, so that no scraper can fail or slow the mount.

* The loop only takes the snapshot; text is made of it in a thread, one at a time, and of one second there is one.
* At most `MAX_CONNECTIONS` at once, each for `_PATIENCE_S` and for one request; the next one is closed unread.
* What goes wrong here, a bug included, is one line in the log, and ends a connection.

h11 knows HTTP; the answer ends with the connection, so there is nothing to keep alive and nobody to wait for.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import h11
import trio
from prometheus_client import CONTENT_TYPE_LATEST

from s3mount.daemon.metrics import text_of
from s3mount.daemon.mistakes import MISTAKES
from s3mount.units import KIB

log = logging.getLogger(__name__)

#: Two Prometheus servers, and somebody who looks.
MAX_CONNECTIONS = 4
#: Seconds for the request to come and for the answer to be taken.
_PATIENCE_S = 10.0
_FRESH_S = 1.0
_MAX_REQUEST = 16 * KIB
_OURS: tuple[type[Exception], ...] = (h11.LocalProtocolError, *MISTAKES)


@dataclass(frozen=True)
class ScrapeStatistics:
    """Connections now; scrapes answered, and connections closed for their number, since the start."""

    open: int
    answered: int
    refused: int


class ScrapeServer:
    """Of one daemon.

    Args:
        snapshot: what there is to tell; cheap, and called on the loop.
    """

    def __init__(self, snapshot: Callable[[], Mapping[str, Any]]) -> None:
        self._snapshot = snapshot
        self._thread = trio.CapacityLimiter(1)
        self._text = b""
        self._text_at = -_FRESH_S
        self._open = 0
        self._answered = 0
        self._refused = 0
        self._is_told = False

    async def serve(self, listener: trio.SocketListener) -> None:
        """Accept until cancelled."""
        await trio.serve_listeners(self._greet, [listener])

    async def _greet(self, stream: trio.SocketStream) -> None:
        if self._open >= MAX_CONNECTIONS:
            self._refused += 1
            await trio.aclose_forcefully(stream)
            return
        self._open += 1
        try:
            with trio.move_on_after(_PATIENCE_S):
                async with stream:
                    await self._serve_one(stream)
        finally:
            self._open -= 1

    async def _serve_one(self, stream: trio.SocketStream) -> None:
        try:
            await self._answer(stream)
        except (h11.RemoteProtocolError, trio.BrokenResourceError):
            return  # it is the client's
        except _OURS:
            if not self._is_told:
                self._is_told = True
                log.exception("a bug in the metrics, told once: a scrape had no answer")

    async def _answer(self, stream: trio.SocketStream) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_REQUEST)
        event = connection.next_event()
        while event is h11.NEED_DATA:
            connection.receive_data(await stream.receive_some(_MAX_REQUEST))
            event = connection.next_event()
        if not isinstance(event, h11.Request):
            return
        status, body = await self._body_for(event)
        headers = [
            ("Content-Type", CONTENT_TYPE_LATEST if status == 200 else "text/plain"),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
        ]
        pieces = [connection.send(h11.Response(status_code=status, headers=headers))]
        if event.method != b"HEAD":
            pieces.append(connection.send(h11.Data(data=body)))
        await stream.send_all(b"".join(piece for piece in pieces if piece))
        self._answered += status == 200

    async def _body_for(self, request: h11.Request) -> tuple[int, bytes]:
        if request.method not in (b"GET", b"HEAD"):
            return 405, b"only GET\n"
        if request.target.partition(b"?")[0] not in (b"/metrics", b"/"):
            return 404, b"only /metrics\n"
        async with self._thread:
            if trio.current_time() - self._text_at >= _FRESH_S:
                snapshot, now = self._snapshot(), trio.current_time()
                self._text = await trio.to_thread.run_sync(text_of, snapshot)
                self._text_at = now
            return 200, self._text

    def statistics(self) -> ScrapeStatistics:
        """A snapshot of the counters."""
        return ScrapeStatistics(self._open, self._answered, self._refused)

    def check_invariants(self) -> None:
        """Raises ValueError when there are more connections than allowed."""
        if not 0 <= self._open <= MAX_CONNECTIONS:
            raise ValueError(f"{self._open} connections are open")
