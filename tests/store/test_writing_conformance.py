"""The contract of `store.writing`, written once: the fake, moto and SeaweedFS, by each way that a body takes.

Where a server deviates (versions: `constraints.txt`):

* moto ignores the conditions of CopyObject, CopySourceIfMatch, and If-Match of CompleteMultipartUpload; it answers 500
  where there is no such upload, and keeps a complete one.
* SeaweedFS guesses a content type from the key, sends the ETag of a copy without quotes (`s3_writer.quoted`), and
  knows no server-side encryption without a key of its own.  It lists a part that was sent again with the one that
  took its place; each has its ETag.
* A directory bucket lists uploads only below prefixes that end in a slash.  It is emulated (tests.support).
* Both answer a complete that is repeated as S3 does, with success.
"""

from collections.abc import AsyncIterator
from functools import partial

import pytest
import trio

from s3mount.core.attrs import ObjectId, ObjectStat
from s3mount.core.ranges import ByteRange
from s3mount.core.uploads import MIN_PART
from s3mount.errors import AlreadyExists, KeyTooLong, ObjectChanged, ObjectNotFound, StoreError, UploadNotFound
from s3mount.store.writing import ANYTHING, NEW, Attributes, Condition, Part, Upload
from tests.store.writers import WriterBucket, express_bucket, fake_bucket, server_bucket
from tests.support.content import make_content
from tests.support.servers import Server

ODD_KEYS = (
    "a#b", "a?b=c&d=e", "a%2Fb", "%zz", "a+b", "a b", "a\"b'c`d", "<xml>&amp;", "*(a)!~", "[a]{b}|^",
    "e\u0301", "\N{GRINNING FACE}/\N{PILE OF POO}", "dir/sub/x",
)  # fmt: skip


@pytest.fixture(
    params=[
        "fake",
        "guarded",
        "patient",
        *(pytest.param(each, marks=pytest.mark.server) for each in ("moto-large", "weed-crt", "weed-aiobotocore")),
        "express-large",
    ]
)
async def bucket(request: pytest.FixtureRequest, keys: None) -> AsyncIterator[WriterBucket]:
    """An empty bucket of every flavour."""
    kind, _, client = request.param.partition("-")
    if not client:
        yield fake_bucket(kind)
        return
    if kind == "express":
        async with express_bucket(client) as found:
            yield found
        return
    server: Server = request.getfixturevalue({"moto": "moto_server", "weed": "weed"}[kind])
    async with server_bucket(kind, server, client) as found:
        yield found


OTHER = Condition(etag='"00000000000000000000000000000000"')


async def stat_of(bucket: WriterBucket, key: str, content: bytes, attributes: Attributes | None = None) -> ObjectStat:
    """Writes an object; its stat by HEAD."""
    await bucket.writer.put(key, [content], ANYTHING, attributes or Attributes())
    return (await bucket.writer.describe(key)).stat


# -- whole objects ----------------------------------------------------------------------------


async def test_what_was_put_is_there(bucket: WriterBucket) -> None:
    """Byte for byte for another client, with the ETag that the answer had, from pieces of any length and none."""
    content = make_content("put", 300_001)
    pieces = [content[:1], b"", memoryview(content)[1:200_000], memoryview(content)[200_000:]]
    for key, body, expected in (("object", pieces, content), ("empty", [], b""), ("blank", [b""], b"")):
        written = await bucket.writer.put(key, body)
        assert bucket.content(key) == expected
        found = (await bucket.writer.describe(key)).stat
        assert written.id == found.id
        assert found.size == len(expected)
        assert written.mtime_s in (None, found.mtime_s)


async def test_odd_keys_are_written_and_deleted_byte_for_byte(bucket: WriterBucket) -> None:
    """Each under exactly its own name: put, copied, put together of parts, deleted."""
    for key in ODD_KEYS:
        stat = await stat_of(bucket, key, key.encode())
        await bucket.writer.copy(stat, f"copy/{key}")
        assert bucket.content(f"copy/{key}") == key.encode()
        upload = await bucket.writer.create_upload(f"whole/{key}")
        await bucket.writer.complete(upload, [await bucket.writer.upload_part(upload, 1, [key.encode()])])
        assert bucket.content(f"whole/{key}") == key.encode()
    assert sorted(bucket.listed()) == sorted(where + key for key in ODD_KEYS for where in ("", "copy/", "whole/"))
    assert await bucket.writer.delete_many([f"copy/{key}" for key in ODD_KEYS]) == {}
    for key in ODD_KEYS:
        await bucket.writer.delete(f"whole/{key}")
    assert sorted(bucket.listed()) == sorted(ODD_KEYS)


