"""Large bodies by sockets that block, each in a thread: they go to the kernel from where they lie.

The CRT copies a body into a buffer of its own and from there into messages of 16 KiB, with three system calls for
each: 0.9 s of CPU for a GB.  Here a piece of the body is one system call, without the interpreter's lock: 0.4 s, and
nothing is in memory twice (docs/decisions/0062-large-bodies-by-threads.md).  A small body is cheaper by the CRT.

Endpoint, trust and signature are the CRT's; the body is unsigned, its checksum signed.  A proxy is left to the CRT.

Who gives up cuts the connection off and does not wait: the thread ends by that, and lets go of all but its piece.

INVARIANT: a connection is used by one request at a time, and kept only after an answer that was read to its end.
INVARIANT: nothing is sent on a connection that was cut off.
"""

import contextlib
import select
import socket
import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import NamedTuple

import trio
from awscrt.auth import AwsSigningConfig, aws_sign_request
from awscrt.exceptions import AwsCrtError
from awscrt.http import HttpRequest

from s3mount.store.checksums import checksum_of_body
from s3mount.store.crt_requests import CrtRequests
from s3mount.store.s3_errors import from_crt, from_socket
from s3mount.store.session import CONNECT_TIMEOUT_S, READ_TIMEOUT_S
from s3mount.store.writing import Body, size_of
from s3mount.units import MIB

#: From here on a thread costs less than the CRT's copies.
LARGE = 1 * MIB
#: Requests at once, each with a thread: 512 MiB of parts on their way; the others wait.
_AT_ONCE = 64
#: Seconds that a connection waits for its next request; S3 closes it not much later.
_IDLE_S = 15.0
#: Bytes of an answer: it has none, or an error in XML.
_MAX_ANSWER = 1 * MIB
_REFUSED = 300


class Answer(NamedTuple):
    """Attributes: what S3 says; names of headers in lower case."""

    status: int
    headers: dict[str, str]
    content: bytes


@dataclass(frozen=True)
class LargeBodyStatistics:
    """Connections that wait for a request, requests that were begun on an old one, and on a new one."""

    idle: int
    reused: int
    connected: int


class LargeBodies:
    """PUTs of large bodies to one bucket; `close` it.

    Args:
        requests: of the bucket.
        checksums: `WriteConfig.checksums`.
        least: bytes of a body that is large.
    """

    def __init__(self, requests: CrtRequests, checksums: str, least: int = LARGE) -> None:
        self._requests = requests
        self.least = sys.maxsize if requests.endpoint.is_proxied else least
        self._checksum = "" if checksums == "off" else checksums
        self._clock = trio.lowlevel.current_clock()  # threads read it, too
        self._threads = trio.CapacityLimiter(_AT_ONCE)
        self._idle: list[tuple[float, HTTPConnection]] = []  # threads append and pop, each in one step
        self._is_closed = False
        self._reused = self._connected = 0

    async def send(
        self, operation: str, path: str, headers: list[tuple[str, str]], key: str, body: Body
    ) -> dict[str, str]:
        """A request with a body; the headers of its answer, names in lower case.

        Raises:
            StoreError: S3 or the network refused.
        """
        length = ("Content-Length", str(size_of(body)))
        request = self._requests.request(operation, path, [length, *headers])
        signing = await self._requests.signing_of(request)
        exchange = _Exchange(self, request, signing, self._checksum, list(body))
        try:
            answer = await trio.to_thread.run_sync(exchange.run, limiter=self._threads, abandon_on_cancel=True)
        except trio.Cancelled:
            exchange.cut()
            raise
        except (OSError, HTTPException, AwsCrtError) as error:
            raise self._requests.refused(from_socket(error), key, operation) from error
        if answer.status >= _REFUSED:
            refusal = from_crt(None, answer.status, answer.content, list(answer.headers.items()), operation=operation)
            raise self._requests.refused(refusal, key, operation)
        return answer.headers

    # -- connections: called by threads ---------------------------------------------------------

    def take(self) -> HTTPConnection:
        """A connection that nobody else uses; it may have to be made."""
        with contextlib.suppress(IndexError):
            while True:
                since, connection = self._idle.pop()
                if self._clock.current_time() - since < _IDLE_S and not _has_ended(connection):
                    self._reused += 1
                    return connection
                connection.close()
        self._connected += 1
        host = self._requests.endpoint.host
        if not self._requests.endpoint.is_tls:
            return HTTPConnection(host, timeout=CONNECT_TIMEOUT_S)
        return HTTPSConnection(host, timeout=CONNECT_TIMEOUT_S, context=self._tls)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        """Made by the first thread that needs it: to read what is trusted takes 30 ms, and many mounts only read."""
        return ssl.create_default_context(cafile=self._requests.ca_bundle)

    def put_back(self, connection: HTTPConnection) -> None:
        """Nobody uses it any more."""
        self._idle.append((self._clock.current_time(), connection))
        if self._is_closed:
            self._close_older(0.0)

    # -- their end ------------------------------------------------------------------------------

    async def rest(self) -> None:
        """Close what nobody uses for a while; until cancelled, then everything."""
        try:
            while True:
                await trio.sleep(_IDLE_S)
                self._close_older(_IDLE_S)
        finally:
            self.close()

    def close(self) -> None:
        """Keep no connection, from now on."""
        self._is_closed = True
        self._close_older(0.0)

    def _close_older(self, seconds: float) -> None:
        """Those that wait for longer; the oldest are first."""
        with contextlib.suppress(IndexError):
            while self._clock.current_time() - self._idle[0][0] >= seconds:
                self._idle.pop(0)[1].close()

    def statistics(self) -> LargeBodyStatistics:
        """A snapshot of the counters."""
        return LargeBodyStatistics(len(self._idle), self._reused, self._connected)

    def check_invariants(self) -> None:
        """Raises ValueError when connections are kept that nobody can have used."""
        if len(self._idle) > min(self._connected, _AT_ONCE):
            raise ValueError(f"{len(self._idle)} connections of {self._connected} wait")


