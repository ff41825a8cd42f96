"""What objects are written with, by either client: checksums, storage class, encryption; and what a body costs."""

from datetime import UTC, datetime
from email.header import decode_header, make_header
from typing import Any

import pytest
import trio

from s3mount.store.connect import connect
from s3mount.store.crt_writer import CrtWriter
from s3mount.store.heads import as_sent, described
from s3mount.store.transit import MIN_TRANSIT
from s3mount.store.write_config import WriteConfig
from s3mount.store.writing import NEW
from s3mount.units import MIB
from tests.store.conftest import CRT, Front, config
from tests.store.writers import WriterBucket, server_bucket, writer_of
from tests.support.content import make_content
from tests.support.proxy import Fault, Request
from tests.support.servers import Server

PART = 5 * MIB
CHECKSUMS = ("ChecksumCRC32C", "ChecksumCRC64NVME")


@pytest.fixture(params=("aiobotocore", "crt", "large"))
def client(request: pytest.FixtureRequest) -> str:
    """Which way bodies take."""
    return str(request.param)


def head(bucket: WriterBucket, key: str) -> dict[str, Any]:
    """What another client is told, checksums included."""
    assert bucket.server is not None
    answer: dict[str, Any] = bucket.server.client.head_object(Bucket=bucket.name, Key=key, ChecksumMode="ENABLED")
    return answer


async def write_both_ways(bucket: WriterBucket) -> None:
    """One object by a put, one of two parts."""
    await bucket.writer.put("put", [b"content"])
    upload = await bucket.writer.create_upload("parts")
    parts = [await bucket.writer.upload_part(upload, 1, [make_content("1", PART)])]
    parts.append(await bucket.writer.upload_part(upload, 2, [b"tail"]))
    await bucket.writer.complete(upload, parts)


@pytest.mark.parametrize("value", ["plain text", "", "Zürich", "\u65e5\u672c" * 40])
def test_metadata_can_be_sent_again(value: str) -> None:
    """Whatever a server says of metadata can be a header of the next version, and says the same."""
    sent = as_sent(value)
    assert sent.isascii()
    assert sent.isprintable()
    assert str(make_header(decode_header(sent))) == value


def test_an_expiry_that_is_no_time() -> None:
    """It is not sent with what is made of the object, since botocore would refuse to; one that is a time is."""
    answer = {"ContentLength": 1, "LastModified": datetime.now(UTC), "ExpiresString": "soon"}
    assert described("key", answer).attributes.headers == {}
    answer |= {"ExpiresString": "0", "Expires": datetime.now(UTC)}
    assert described("key", answer).attributes.headers == {"expires": "0"}


@pytest.mark.server
@pytest.mark.parametrize(
    ("checksums", "of_put", "of_parts"),
    [
        ("crc32c", {"ChecksumCRC32C": "Ya91Mw=="}, "ChecksumCRC32C"),
        ("crc64nvme", {"ChecksumCRC64NVME": "lhVdXyVQTGE="}, "ChecksumCRC64NVME"),
        ("off", {}, None),
    ],
)
async def test_objects_have_checksums(
    weed: Server, keys: None, client: str, checksums: str, of_put: dict[str, str], of_parts: str | None
) -> None:
    """S3 verified and keeps the checksum that the mount asks for; of parts, too; with off there is none."""
    async with server_bucket("weed", weed, client, WriteConfig(checksums)) as bucket:
        await write_both_ways(bucket)
        found = {name: value for name, value in head(bucket, "put").items() if name in CHECKSUMS}
        assert found == of_put
        assert bucket.content("parts") == make_content("1", PART) + b"tail"
        kept = [name for name in head(bucket, "parts") if name in CHECKSUMS]
        assert kept == ([] if of_parts is None else [of_parts])


@pytest.mark.server
async def test_objects_have_class_and_encryption(moto_server: Server, keys: None, client: str) -> None:
    """Storage class, encryption and key of the mount are on what is put, put together, copied and changed."""
    key_id = "arn:aws:kms:us-east-1:123456789012:key/00000000-0000-0000-0000-000000000000"
    writing = WriteConfig("crc32c", "STANDARD_IA", "aws:kms", key_id)
    async with server_bucket("moto", moto_server, client, writing) as bucket:
        await write_both_ways(bucket)
        moto_server.client.put_object(Bucket=bucket.name, Key="theirs", Body=b"x", StorageClass="ONEZONE_IA")
        theirs = await bucket.writer.describe("theirs")
        assert theirs.attributes.storage_class == "ONEZONE_IA"
        await bucket.writer.copy(theirs.stat, "copy")
        await bucket.writer.put("changed", [b"y"], attributes=theirs.attributes)
        for key in ("put", "parts", "copy", "changed"):
            found = head(bucket, key)
            assert (found["StorageClass"], found["ServerSideEncryption"]) == ("STANDARD_IA", "aws:kms"), key
            assert found["SSEKMSKeyId"] == key_id, key


@pytest.mark.server
async def test_a_copy_keeps_the_storage_class(moto_server: Server, keys: None) -> None:
    """S3 would make it STANDARD."""
    async with server_bucket("moto", moto_server, "crt") as bucket:
        moto_server.client.put_object(Bucket=bucket.name, Key="cold", Body=b"x", StorageClass="ONEZONE_IA")
        await bucket.writer.copy((await bucket.writer.describe("cold")).stat, "copy")
        assert head(bucket, "copy")["StorageClass"] == "ONEZONE_IA"


# -- a body on its way ----------------------------------------------------------------------------


@pytest.mark.server
async def test_a_put_that_is_cancelled_is_whole_or_not_there(front: Front) -> None:
    """Given up while the server waits for it: its memory is counted until the CRT lets go, and no half object comes."""
    arrived, may_pass = front.hold_puts()
    s3 = config(front.name, front.proxy.url)
    content = make_content("cancelled", MIB)
    async with connect(s3, CRT) as connection:
        writer = CrtWriter(connection.reader.requests, connection.client, s3, WriteConfig())
        transit = connection.reader.transit
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.put, "object", [content])
            await trio.to_thread.run_sync(arrived.wait)
            assert transit.statistics().used == MIB
            nursery.cancel_scope.cancel()
        may_pass.set()
        with trio.fail_after(30):
            transit.leave(await transit.enter(MIN_TRANSIT))  # there is as much when nothing is on its way
        await writer.put("next", [content])
    listed = front.server.client.list_objects_v2(Bucket=front.name)["Contents"]
    assert [each["Key"] for each in listed] == ["next"]
    assert transit.statistics().used == 0


@pytest.mark.server
async def test_a_lost_answer_of_a_server_is_recognised(front: Front, client: str) -> None:
    """S3 wrote the object and the connection broke: the put succeeds, by the token; and its object is the only one."""
    puts = 0

    def decide(request: Request) -> Fault | None:
        nonlocal puts
        puts += request.method == "PUT"
        return Fault(lose_answer=True) if request.method == "PUT" and puts == 1 else None

    front.proxy.decide = decide
    s3 = config(front.name, front.proxy.url)
    async with connect(s3, CRT) as connection:
        with writer_of(connection, s3, client) as writer:
            written = await writer.put("object", [b"content"], NEW)
    assert puts == 2
    found = front.server.client.get_object(Bucket=front.name, Key="object")
    assert found["Body"].read() == b"content"
    assert found["ETag"] == written.id.etag