async def test_a_put_replaces_what_it_may(bucket: WriterBucket) -> None:
    """NEW writes only where nothing is, an ETag only over that version; what is refused changes nothing."""
    first = await bucket.writer.put("object", [b"first"], NEW)
    with pytest.raises(AlreadyExists) as caught:
        await bucket.writer.put("object", [b"second"], NEW)
    assert caught.value.key == "object"
    with pytest.raises(ObjectChanged):
        await bucket.writer.put("object", [b"second"], OTHER)
    with pytest.raises(ObjectChanged):
        await bucket.writer.put("absent", [b"second"], Condition(first.id.etag))
    assert bucket.content("object") == b"first"
    second = await bucket.writer.put("object", [b"second"], Condition(first.id.etag))
    with pytest.raises(ObjectChanged):
        await bucket.writer.put("object", [b"third"], Condition(first.id.etag))
    assert bucket.content("object") == b"second"
    await bucket.writer.put("object", [b"third"])
    assert second.id.etag != first.id.etag
    assert bucket.content("object") == b"third"
    assert sorted(bucket.listed()) == ["object"]


async def test_of_many_that_create_one_wins(bucket: WriterBucket) -> None:
    """Ten writers of one new key at once: one object, nine AlreadyExists."""
    won: list[bytes] = []
    lost = 0

    async def create(content: bytes) -> None:
        nonlocal lost
        try:
            await bucket.writer.put("lock", [content], NEW)
        except AlreadyExists:
            lost += 1
        else:
            won.append(content)

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(create, b"writer %d" % number)
    if bucket.is_moto:  # looks first and writes then, on threads
        assert len(won) + lost == 10
    else:
        assert (len(won), lost) == (1, 9)
        assert bucket.content("lock") == won[0]


async def test_attributes_come_back(bucket: WriterBucket) -> None:
    """Metadata and content type of a put, an upload and a copy are in its description; other objects have none."""
    attributes = Attributes(
        {"content-type": "application/x-tar", "cache-control": "no-cache"}, {"mode": "33188", "link-target": "a/b%20c"}
    )
    stat = await stat_of(bucket, "put", b"content", attributes)
    upload = await bucket.writer.create_upload("upload", attributes)
    await bucket.writer.complete(upload, [await bucket.writer.upload_part(upload, 1, [b"content"])])
    await bucket.writer.copy(stat, "kept")
    await bucket.writer.copy(stat, "replaced", ANYTHING, Attributes({}, {"mode": "0"}))
    for key in ("put", "upload", "kept"):
        found = (await bucket.writer.describe(key)).attributes
        assert attributes.metadata.items() <= found.metadata.items(), key
        assert attributes.headers.items() <= found.headers.items(), key
    replaced = (await bucket.writer.describe("replaced")).attributes
    assert {name: value for name, value in replaced.metadata.items() if name != "s3mount-write"} == {"mode": "0"}
    with pytest.raises(ObjectNotFound):
        await bucket.writer.describe("absent")


async def test_a_copy_onto_itself(bucket: WriterBucket) -> None:
    """A copy of an object onto itself with other attributes keeps the content, and has these; a second one, too."""
    stat = await stat_of(bucket, "a", b"content", Attributes({"content-type": "text/csv"}, {"mode": "1"}))
    for mode in "2", "3":
        written = await bucket.writer.copy(
            stat, "a", ANYTHING, Attributes({"content-type": "text/csv"}, {"mode": mode})
        )
        found = await bucket.writer.describe("a")
        stat = found.stat
        assert (bucket.content("a"), stat.id) == (b"content", written.id)
        assert (found.attributes.metadata["mode"], found.attributes.headers["content-type"]) == (mode, "text/csv")


async def test_a_key_that_is_too_long_is_refused(bucket: WriterBucket) -> None:
    """1,025 bytes are one too many."""
    if not bucket.is_moto:  # which takes any
        with pytest.raises(KeyTooLong):
            await bucket.writer.put("x" * 1025, [b"content"])
    assert bucket.listed() == []


