"""A bucket that nobody stores: the proxy answers for it, so that it can be of any size.

LIST, HEAD, and GET of a range, of files in one flat directory; everything else goes on to the real
server, where the bucket exists and is empty.  Content is a formula of file and offset.
"""

import struct
from collections.abc import Mapping
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.proxy import Fault, Request

_BLOCK = 4096
_ETAG = '"0123456789abcdef0123456789abcdef"'


def content_at(key: str, start: int, stop: int) -> bytes:
    """Bytes of a scripted file: each block holds its own number, seeded by the key."""
    seed = int.from_bytes(key.encode()[-4:].rjust(4, b"\0"), "little") << 32
    first, last = start // _BLOCK, -(-stop // _BLOCK)
    blocks = b"".join(struct.pack("<Q", seed + index) * (_BLOCK // 8) for index in range(first, last))
    return blocks[start - first * _BLOCK : stop - first * _BLOCK]


class ScriptedBucket:
    """Give `decide` to a proxy.

    Args:
        files: sizes by key; no key has a slash.
    """

    def __init__(self, files: Mapping[str, int]) -> None:
        self._files = files

    def decide(self, request: Request) -> Fault | None:
        """The answer to a LIST of the bucket, a GET or a HEAD of a file; None forwards the request."""
        if request.method not in ("GET", "HEAD"):
            return None
        if request.is_list:
            return Fault(answer=self._list(parse_qs(urlsplit(request.target).query).get("prefix", [""])[0]))
        key = unquote(urlsplit(request.target).path).rpartition("/")[2]
        if key not in self._files:
            return None
        if request.method == "HEAD":
            return Fault(answer=self._head(key))
        first, _, last = request.headers["range"].removeprefix("bytes=").partition("-")
        return Fault(answer=self._get(key, int(first), int(last) + 1))

    def _list(self, prefix: str) -> bytes:
        contents = "".join(
            f"<Contents><Key>{key}</Key><LastModified>2024-05-06T07:08:09.000Z</LastModified>"
            f"<ETag>{_ETAG.replace(chr(34), '&quot;')}</ETag><Size>{size}</Size>"
            "<StorageClass>STANDARD</StorageClass></Contents>"
            for key, size in sorted(self._files.items())
            if key.startswith(prefix)
        )
        body = (
            '<?xml version="1.0" encoding="UTF-8"?>'
            '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<IsTruncated>false</IsTruncated>{contents}</ListBucketResult>"
        ).encode()
        return b"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    def _head(self, key: str) -> bytes:
        return (
            f"HTTP/1.1 200 OK\r\nETag: {_ETAG}\r\nAccept-Ranges: bytes\r\n"
            f"Last-Modified: Mon, 06 May 2024 07:08:09 GMT\r\nContent-Length: {self._files[key]}\r\n\r\n"
        ).encode()

    def _get(self, key: str, start: int, stop: int) -> bytes:
        size = self._files[key]
        body = content_at(key, start, min(stop, size))
        head = (
            f"HTTP/1.1 206 Partial Content\r\nETag: {_ETAG}\r\nAccept-Ranges: bytes\r\n"
            f"Content-Range: bytes {start}-{start + len(body) - 1}/{size}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body
