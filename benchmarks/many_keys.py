"""An S3 server of keys without objects: a million names that nobody had to store.

It answers ListObjectsV2 over a key set in memory, with prefix, delimiter, start-after,
continuation-token, max-keys and encoding-type as S3 defines them (Amazon S3 API Reference,
"ListObjectsV2"), HEAD and GET of single keys, and nothing else; it looks at no signature.  Pages
look as S3 writes them.  SeaweedFS takes longer to store these keys than all else takes here, and
more CPU for a page, on the cores that are being measured.

usage: python -m benchmarks.many_keys PORT SHAPE DIRECTORY N [N_DIRECTORIES]     SHAPE as in `keysets`
"""

import contextlib
import re
import socket
import subprocess
import sys
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.sax.saxutils import escape

from benchmarks import keysets
from tests.support.processes import free_port, running, wait_until

_SHAPES = {"padded": keysets.padded, "hexadecimal": keysets.hexadecimal, "classes": keysets.classes}
_DATE = "2026-11-29T15:25:30.000Z"
#: Of every object, bytes: an ImageNet sample.
SIZE = 115_000
#: Sorts after every key that starts with the string before it.
_AFTER_ALL = "\U0010ffff"
_PLAIN = re.compile(r"[A-Za-z0-9/._-]*")


@dataclass(frozen=True)
class KeySet:
    """Keys in S3's order."""

    keys: list[str]

    def page(self, query: dict[str, str]) -> bytes:
        """The answer to one ListObjectsV2 with these parameters."""
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        room = min(int(query.get("max-keys", "1000")), 1000)
        at = bisect_left(self.keys, prefix)
        if "continuation-token" in query:
            at = int(query["continuation-token"])
        elif query.get("start-after"):
            at = max(at, self._after(query["start-after"], delimiter, prefix))
        end = bisect_left(self.keys, prefix + _AFTER_ALL)
        found, at = self._collect(at, end, prefix, delimiter, room)
        is_truncated = room > 0 and at < end
        head = f"<IsTruncated>{str(is_truncated).lower()}</IsTruncated><Prefix>{_text(prefix)}</Prefix>"
        head += f"<KeyCount>{len(found)}</KeyCount><MaxKeys>{room}</MaxKeys>"
        if query.get("encoding-type") == "url":
            head += "<EncodingType>url</EncodingType>"
        if is_truncated:
            head += f"<NextContinuationToken>{at}</NextContinuationToken>"
        namespace = "http://s3.amazonaws.com/doc/2006-03-01/"
        body = f'<ListBucketResult xmlns="{namespace}"><Name>many</Name>{head}{"".join(found)}</ListBucketResult>'
        return b'<?xml version="1.0" encoding="UTF-8"?>\n' + body.encode()

    def _after(self, key: str, delimiter: str, prefix: str) -> int:
        """The place of the first key after `key`; a common prefix is passed as a whole."""
        is_group = delimiter and key.find(delimiter, len(prefix)) == len(key) - 1
        return bisect_left(self.keys, key + (_AFTER_ALL if is_group else "\0"))

    def _collect(self, at: int, end: int, prefix: str, delimiter: str, room: int) -> tuple[list[str], int]:
        """Up to `room` elements from a place on, and the place after them."""
        found: list[str] = []
        while at < end and len(found) < room:
            cut = self.keys[at].find(delimiter, len(prefix)) if delimiter else -1
            if cut < 0:
                found.append(_contents(self.keys[at]))
                at += 1
            else:
                group = self.keys[at][: cut + len(delimiter)]
                found.append(f"<CommonPrefixes><Prefix>{_text(group)}</Prefix></CommonPrefixes>")
                at = bisect_left(self.keys, group + _AFTER_ALL)
        return found, at

    def __contains__(self, key: str) -> bool:
        at = bisect_left(self.keys, key)
        return at < len(self.keys) and self.keys[at] == key


def _contents(key: str) -> str:
    return (
        f"<Contents><Key>{_text(key)}</Key><LastModified>{_DATE}</LastModified><ETag>&quot;{_etag(key)}&quot;</ETag>"
        f"<ChecksumAlgorithm>CRC64NVME</ChecksumAlgorithm><ChecksumType>FULL_OBJECT</ChecksumType>"
        f"<Size>{SIZE}</Size><StorageClass>STANDARD</StorageClass></Contents>"
    )


def _text(key: str) -> str:
    return key if _PLAIN.fullmatch(key) else escape(quote(key, safe="/-_.~"))


def _etag(key: str) -> str:
    """Random as an ETag is, different for every key, the same in every process."""
    return md5(key.encode(), usedforsecurity=False).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    keys: KeySet

    def do_GET(self) -> None:
        url = urlsplit(self.path)  # aiobotocore sends the absolute form
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        if "list-type" in query:
            self._answer(200, self.keys.page(query), {"Content-Type": "application/xml"})
            return
        key = unquote(url.path).split("/", 2)[-1]
        if key in self.keys:
            dates = {"ETag": f'"{_etag(key)}"', "Last-Modified": "Sun, 29 Nov 2026 15:25:30 GMT"}
            self._answer(200, bytes(SIZE), dates)
        else:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>", {"Content-Type": "application/xml"})

    do_HEAD = do_GET

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """nginx in front of it counts."""


class _Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True


def make_keys(shape: str, directory: str, *numbers: int) -> list[str]:
    """The key set of a shape by its name."""
    return keysets.tree(directory, *numbers) if shape == "tree" else _SHAPES[shape](directory, *numbers)


@contextlib.contextmanager
def many_keys(work: Path, shape: str, directory: str, *numbers: int) -> Iterator[str]:
    """host:port of a running server; any bucket name does."""
    work.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.many_keys", str(port), shape, directory, *map(str, numbers)]
    with running(command, work / "many_keys.log") as process:
        wait_until(lambda: _listens(port, process), 60, "generating keys")
        yield f"127.0.0.1:{port}"


def _listens(port: int, process: "subprocess.Popen[bytes]") -> bool:
    if process.poll() is not None:
        raise RuntimeError(f"the server of keys ended with {process.returncode}")
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def main(port: str, shape: str, directory: str, *numbers: str) -> None:
    _Handler.keys = KeySet(make_keys(shape, directory, *map(int, numbers)))
    _Server(("127.0.0.1", int(port)), _Handler).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