# -- uploads in parts -------------------------------------------------------------------------


async def test_parts_become_an_object(bucket: WriterBucket) -> None:
    """Sent in any order and twice, copied, put together by number: byte for byte, and only when complete."""
    content = make_content("parts", 2 * MIN_PART + 1000)
    source = await stat_of(bucket, "source", content)
    upload = await bucket.writer.create_upload("object")
    last = await bucket.writer.upload_part(upload, 3, [content[2 * MIN_PART :]])
    await bucket.writer.upload_part(upload, 1, [b"not this"])
    first = await bucket.writer.upload_part(upload, 1, [content[:100], memoryview(content)[100:MIN_PART]])
    middle = await bucket.writer.copy_part(upload, 2, source.id, ByteRange(MIN_PART, 2 * MIN_PART))
    assert bucket.listed() == ["source"]
    listed = await bucket.writer.list_parts(upload)
    sizes = [(part.number, part.size) for part in listed.parts if not (bucket.is_weed and part.size == 8)]
    assert sizes == [(1, MIN_PART), (2, MIN_PART), (3, 1000)]
    assert (await bucket.writer.list_parts(upload, 2)).parts[0].number == 3
    written = await bucket.writer.complete(upload, [first, middle, last])
    assert bucket.content("object") == content
    assert (await bucket.writer.describe("object")).stat.id == written.id
    assert await uploads_of(bucket) == []


async def uploads_of(bucket: WriterBucket, prefix: str = "") -> list[tuple[str, str]]:
    """Key and id of every upload under way."""
    found: list[tuple[str, str]] = []
    after = None
    while True:
        page = await bucket.writer.list_uploads(prefix, after)
        found += [(each.key, each.upload_id) for each in page.uploads]
        after = page.after
        if after is None:
            return found


async def test_uploads_are_found_and_dropped(bucket: WriterBucket) -> None:
    """Listed by prefix with the time they began, also two of one key; an abort leaves no part, and may be repeated."""
    uploads = [await bucket.writer.create_upload(key) for key in ("a/1", "a/1", "a/2", "b/1")]
    await bucket.writer.upload_part(uploads[0], 1, [b"content"])
    assert sorted(await uploads_of(bucket)) == sorted(each[:2] for each in uploads)
    assert sorted(await uploads_of(bucket, "a/")) == sorted(each[:2] for each in uploads[:3])
    assert all(each.began_s > 0 for each in (await bucket.writer.list_uploads("")).uploads)
    for upload in uploads[:3]:
        await bucket.writer.abort(upload)
        await bucket.writer.abort(upload)
    assert await uploads_of(bucket) == [uploads[3][:2]]
    if not bucket.is_moto:
        with pytest.raises(UploadNotFound):
            await bucket.writer.upload_part(uploads[0], 2, [b"content"])
        with pytest.raises(UploadNotFound):
            await bucket.writer.complete(uploads[0], [Part(1, '"etag"', 7)])
        with pytest.raises(UploadNotFound):
            await bucket.writer.list_parts(uploads[0])
    assert bucket.listed() == []


async def test_an_upload_replaces_what_it_may(bucket: WriterBucket) -> None:
    """Conditions hold when it is completed, not when it began; refused, it is there still and changes nothing."""

    async def one(content: bytes) -> tuple[Upload, list[Part]]:
        upload = await bucket.writer.create_upload("object")
        return upload, [await bucket.writer.upload_part(upload, 1, [content])]

    early, parts = await one(b"early")
    first = await bucket.writer.complete(*await one(b"first"), NEW)
    with pytest.raises(AlreadyExists):
        await bucket.writer.complete(early, parts, NEW)
    if not bucket.is_moto:
        with pytest.raises(ObjectChanged):
            await bucket.writer.complete(early, parts, OTHER)
    assert bucket.content("object") == b"first"
    await bucket.writer.abort(early)
    await bucket.writer.complete(*await one(b"second"), Condition(first.id.etag))
    assert bucket.content("object") == b"second"


async def test_a_part_that_s3_does_not_have_is_an_error(bucket: WriterBucket) -> None:
    """No object is made of what was not sent."""
    upload = await bucket.writer.create_upload("object")
    part = await bucket.writer.upload_part(upload, 1, [b"content"])
    for wrong in ([part._replace(etag='"no such part"')], [part._replace(number=2)]):
        with pytest.raises(StoreError):
            await bucket.writer.complete(upload, wrong)
    assert bucket.listed() == []


