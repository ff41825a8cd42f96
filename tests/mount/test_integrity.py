"""Bytes that changed on their way never reach a program."""

import errno
import zlib
from base64 import b64encode
from pathlib import Path

import pytest

from tests.support.content import make_content
from tests.support.mounts import mounted
from tests.support.scripted import Call, ScriptedBucket, scripted

pytestmark = pytest.mark.mount

_CONTENT = make_content("integrity", 100_000)
_CHECKSUM = b64encode(zlib.crc32(_CONTENT).to_bytes(4, "big")).decode()


class _Corrupting(ScriptedBucket):
    """Each GET of an object carries the object's checksum; of the first `left` bodies one bit is wrong."""

    def __init__(self) -> None:
        super().__init__("bucket")
        self.objects["file"] = _CONTENT
        self.left = 0

    def __call__(self, call: Call) -> bytes:
        head, mark, body = super().__call__(call).partition(b"\r\n\r\n")
        if call.method != "GET" or not body or "list-type" in call.target:
            return head + mark + body
        head += f"\r\nx-amz-checksum-type: FULL_OBJECT\r\nx-amz-checksum-crc32: {_CHECKSUM}".encode()
        if self.left:
            self.left -= 1
            body = body[:-1] + bytes([body[-1] ^ 1])
        return head + mark + body


def test_changed_bytes_are_never_handed_on(work: Path) -> None:
    """Content that came whole and does not have the checksum that S3 gives with it is never handed on."""
    bucket = _Corrupting()
    with scripted(bucket) as server, mounted("bucket", work, url=server.url) as mount:
        file = mount.path / "file"
        assert file.stat().st_size == len(_CONTENT)
        bucket.left = 1
        server.reset()
        try:
            content = file.read_bytes()
        except OSError as error:
            assert error.errno == errno.EIO  # noqa: PT017  a retry that nobody notices is as good
            content = file.read_bytes()
        assert content == _CONTENT
        assert bucket.left == 0
        assert [call.method for call in server.calls if "list-type" not in call.target] == ["GET", "GET"]
