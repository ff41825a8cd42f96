"""Directory buckets (S3 Express One Zone) by both clients: sessions, renames, appends.  The bucket is emulated."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
import trio

from s3mount.core.attrs import ObjectStat
from s3mount.core.backoff import Patience
from s3mount.core.ranges import ByteRange
from s3mount.errors import AccessDenied, AlreadyExists, ObjectChanged, ObjectTooLarge, StoreError
from s3mount.store.attempts import Attempts
from s3mount.store.connect import Connection, connect
from s3mount.store.guarded import GuardedStore
from s3mount.store.patient import PatientStore
from s3mount.store.renaming import ObjectMover
from s3mount.store.retries import Retries
from s3mount.store.writing import Condition, Writer
from tests.store.conftest import CRT, GUARD, config
from tests.store.writers import writer_of
from tests.support.directory_bucket import NAME, DirectoryBucket, directory_bucket
from tests.support.directory_objects import checksum
from tests.support.proxy import error_answer
from tests.support.scripted import DROP, Call, Scripted, answer, is_from_crt, signature_of

FAILED = error_answer(503, "SlowDown")


@dataclass
class Express:
    """A bucket, and what asks it."""

    server: Scripted
    bucket: DirectoryBucket
    connection: Connection
    writer: Writer
    mover: ObjectMover

    async def put(self, key: str, content: bytes) -> ObjectStat:
        await self.writer.put(key, [content])
        return (await self.writer.describe(key)).stat


@asynccontextmanager
async def express(**changes: object) -> AsyncIterator[Express]:
    """An empty bucket."""
    with directory_bucket(**changes) as (server, bucket):
        s3 = config(NAME, server.url)
        async with connect(s3, CRT) as connection:
            retries = Retries(Patience(60.0, window_s=0.0, max_attempts=3), chance=lambda: 0.0)
            with writer_of(connection, s3, "crt") as writer:
                mover = ObjectMover(connection.client, s3, writer, Attempts(NAME, 60.0), retries)
                yield Express(server, bucket, connection, writer, mover)


def sent(server: Scripted, header: str) -> list[Call]:
    return [call for call in server.calls if header in call.headers]


@pytest.fixture(autouse=True)
def _keys(keys: None) -> None:
    """The account's keys are in the environment."""


# -- sessions ---------------------------------------------------------------------------------


async def test_one_session_is_for_many_requests() -> None:
    """Each client has one session; all it asks is signed with that, for s3express and the bucket's region."""
    async with express() as at:
        found = await at.put("a", b"content")
        for _ in range(20):
            assert await at.connection.reader.get_range(found.id, ByteRange(0, 7)) == b"content"
            await at.connection.catalogue.head("a")
        assert at.bucket.counts["CreateSession"] == 2
        assert at.connection.region == "us-east-1"
        data = [call for call in at.server.calls if "session" not in call.query]
        tokens = {(is_from_crt(call), call.headers["x-amz-s3session-token"]) for call in data}
        assert len(tokens) == 2


