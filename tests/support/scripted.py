"""An HTTP server on loopback whose answers a test scripts, and a small S3 bucket as such a script.

A script is a function from the request to the bytes of the whole answer, or to one of two
sentinels: `HANG` never answers, `DROP` closes the connection.  It runs on the connection's thread.

`ScriptedBucket` verifies signatures by the published rules (AWS General Reference, "Signature
Version 4 signing process"), so that a test sees what real S3 would have refused.
"""

import contextlib
import hashlib
import hmac
import http.server
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.support.processes import KEY, REGION, SECRET
from tests.support.proxy import Request, error_answer

HANG, DROP = b"<hang>", b"<drop>"


@dataclass(frozen=True)
class Call(Request):
    """A request with its body.

    aiobotocore sends absolute-form targets; `target` is the origin form of either, escaped as it came.
    """

    body: bytes = b""

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(self.target.partition("?")[2], keep_blank_values=True))


Script = Callable[[Call], bytes]


class Scripted:
    """The running server.

    Attributes:
        calls: everything that arrived, in order.
    """

    def __init__(self, url: str, script: Script) -> None:
        self.url = url
        self.script = script
        self.calls: list[Call] = []
        self.is_closing = threading.Event()
        self.lock = threading.Lock()

    def reset(self) -> None:
        """Forget the requests that arrived so far."""
        with self.lock:
            self.calls.clear()


def answer(status: int, body: bytes = b"", **headers: str) -> bytes:
    """A whole HTTP answer; an underscore in a header's name becomes a hyphen."""
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} Scripted\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body


@contextlib.contextmanager
def scripted(script: Script, tls: ssl.SSLContext | None = None) -> Iterator[Scripted]:
    """A server that answers by `script` while the block runs."""

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False
        request_queue_size = 512

        def handle_error(self, request: object, client_address: object) -> None:
            return  # a client that went away

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            if tls is not None:
                self.request = tls.wrap_socket(self.request, server_side=True)
            super().setup()

        def finish(self) -> None:
            super().finish()
            self.request.close()

        def serve(self) -> None:
            _serve(self, state)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = serve

        def log_message(self, format: str, *args: object) -> None:
            return

    with Server(("127.0.0.1", 0), Handler) as listener:
        scheme = "http" if tls is None else "https"
        state = Scripted(f"{scheme}://127.0.0.1:{listener.server_address[1]}", script)
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield state
        finally:
            state.is_closing.set()
            listener.shutdown()
            thread.join()


def _serve(handler: http.server.BaseHTTPRequestHandler, state: Scripted) -> None:
    target = handler.path
    if not target.startswith("/"):
        parts = urlsplit(target)
        target = parts.path + (f"?{parts.query}" if parts.query else "")
    headers = {name.lower(): value.strip() for name, value in handler.headers.items()}
    body = handler.rfile.read(int(headers.get("content-length", "0")))
    call = Call(handler.command, target, headers, body)
    with state.lock:
        state.calls.append(call)
    raw = state.script(call)
    if raw == HANG:
        state.is_closing.wait()
    if raw in (HANG, DROP):
        handler.close_connection = True
        return
    if call.method == "HEAD":
        raw = raw.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    handler.wfile.write(raw)


# -- who asked, and what it signed ------------------------------------------------------------


class Signature(NamedTuple):
    """What an Authorization header says; `date` is the day of the credential scope."""

    access_key: str
    date: str
    region: str
    service: str
    signed_headers: str
    value: str


def signature_of(request: Request) -> Signature | None:
    """The SigV4 signature of a request, or None when it is anonymous."""
    header = request.headers.get("authorization")
    if header is None:
        return None
    fields = dict(part.strip().split("=", 1) for part in header.removeprefix("AWS4-HMAC-SHA256 ").split(","))
    access_key, date, region, service, _ = fields["Credential"].split("/")
    return Signature(access_key, date, region, service, fields["SignedHeaders"], fields["Signature"])


def is_from_crt(request: Request) -> bool:
    """Whether the AWS CRT sent it; everything else here comes from botocore."""
    return "CRTS3NativeClient" in request.headers.get("user-agent", "")


