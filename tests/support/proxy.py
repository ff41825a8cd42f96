"""An HTTP/1.1 proxy in front of an S3 server: counts requests, delays them, breaks answers.

One thread per connection, standard library only.  It counts what really arrives at the server,
whatever client sent it.
"""

import contextlib
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Request:
    """Attributes: method, target with query (origin form), headers in lower case."""

    method: str
    target: str
    headers: dict[str, str]

    @property
    def is_list(self) -> bool:
        return "list-type=2" in self.target


@dataclass(frozen=True)
class Fault:
    """What the proxy does instead of forwarding.

    Attributes:
        answer: bytes sent as they are; empty for none.
        forward_bytes: forward the request, and cut the answer's body after so many bytes.
        stall_s: wait so long before doing anything.
        hold_s: wait so long after the cut, before the connection is closed.
        drop: close the connection.
        lose_answer: forward the request, and close the connection when the answer comes.
    """

    answer: bytes = b""
    forward_bytes: int | None = None
    stall_s: float = 0.0
    hold_s: float = 0.0
    drop: bool = False
    lose_answer: bool = False


def error_answer(status: int, code: str, message: str = "", **headers: str) -> bytes:
    """An S3 error answer."""
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>'
    extra = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return (
        f"HTTP/1.1 {status} {code}\r\nContent-Type: application/xml\r\nx-amz-request-id: PROXY\r\n{extra}"
        f"Content-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


Decide = Callable[[Request], Fault | None]


class Proxy:
    """The running proxy.

    Attributes:
        requests: everything that arrived, in order.
        delay_s: before each request is forwarded: the distance to S3.
        decide: may return a fault for a request; runs on the connection's thread.
    """

    def __init__(self, upstream: str, url: str) -> None:
        self.upstream = urlsplit(upstream)
        self.url = url
        self.requests: list[Request] = []
        self.delay_s = 0.0
        self.decide: Decide | None = None
        self.lock = threading.Lock()

    def reset(self) -> None:
        """Forget the requests counted so far."""
        with self.lock:
            self.requests.clear()

    def count(self, method: str | None = None, *, is_list: bool | None = None) -> int:
        """Requests that arrived since the last reset."""
        with self.lock:
            return sum(
                1
                for request in self.requests
                if (method is None or request.method == method) and (is_list is None or request.is_list == is_list)
            )


@contextlib.contextmanager
def proxy(upstream: str, tls: ssl.SSLContext | None = None) -> Iterator[Proxy]:
    """A proxy in front of `upstream` while the block runs."""

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False
        request_queue_size = 512
        allow_reuse_address = True

        def handle_error(self, request: object, client_address: object) -> None:
            return  # a client that went away

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            client = self.request if tls is None else tls.wrap_socket(self.request, server_side=True)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            address = (state.upstream.hostname, state.upstream.port)
            with client, socket.create_connection(address) as server:
                server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                source = client.makefile("rb", buffering=65536)
                back = server.makefile("rb", buffering=1 << 20)
                while _one_request(state, source, client, back, server):
                    pass

    with Server(("127.0.0.1", 0), Handler) as listener:
        scheme = "http" if tls is None else "https"
        state = Proxy(upstream, f"{scheme}://127.0.0.1:{listener.server_address[1]}")
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield state
        finally:
            listener.shutdown()
            thread.join()


def _one_request(state: Proxy, source: object, client: socket.socket, back: object, server: socket.socket) -> bool:
    """Serve one request; False when the connection is done."""
    line, headers, raw = _head(source)
    if not line:
        return False
    method, target, _ = line.split(" ", 2)
    if target.startswith("http"):
        parts = urlsplit(target)
        target = parts.path + (f"?{parts.query}" if parts.query else "")
    request = Request(method, target, headers)
    body = source.read(int(headers.get("content-length", "0")))  # type: ignore[attr-defined]
    with state.lock:
        state.requests.append(request)
        delay_s = state.delay_s
    if delay_s:
        time.sleep(delay_s)  # noqa: TID251  a thread of the test's server
    fault = state.decide(request) if state.decide else None
    if fault is not None:
        time.sleep(fault.stall_s)  # noqa: TID251
        if fault.answer:
            client.sendall(fault.answer)
            return True
        if fault.drop:
            return False
    server.sendall(raw + body)
    return _answer(back, client, method, fault)


def _head(source: object) -> tuple[str, dict[str, str], bytes]:
    raw = b""
    lines = []
    while piece := source.readline(65536):  # type: ignore[attr-defined]
        raw += piece
        if piece in (b"\r\n", b"\n"):
            break
        lines.append(piece.decode("latin-1").rstrip("\r\n"))
    if not lines:
        return "", {}, b""
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    return lines[0], headers, raw


def _answer(back: object, client: socket.socket, method: str, fault: Fault | None) -> bool:
    line, headers, raw = _head(back)
    while line.split(" ")[1:2] == ["100"]:  # the client has sent its body and does not wait for this
        line, headers, raw = _head(back)
    if not line or (fault is not None and fault.lose_answer):
        return False
    client.sendall(raw)
    status = int(line.split(" ")[1])
    if method == "HEAD" or status in (204, 304) or status < 200:
        return True
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return _chunked(back, client)
    left = int(headers.get("content-length", "0"))
    limit = left if fault is None or fault.forward_bytes is None else min(left, fault.forward_bytes)
    sent = 0
    while sent < limit and (piece := back.read1(min(1 << 20, limit - sent))):  # type: ignore[attr-defined]
        client.sendall(piece)
        sent += len(piece)
    if fault is not None:
        time.sleep(fault.hold_s)  # noqa: TID251
    return sent == left


def _chunked(back: object, client: socket.socket) -> bool:
    while size_line := back.readline():  # type: ignore[attr-defined]
        size = int(size_line.split(b";")[0], 16)
        client.sendall(size_line + back.read(size + 2))  # type: ignore[attr-defined]
        if size == 0:
            return True
    return False