class _Exchange:
    """One request and its answer, in a thread; `cut` comes from another."""

    def __init__(
        self,
        connections: LargeBodies,
        request: HttpRequest,
        signing: AwsSigningConfig | None,
        checksum: str,
        body: list[bytes | memoryview],
    ) -> None:
        self._connections = connections
        self._request = request
        self._signing = signing
        self._checksum = checksum
        self._body = body
        self._connection: HTTPConnection | None = None
        self._is_cut = False

    def run(self) -> Answer:
        """Blocks.  Raises OSError, HTTPException, AwsCrtError."""
        self._sign()
        self._connection = connection = self._connections.take()
        is_whole = False
        try:
            self._send(connection)
            response = connection.getresponse()
            headers = {name.lower(): value for name, value in response.getheaders()}
            answer = Answer(response.status, headers, response.read(_MAX_ANSWER))
            is_whole = response.isclosed() and not response.will_close
        finally:
            self._connection = None  # before the question: `cut` asks in the other order
            if is_whole and not self._is_cut:
                self._connections.put_back(connection)
            else:
                connection.close()
        return answer

    def _sign(self) -> None:
        if self._checksum:
            self._request.headers.set(f"x-amz-checksum-{self._checksum}", checksum_of_body(self._checksum, self._body))
        if self._signing is not None:
            aws_sign_request(self._request, self._signing).result(READ_TIMEOUT_S)

    def _send(self, connection: HTTPConnection) -> None:
        if connection.sock is None:
            _connect(connection)
        connection.putrequest(self._request.method, self._request.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self._request.headers:
            connection.putheader(name, value.encode())
        with contextlib.suppress(ConnectionError):  # who refuses may say so before the end, and hang up
            self._unless_cut(connection.endheaders)
            for piece in self._body:
                self._unless_cut(connection.send, piece)
        self._unless_cut(lambda: None)

    def _unless_cut(self, step: Callable[..., None], *args: object) -> None:
        if self._is_cut:
            raise TimeoutError("nobody waits for it any more")
        step(*args)

    def cut(self) -> None:
        """Nobody waits any more."""
        self._is_cut = True
        connection = self._connection
        sock = None if connection is None else connection.sock
        if sock is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)  # that of an SSLSocket would let the rest out in plain
        self._body.clear()


def _connect(connection: HTTPConnection) -> None:
    connection.connect()
    connection.sock.settimeout(READ_TIMEOUT_S)


def _has_ended(connection: HTTPConnection) -> bool:
    """Whether the server closed an idle connection, or sends what nobody asked for."""
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))