async def test_a_session_is_renewed_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session is renewed before the last fifth of its life, by the first request of many, and none fails."""
    async with express() as at:
        found = await at.put("a", b"content")
        reader, now = at.connection.reader, trio.current_time()
        before = at.bucket.counts["CreateSession"]
        for later_s, sessions in ((230.0, 0), (245.0, 1), (250.0, 1), (490.0, 2)):
            monkeypatch.setattr(trio, "current_time", lambda later_s=later_s: now + later_s)
            async with trio.open_nursery() as nursery:
                for _ in range(5):
                    nursery.start_soon(reader.get_range, found.id, ByteRange(0, 7))
            assert at.bucket.counts["CreateSession"] - before == sessions


async def test_a_session_that_s3_forgot() -> None:
    """What the CRT signed with a session that is no more is asked again with another one."""
    async with express() as at:
        found = await at.put("a", b"content")
        reader = PatientStore(
            GuardedStore(at.connection.catalogue, at.connection.reader, GUARD),
            Retries(Patience(60.0, window_s=0.0, max_attempts=3), chance=lambda: 0.0),
        )
        at.bucket.sessions.clear()
        assert await reader.get_range(found.id, ByteRange(0, 7)) == b"content"
        (token,) = at.bucket.sessions
        for until in (0.0, 1e12):
            at.bucket.sessions[token] = at.bucket.sessions[token][0], until
            assert await reader.get_range(found.id, ByteRange(0, 7)) == b"content"
        assert len(at.bucket.sessions) == 2


async def test_a_session_that_is_denied(caplog: pytest.LogCaptureFixture) -> None:
    """Without s3express:CreateSession nothing else is asked, and the error names it."""
    with directory_bucket() as (server, bucket):
        server.script = lambda call: error_answer(403, "AccessDenied") if "session" in call.query else bucket(call)
        with pytest.raises(AccessDenied) as caught:
            async with connect(config(NAME, server.url), CRT):
                pass
        assert caught.value.operation == "CreateSession"
        assert bucket.counts.total() == 0


async def test_a_session_that_only_reads() -> None:
    """Where the account may only read, reading works, and a write is AccessDenied."""
    async with express(may_write=False) as at:
        at.bucket.objects.put("a", b"content", {})
        assert (await at.connection.catalogue.head("a")).size == 7
        with pytest.raises(AccessDenied):
            await at.writer.put("b", [b"x"])


async def test_no_session_for_a_moment() -> None:
    """A CreateSession that fails and may pass is asked again, as the request that needs it."""
    failures = [FAILED] * 2
    with directory_bucket() as (server, bucket):
        server.script = lambda call: failures.pop() if "session" in call.query and failures else bucket(call)
        async with connect(config(NAME, server.url), CRT) as connection:
            assert connection.root_page is not None
        assert bucket.counts["CreateSession"] == 2


async def test_copies_are_signed_by_the_account() -> None:
    """CopyObject and UploadPartCopy have no session (S3 API); by either client they work all the same."""
    async with express() as at:
        found = await at.put("a", b"content")
        at.server.reset()
        await at.writer.copy(found, "b")
        upload = await at.writer.create_upload("c")
        await at.writer.complete(upload, [await at.writer.copy_part(upload, 1, found.id, ByteRange(0, 7))])
        copies = sent(at.server, "x-amz-copy-source")
        assert [signature_of(call).access_key for call in copies] == ["testkey", "testkey"]  # type: ignore[union-attr]
        assert at.bucket.objects.get("c").content == b"content"


# -- renames ----------------------------------------------------------------------------------

ODD_NAMES = ("a#b", "a?b=c&d", "a%2Fb", "a+b", " a b", "\u00e9", "d/\N{GRINNING FACE}", "x" * 1000)


async def test_objects_are_renamed() -> None:
    """By one request each, whatever the name; ETag, time and attributes stay, and no content is sent."""
    async with express() as at:
        for name in ODD_NAMES:
            found = await at.put(name, name.encode())
            moved = await at.mover.move(found, f"to/{name}"[:1024])
            assert moved == (await at.writer.describe(moved.key)).stat == found._replace(key=moved.key)
        assert sorted(at.bucket.objects.stored) == sorted(f"to/{name}" for name in ODD_NAMES)
        assert at.bucket.counts["RenameObject"] == len(ODD_NAMES)
        assert sum(len(call.body) for call in at.server.calls if "renameObject" in call.target) == 0


async def test_a_rename_replaces_what_it_may() -> None:
    """Only the version that was seen moves; with `is_new` nothing is replaced, and each refusal has its own name."""
    async with express() as at:
        old = await at.put("a", b"old")
        new = await at.put("a", b"new")
        await at.put("there", b"there")
        for is_new in (False, True):
            with pytest.raises(ObjectChanged):
                await at.mover.move(old, "b", is_new=is_new)
        with pytest.raises(AlreadyExists):
            await at.mover.move(new, "there", is_new=True)
        with pytest.raises(ObjectChanged):
            await at.mover.move(new._replace(key="absent"), "b")
        assert sorted(at.bucket.objects.stored) == ["a", "there"]
        await at.mover.move(new, "there")
        assert {key: each.content for key, each in at.bucket.objects.stored.items()} == {"there": b"new"}


@pytest.mark.parametrize("lost", [DROP, FAILED])
async def test_a_rename_whose_answer_was_lost(lost: bytes) -> None:
    """A rename whose answer was lost is asked again with the same token and is done, though its source is gone."""
    async with express() as at:
        found = await at.put("a", b"content")
        lose = [lost]

        def script(call: Call) -> bytes:
            done = at.bucket(call)
            return lose.pop() if "renameObject" in call.target and lose else done

        at.server.script = script
        await at.mover.move(found, "b", is_new=True)
        assert list(at.bucket.objects.stored) == ["b"]
        tokens = [call.headers["x-amz-client-token"] for call in sent(at.server, "x-amz-rename-source")]
        assert len(tokens) == 2
        assert len(set(tokens)) == 1


# -- appends ----------------------------------------------------------------------------------


async def test_bytes_are_appended() -> None:
    """Each append is one PUT of its bytes at the object's end, with a checksum; the attributes stay."""
    async with express() as at:
        found = await at.put("a", b"0")
        at.server.reset()
        version = found.id
        for size, data in ((1, b"1"), (2, b"2" * 100_000), (100_002, b"3")):
            version = (await at.writer.put("a", [data[:1], data[1:]], Condition(version.etag), offset=size)).id
        assert at.bucket.objects.get("a").content == b"01" + b"2" * 100_000 + b"3"
        stat = (await at.writer.describe("a")).stat
        assert (stat.id, stat.size) == (version, 100_003)
        puts = [call for call in at.server.calls if call.method == "PUT"]
        assert [len(call.body) for call in puts] == [1, 100_000, 1]
        assert all("x-amz-checksum-crc32c" in call.headers for call in puts)
        assert at.bucket.counts["HeadObject"] == 3  # `put` here, the first append, and `describe`


