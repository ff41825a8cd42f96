"""Which checksums of S3 verify a content, and what happens when they do not match."""

import zlib
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from s3mount.core.attrs import ObjectId
from s3mount.core.ranges import ByteRange
from s3mount.errors import StoreFailure
from s3mount.store.connect import connect
from s3mount.store.guarded import GuardedStore
from tests.store.conftest import CRT, PART, config, guarded_store_of
from tests.support.content import make_content
from tests.support.scripted import Call, Scripted, ScriptedBucket, etag, scripted

#: The check values of the catalogue of parametrised CRC algorithms, of the nine digits.
DIGITS = b"123456789"
RIGHT = {
    "crc32": b64encode(bytes.fromhex("cbf43926")).decode(),
    "crc32c": b64encode(bytes.fromhex("e3069283")).decode(),
    "crc64nvme": b64encode(bytes.fromhex("ae8b14860a799888")).decode(),
}
WRONG = {name: b64encode(bytes(len(value) * 3 // 4 - value.count("="))).decode() for name, value in RIGHT.items()}


def crc32(content: bytes) -> str:
    return b64encode(zlib.crc32(content).to_bytes(4, "big")).decode()


class Checksummed(ScriptedBucket):
    """A bucket whose GETs carry headers of the test's choice."""

    def __init__(self) -> None:
        super().__init__("bucket")
        self.extra: dict[str, str] = {}
        self.client = "crt"

    def __call__(self, call: Call) -> bytes:
        line, _, rest = super().__call__(call).partition(b"\r\n")
        if "list-type" in call.target or call.method != "GET":
            return line + b"\r\n" + rest
        lines = "".join(f"{name}: {value}\r\n" for name, value in self.extra.items())
        return line + b"\r\n" + lines.encode() + rest


class Reader:
    """Reads objects of the bucket through the CRT."""

    def __init__(self, bucket: Checksummed, server: Scripted, store: GuardedStore) -> None:
        self.bucket = bucket
        self.server = server
        self.store = store

    async def read(self, content: bytes, span: ByteRange | None = None, **checksum: str) -> bytes:
        """Get an object with that content, or a range of it, whose GET carries `x-amz-checksum-NAME` headers."""
        self.bucket.objects["object"] = content
        self.bucket.extra = {f"x-amz-checksum-{name}": value for name, value in checksum.items()}
        self.server.reset()
        wanted = ObjectId("object", etag(content))
        got = await self.store.get_range(wanted, span or ByteRange(0, len(content)))
        assert len(self.server.calls) == 1  # no HEAD, no second GET
        return got


@pytest.fixture
def served(keys: None, client: str) -> Iterator[tuple[Checksummed, Scripted]]:
    bucket = Checksummed()
    bucket.client = client
    with scripted(bucket) as server:
        yield bucket, server


@asynccontextmanager
async def reader(served: tuple[Checksummed, Scripted]) -> AsyncIterator[Reader]:
    bucket, server = served
    async with connect(config("bucket", server.url), CRT) as connection:
        yield Reader(bucket, server, guarded_store_of(connection, bucket.client))


@pytest.mark.parametrize("name", RIGHT)
async def test_a_right_checksum_verifies(served: tuple[Checksummed, Scripted], name: str) -> None:
    """The three CRCs of the whole object, in S3's own notation."""
    async with reader(served) as get:
        assert await get.read(DIGITS, type="FULL_OBJECT", **{name: RIGHT[name]}) == DIGITS


@pytest.mark.parametrize("name", RIGHT)
async def test_a_wrong_checksum_is_a_failure(served: tuple[Checksummed, Scripted], name: str) -> None:
    """The bytes are not handed on; the message has both checksums and the key."""
    async with reader(served) as get:
        with pytest.raises(StoreFailure) as caught:
            await get.read(DIGITS, type="FULL_OBJECT", **{name: WRONG[name]})
        for fact in (name.upper(), RIGHT[name], WRONG[name], "key='object'", "operation=GetObject"):
            assert fact in str(caught.value)
        assert await get.read(DIGITS, type="FULL_OBJECT", **{name: RIGHT[name]}) == DIGITS


@pytest.mark.parametrize("size", [1, PART - 1, PART])
async def test_a_content_of_any_size_up_to_a_part_is_verified(served: tuple[Checksummed, Scripted], size: int) -> None:
    """One byte, all but a part, a part: right is right, and one bit more is not."""
    content = make_content("checksum", size)
    changed = content[:-1] + bytes([content[-1] ^ 1])
    async with reader(served) as get:
        assert await get.read(content, type="FULL_OBJECT", crc32=crc32(content)) == content
        with pytest.raises(StoreFailure, match="CRC32"):
            await get.read(content, type="FULL_OBJECT", crc32=crc32(changed))


@pytest.mark.parametrize("checksum", [
    {"type": "COMPOSITE", "crc32": WRONG["crc32"] + "-3"},
    {"type": "COMPOSITE", "crc32": WRONG["crc32"]},
    {"crc32": WRONG["crc32"]},
    {"type": "FULL_OBJECT", "sha256": "AAAA", "xxhash128": "AAAA", "md5": "AAAA"},
    {"type": "FULL_OBJECT"},
], ids=["composite", "composite of a range", "no type", "other algorithms", "none"])  # fmt: skip
async def test_what_says_nothing_of_the_content_is_ignored(
    served: tuple[Checksummed, Scripted], checksum: dict[str, str]
) -> None:
    """Checksums of checksums, of no type, of other algorithms: the content comes as without them."""
    async with reader(served) as get:
        assert await get.read(DIGITS, **checksum) == DIGITS


@pytest.mark.parametrize("span", [ByteRange(0, 8), ByteRange(1, 9), ByteRange(3, 4)])
async def test_a_part_of_an_object_is_not_measured_by_the_whole(
    served: tuple[Checksummed, Scripted], span: ByteRange
) -> None:
    """A server that sends the whole object's checksum with a range of it is read all the same."""
    async with reader(served) as get:
        assert await get.read(DIGITS, span, type="FULL_OBJECT", crc32=RIGHT["crc32"]) == DIGITS[span.start : span.stop]


async def test_only_what_may_be_a_whole_object_asks(served: tuple[Checksummed, Scripted]) -> None:
    """GETs from the first byte on ask for the checksum, and sign the question; others do not."""
    async with reader(served) as get:
        for start in (0, 1):
            await get.read(DIGITS, ByteRange(start, 9))
            (call,) = get.server.calls
            assert call.headers.get("x-amz-checksum-mode") == (None if start else "ENABLED")
            assert ("x-amz-checksum-mode" in call.headers["authorization"]) == (not start)