# -- copies -----------------------------------------------------------------------------------


async def test_a_copy_is_of_one_version(bucket: WriterBucket) -> None:
    """Of exactly that version: replaced or deleted, it is ObjectChanged, and nothing is written."""
    old = await stat_of(bucket, "source", b"old")
    new = await stat_of(bucket, "source", b"new content")
    written = await bucket.writer.copy(new, "copy")
    assert bucket.content("copy") == b"new content"
    assert (await bucket.writer.describe("copy")).stat.id == written.id
    assert written.mtime_s == (await bucket.writer.describe("copy")).stat.mtime_s
    upload = await bucket.writer.create_upload("parts")
    if not bucket.is_moto:
        with pytest.raises(ObjectChanged):
            await bucket.writer.copy(old, "another")
        with pytest.raises(ObjectChanged):
            await bucket.writer.copy_part(upload, 1, old.id, ByteRange(0, 3))
    for gone in (new._replace(key="absent"), new._replace(key="absent", etag="")):
        with pytest.raises(ObjectChanged):
            await bucket.writer.copy(gone, "another")
        with pytest.raises(ObjectChanged):
            await bucket.writer.copy_part(upload, 1, gone.id, ByteRange(0, 3))
    assert sorted(bucket.listed()) == ["copy", "source"]


async def test_a_copy_replaces_what_it_may(bucket: WriterBucket) -> None:
    """NEW, which is link(2), fails where something is; an ETag replaces that version only."""
    source = await stat_of(bucket, "source", b"content")
    there = await stat_of(bucket, "there", b"there")
    await bucket.writer.copy(source, "link", NEW)
    if not bucket.is_moto:
        with pytest.raises(AlreadyExists):
            await bucket.writer.copy(source, "there", NEW)
        with pytest.raises(ObjectChanged):
            await bucket.writer.copy(source, "there", OTHER)
        with pytest.raises(ObjectChanged):
            await bucket.writer.copy(source._replace(etag=OTHER.etag), "free", NEW)
        assert bucket.content("there") == b"there"
    await bucket.writer.copy(source, "there", Condition(there.etag))
    assert sorted(bucket.listed()) == ["link", "source", "there"]
    assert {bucket.content(key) for key in bucket.listed()} == {b"content"}


# -- deletion ---------------------------------------------------------------------------------


async def test_deletion_is_of_what_is_named(bucket: WriterBucket) -> None:
    """One or a thousand, there or not; nothing else goes."""
    names = [f"dir/{number:04}" for number in range(30)]
    async with trio.open_nursery() as nursery:
        for name in (*names, "dir", "other"):
            if name != "dir" or not bucket.is_weed:  # a directory there
                nursery.start_soon(partial(bucket.writer.put, name, [b"x"]))
    await bucket.writer.delete("dir/0000")
    await bucket.writer.delete("dir/0000")
    absent = [f"absent/{number}" for number in range(970)]
    assert await bucket.writer.delete_many([*names, *absent]) == {}
    assert bucket.listed() == (["other"] if bucket.is_weed else ["dir", "other"])


async def test_a_deletion_of_one_version(bucket: WriterBucket) -> None:
    """With a condition one version is deleted and no other; moto deletes whatever there is."""
    there = await stat_of(bucket, "there", b"there")
    if not bucket.is_moto:
        with pytest.raises(ObjectChanged):
            await bucket.writer.delete("there", OTHER)
        assert bucket.content("there") == b"there"
    await bucket.writer.delete("there", Condition(there.etag))
    assert bucket.listed() == []
    if not bucket.is_moto:
        with pytest.raises(ObjectChanged):
            await bucket.writer.delete("there", Condition(there.etag))


# -- cancellation -----------------------------------------------------------------------------


async def test_cancelled_writes_leave_whole_objects_or_none(bucket: WriterBucket) -> None:
    """Twenty puts given up at once: each is there whole, or not at all, and the next one works."""
    content = make_content("cancelled", 400_000)
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(bucket.writer.put, f"object {number}", [content])
        await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    await bucket.writer.put("next", [content])
    assert {bucket.content(key) for key in bucket.listed()} == {content}
    assert (await bucket.writer.describe("next")).stat.id.key == ObjectId("next", "").key