def is_signed_with(request: Request, secret: str) -> bool:
    """Whether the signature is right for this secret, target and set of headers."""
    found = signature_of(request)
    if found is None:
        return False
    path, _, query = request.target.partition("?")
    pairs = sorted((quote(n, safe="-_.~"), quote(v, safe="-_.~")) for n, v in parse_qsl(query, keep_blank_values=True))
    canonical = "\n".join(
        [
            request.method,
            quote(unquote(path), safe="/-_.~"),
            "&".join(f"{name}={value}" for name, value in pairs),
            *(f"{name}:{' '.join(request.headers[name].split())}" for name in found.signed_headers.split(";")),
            "",
            found.signed_headers,
            request.headers["x-amz-content-sha256"],
        ]
    )
    scope = f"{found.date}/{found.region}/{found.service}/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{request.headers['x-amz-date']}\n{scope}\n{digest}"
    key = b"AWS4" + secret.encode()
    for part in (found.date, found.region, found.service, "aws4_request", text):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.compare_digest(key.hex(), found.value)


# -- a bucket ---------------------------------------------------------------------------------


class ScriptedBucket:
    """S3's answers to LIST, HEAD and ranged GET for one bucket in path style.

    Attributes:
        region: where it is; a signature for another region is refused.
        secrets: of every access key that may sign; None takes any signature, and none.
        malformed: refuse a wrong region as 400 AuthorizationHeaderMalformed, not 301 PermanentRedirect.
    """

    def __init__(self, name: str, *, region: str = REGION, malformed: bool = False) -> None:
        self.name = name
        self.region = region
        self.malformed = malformed
        self.secrets: Callable[[str], str | None] | None = {KEY: SECRET}.get
        self.objects: dict[str, bytes] = {}

    def __call__(self, call: Call) -> bytes:
        return self._refusal(call) or self._answer(call)

    def _refusal(self, call: Call) -> bytes | None:
        if self.secrets is None:
            return None
        found = signature_of(call)
        if found is None:
            return error_answer(403, "AccessDenied")
        if found.region != self.region:
            return self._redirect()
        secret = self.secrets(found.access_key)
        if secret is None:
            return error_answer(403, "InvalidAccessKeyId")
        return None if is_signed_with(call, secret) else error_answer(403, "SignatureDoesNotMatch")

    def _redirect(self) -> bytes:
        if self.malformed:
            xml = (
                "<Error><Code>AuthorizationHeaderMalformed</Code><Message>the region is wrong</Message>"
                f"<Region>{self.region}</Region></Error>"
            )
            return answer(400, xml.encode(), Content_Type="application/xml")
        return error_answer(301, "PermanentRedirect", x_amz_bucket_region=self.region)

    def _answer(self, call: Call) -> bytes:
        if call.path.rstrip("/") == f"/{self.name}":
            return self._list(call.query.get("prefix", ""))
        key = unquote(call.path.removeprefix(f"/{self.name}/"))
        content = self.objects.get(key)
        if content is None:
            return error_answer(404, "NoSuchKey")
        headers = {"ETag": etag(content), "Last_Modified": "Wed, 01 Jan 2020 00:00:00 GMT"}
        bounds = call.headers.get("range", "")
        if not bounds:
            return answer(200, content, **headers)
        first, _, last = bounds.removeprefix("bytes=").partition("-")
        piece = content[int(first) : int(last) + 1]
        shown = f"bytes {first}-{int(first) + len(piece) - 1}/{len(content)}"
        return answer(206, piece, Content_Range=shown, **headers)

    def _list(self, prefix: str) -> bytes:
        items = "".join(
            f"<Contents><Key>{quote(key)}</Key><LastModified>2020-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>{escape(etag(content))}</ETag><Size>{len(content)}</Size></Contents>"
            for key, content in sorted(self.objects.items())
            if key.startswith(prefix)
        )
        xml = (
            '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><EncodingType>url</EncodingType>'
            f"<Name>{self.name}</Name><IsTruncated>false</IsTruncated>{items}</ListBucketResult>"
        )
        return answer(200, xml.encode(), Content_Type="application/xml")


def etag(content: bytes) -> str:
    """The ETag that `ScriptedBucket` gives to a content."""
    return f'"{hashlib.md5(content).hexdigest()}"'