@pytest.mark.parametrize("kind", ["", "crc32", "crc64nvme"])
async def test_an_append_has_the_objects_kind_ofchecksum(kind: str) -> None:
    """An object of another client is appended to with what it has; S3 refuses another kind."""
    async with express() as at:
        headers = {f"x-amz-checksum-{kind}": checksum(kind, b"theirs")} if kind else {}
        stored = at.bucket.objects.put("a", b"theirs", headers)
        await at.writer.put("a", [b" ours"], Condition(stored.etag), offset=6)
        assert at.bucket.objects.get("a").content == b"theirs ours"
        (put,) = [call for call in at.server.calls if call.method == "PUT"]
        expected = [f"x-amz-checksum-{kind}"] if kind else []
        assert [name for name in put.headers if name.startswith("x-amz-checksum-")] == expected


async def test_an_append_to_another_version_is_refused() -> None:
    """Another ETag or another size is ObjectChanged, too many parts ObjectTooLarge; nothing is changed."""
    async with express() as at:
        found = await at.put("a", b"content")
        at.bucket.objects.append("a", b"theirs", {"x-amz-write-offset-bytes": "7"})
        theirs = at.bucket.objects.get("a").etag
        for etag, offset in ((found.etag, 7), (theirs, 7), (found.etag, 13)):
            with pytest.raises(ObjectChanged) as caught:
                await at.writer.put("a", [b"ours"], Condition(etag), offset=offset)
            assert not caught.value.is_in_doubt
        at.bucket.objects.max_parts = 2
        with pytest.raises(ObjectTooLarge):
            await at.writer.put("a", [b"ours"], Condition(theirs), offset=13)
        assert at.bucket.objects.get("a").content == b"contenttheirs"


async def test_a_server_that_knows_no_offsets() -> None:
    """One that takes an append for a whole object is an error, not silence."""
    async with express() as at:
        found = await at.put("a", b"content")

        def script(call: Call) -> bytes:
            if "x-amz-write-offset-bytes" not in call.headers:
                return at.bucket(call)
            return answer(200, ETag=at.bucket.objects.put("a", call.body, {}).etag)

        at.server.script = script
        with pytest.raises(StoreError, match="did not append"):
            await at.writer.put("a", [b" more"], Condition(found.etag), offset=7)


async def test_an_append_whose_answer_was_lost() -> None:
    """Asked again it is refused, and the refusal says that the first attempt may have been it."""
    async with express() as at:
        found = await at.put("a", b"content")
        lose = [DROP]

        def script(call: Call) -> bytes:
            done = at.bucket(call)
            return lose.pop() if "x-amz-write-offset-bytes" in call.headers and lose else done

        at.server.script = script
        with pytest.raises(ObjectChanged) as caught:
            await at.writer.put("a", [b" more"], Condition(found.etag), offset=7)
        assert caught.value.is_in_doubt
        assert at.bucket.objects.get("a").content == b"content more"
