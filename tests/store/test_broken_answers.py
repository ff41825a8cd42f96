"""A real server whose answers break on the way: retried, or an error; never short or mixed bytes."""

import itertools
from collections.abc import Callable
from functools import partial

import pytest
import trio

from s3mount.core.attrs import ObjectId
from s3mount.core.ranges import ByteRange
from s3mount.errors import (
    AccessDenied,
    ArchivedObject,
    BadCredentials,
    ExpiredCredentials,
    ObjectChanged,
    StoreError,
    StoreFailure,
    StoreThrottled,
)
from s3mount.store.connect import connect
from tests.store.conftest import CRT, PART, Front, config, guarded_store_of
from tests.support.content import make_content
from tests.support.proxy import Decide, Fault, Request, error_answer
from tests.support.scripted import Call, ScriptedBucket, answer, etag, is_from_crt, scripted

pytestmark = pytest.mark.server

SLOW_DOWN = Fault(answer=error_answer(503, "SlowDown"))


def first(number: int, fault: Fault, is_hit: Callable[[Request], bool]) -> Decide:
    """Breaks the first `number` requests that match."""
    counter = itertools.count(1)

    def decide(request: Request) -> Fault | None:
        return fault if is_hit(request) and next(counter) <= number else None

    return decide


def is_get(request: Request) -> bool:
    return request.method == "GET" and not request.is_list


def is_list(request: Request) -> bool:
    return request.is_list


ONCE = [
    Fault(forward_bytes=0),
    Fault(forward_bytes=10),
    Fault(forward_bytes=PART - 1),
    Fault(drop=True),
    SLOW_DOWN,
    Fault(answer=error_answer(500, "InternalError")),
    Fault(answer=error_answer(502, "BadGateway")),
]


async def test_a_get_that_breaks_once_gives_all_bytes(front: Front, client: str) -> None:
    """It is asked for again, by either client, and only once; never fewer bytes."""
    content = make_content("broken", PART)
    front.put("object", content)
    async with front.store(client) as store:
        wanted = (await store.head("object")).id
        for fault in ONCE:
            front.proxy.reset()
            front.proxy.decide = first(1, fault, is_get)
            assert await store.get_range(wanted, ByteRange(0, PART)) == content
            assert front.proxy.count("GET") == 2
            assert await store.get_range(wanted, ByteRange(0, PART)) == content


async def test_a_get_that_always_breaks_is_a_failure(front: Front, client: str) -> None:
    """After all attempts: an error of ours, and the client works when the server does."""
    content = make_content("always", PART)
    front.put("object", content)
    async with front.store(client, max_attempts=2) as store:
        wanted = (await store.head("object")).id
        for fault in (Fault(forward_bytes=100), Fault(forward_bytes=PART - 1), Fault(drop=True)):
            front.proxy.decide = first(1000, fault, is_get)
            with pytest.raises(StoreFailure) as caught:
                await store.get_range(wanted, ByteRange(0, PART))
            assert caught.value.key == "object"
            front.proxy.decide = None
            assert await store.get_range(wanted, ByteRange(0, PART)) == content


async def test_a_list_that_breaks_once_is_retried(front: Front, client: str) -> None:
    """A listing cut short must not look like a small directory."""
    for number in range(20):
        front.put(f"object {number:02}", b"x")
    async with front.store(client) as store:
        for fault in (Fault(forward_bytes=150), Fault(drop=True), SLOW_DOWN):
            front.proxy.reset()
            front.proxy.decide = first(1, fault, is_list)
            page = await store.list_page("")
            assert len(page.objects) == 20
            assert front.proxy.count("GET") == 2


async def test_a_list_that_is_always_cut_short_is_a_failure(front: Front, client: str) -> None:
    """After all attempts."""
    front.put("object", b"x")
    async with front.store(client) as store:
        front.proxy.reset()
        front.proxy.decide = first(1000, Fault(forward_bytes=150), is_list)
        with pytest.raises(StoreFailure):
            await store.list_page("")
        assert front.proxy.count("GET") == 3


async def test_throttling_below_the_attempts_is_absorbed(front: Front, client: str) -> None:
    """Two SlowDown and three attempts: the reader sees nothing."""
    content = make_content("throttled", 5000)
    front.put("object", content)
    async with front.store(client, max_attempts=3) as store:
        wanted = (await store.head("object")).id
        front.proxy.reset()
        front.proxy.decide = first(2, SLOW_DOWN, is_get)
        assert await store.get_range(wanted, ByteRange(0, 5000)) == content
        assert front.proxy.count("GET") == 3


@pytest.mark.parametrize("attempts", [1, 3])
async def test_throttling_beyond_the_attempts_is_an_error(front: Front, client: str, attempts: int) -> None:
    """Exactly as many requests as attempts, then StoreThrottled, with the request id if there was a second."""
    front.put("object", b"content")
    async with front.store(client, max_attempts=attempts) as store:
        wanted = (await store.head("object")).id
        front.proxy.reset()
        front.proxy.decide = first(1000, SLOW_DOWN, is_get)
        with pytest.raises(StoreThrottled) as caught:
            await store.get_range(wanted, ByteRange(0, 7))
        assert front.proxy.count("GET") == attempts
        assert store.statistics().repeated == attempts - 1
        assert (caught.value.request_id == "PROXY") == (client == "aiobotocore" or attempts > 1)
        assert (f"asked {attempts} times" in str(caught.value)) == (attempts > 1)


async def test_a_failure_beyond_the_attempts_tells_what_s3_said(front: Front) -> None:
    """The CRT keeps a 500 to itself; the last attempt goes by the client that tells it, with the request id."""
    front.put("object", b"content")
    async with front.store("crt") as store:
        wanted = (await store.head("object")).id
        front.proxy.decide = first(1000, Fault(answer=error_answer(500, "InternalError", "try later")), lambda _: True)
        for call in (store.get_range(wanted, ByteRange(0, 7)), store.list_page("")):
            front.proxy.reset()
            with pytest.raises(StoreFailure) as caught:
                await call
            assert len(front.proxy.requests) == 3
            assert [is_from_crt(request) for request in front.proxy.requests] == [True, True, False]
            assert caught.value.request_id == "PROXY"
            assert "S3 answered 500" in str(caught.value)


REFUSALS = {
    "InvalidObjectState": (403, ArchivedObject),
    "AccessDenied": (403, AccessDenied),
    "ExpiredToken": (400, ExpiredCredentials),
    "InvalidAccessKeyId": (403, BadCredentials),
    "RequestTimeTooSkewed": (403, ExpiredCredentials),
    "PreconditionFailed": (412, ObjectChanged),
    "NoSuchKey": (404, ObjectChanged),
}


async def test_a_refused_get_keeps_its_reason(front: Front, client: str) -> None:
    """Archived, forbidden, expired and replaced are told apart, with the request id; none is asked 1,000 times."""
    front.put("object", b"content")
    async with front.store(client) as store:
        wanted = (await store.head("object")).id
        for code, (status, kind) in REFUSALS.items():
            front.proxy.decide = first(1000, Fault(answer=error_answer(status, code)), is_get)
            front.proxy.reset()
            with pytest.raises(StoreError) as caught:
                await store.get_range(wanted, ByteRange(0, 7))
            assert type(caught.value) is kind
            # The CRT keeps the answer to this one to itself.
            if (client, code) != ("crt", "RequestTimeTooSkewed"):
                assert caught.value.request_id == "PROXY"
            assert front.proxy.count("GET") <= 3


async def test_a_get_cancelled_in_flight_frees_its_connection(front: Front, client: str) -> None:
    """Twice as many GETs as connections stall and are given up; the next ones are answered."""
    content = make_content("stalled", 100_000)
    front.put("object", content)
    arrived = trio.Event()
    token = trio.lowlevel.current_trio_token()
    async with front.guarded_store(client) as store:
        wanted = (await store.head("object")).id

        def stall(request: Request) -> Fault | None:
            if not is_get(request):
                return None
            token.run_sync_soon(arrived.set)
            return Fault(stall_s=2.0, drop=True)

        front.proxy.decide = stall
        async with trio.open_nursery() as nursery:
            for _ in range(32):
                nursery.start_soon(store.get_range, wanted, ByteRange(0, 100_000))
            await arrived.wait()
            nursery.cancel_scope.cancel()
        assert store.statistics().in_flight == 0
        front.proxy.decide = None
        for _ in range(3):
            assert await store.get_range(wanted, ByteRange(0, 100_000)) == content


async def test_an_object_replaced_while_it_is_read_never_gives_mixed_bytes(front: Front, client: str) -> None:
    """Eight readers and a writer at once: each answer is of one version, whole."""
    versions: dict[str, bytes] = {}

    def replace(number: int) -> None:
        content = make_content(f"version {number}", 40_000)
        versions[etag(content)] = content
        front.put("object", content)

    replace(0)
    attempted, is_read = trio.Event(), trio.Event()
    async with front.store(client) as store, trio.open_nursery() as nursery:

        async def reader() -> None:
            while True:
                wanted = (await store.head("object")).id
                for start in (0, 20_000):
                    try:
                        got = await store.get_range(wanted, ByteRange(start, start + 20_000))
                    except ObjectChanged:
                        continue
                    finally:
                        attempted.set()
                    assert got == versions[wanted.etag][start : start + 20_000]
                    is_read.set()

        for _ in range(8):
            nursery.start_soon(reader)
        for number in range(1, 40):
            await trio.to_thread.run_sync(replace, number)
            attempted = trio.Event()
            await attempted.wait()
        is_read = trio.Event()
        await is_read.wait()
        nursery.cancel_scope.cancel()


# -- servers that do not keep the protocol ----------------------------------------------------

CONTENT = b"0123456789"
LIST_HEAD = b'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'


def other_version(call: Call) -> bytes:
    return answer(206, b"x" * 10, ETag='"other"', Content_Range="bytes 0-9/10")


def whole_object(call: Call) -> bytes:
    return answer(200, CONTENT * 2, ETag=etag(CONTENT))


def too_short(call: Call) -> bytes:
    return answer(206, CONTENT[:5], ETag=etag(CONTENT), Content_Range="bytes 0-4/5")


def a_page(call: Call) -> bytes:
    return answer(200, b"<html><body>Sign in</body></html>", Content_Type="text/html")


NOT_AS_ASKED = [
    (other_version, ObjectChanged),
    (whole_object, StoreFailure),
    (too_short, StoreFailure),
    (a_page, StoreFailure),
]


async def test_a_get_that_ignores_its_conditions_is_refused(keys: None, client: str) -> None:
    """If-Match or Range ignored, or another kind of server: what came is not what was asked for."""
    with scripted(ScriptedBucket("bucket")) as server:
        async with connect(config("bucket", server.url), CRT) as connection:
            store = guarded_store_of(connection, client)
            for script, kind in NOT_AS_ASKED:
                server.script = script
                with pytest.raises(kind):
                    await store.get_range(ObjectId("object", etag(CONTENT)), ByteRange(0, 10))


CONFIRMATIONS: list[tuple[bytes, type[StoreError] | None]] = [
    (answer(200, CONTENT, ETag=etag(CONTENT)), None),
    (answer(200, CONTENT), None),
    (answer(200, CONTENT, ETag='"other"'), ObjectChanged),
    (answer(412), ObjectChanged),
    (answer(404), ObjectChanged),
    (answer(403), AccessDenied),
    (answer(400), StoreError),
    (answer(500), StoreFailure),
    (answer(503), StoreThrottled),
]


async def test_a_confirmation_goes_by_the_status_and_the_etag(keys: None, client: str) -> None:
    """One HEAD with If-Match, which a server may ignore; an answer without an ETag contradicts nothing."""
    with scripted(ScriptedBucket("bucket")) as server:
        async with connect(config("bucket", server.url), CRT) as connection:
            store = guarded_store_of(connection, client)
            wanted = ObjectId("odd key%2F?", etag(CONTENT))
            for raw, kind in CONFIRMATIONS:
                server.script = lambda call, raw=raw: raw
                server.reset()
                if kind is None:
                    await store.confirm(wanted)
                else:
                    with pytest.raises(kind):
                        await store.confirm(wanted)
                call = server.calls[0]
                # botocore takes a 400 for a wrong region, and asks which is right.
                assert len(server.calls) == 1 or (client == "aiobotocore" and raw == answer(400))
                assert (call.method, call.target) == ("HEAD", "/bucket/odd%20key%252F%3F")
                assert call.headers["if-match"] == wanted.etag
            server.script = lambda call: answer(200, ETag='"any"')
            await store.confirm(ObjectId("object", ""))
            assert "if-match" not in server.calls[-1].headers


NO_LISTS = [
    b"",
    b"<ListBucketResult",
    b"<html><body>Sign in</body></html>",
    b"not XML",
    b'{"Contents": []}',
    LIST_HEAD + b"</ListBucketResult>",
    LIST_HEAD + b"<IsTruncated>maybe</IsTruncated><Contents><Key>a</Key></Contents></ListBucketResult>",
    LIST_HEAD + b"<IsTruncated>false</IsTruncated><Contents><Key>a</Key></Contents></ListBucketResult>",
    LIST_HEAD + b"<IsTruncated>false</IsTruncated><Contents><Size>1</Size></Contents></ListBucketResult>",
    LIST_HEAD + b"<IsTruncated>false</IsTruncated><Contents><Key>a</Key><Size>x</Size></Contents></ListBucketResult>",
    LIST_HEAD + b"<IsTruncated>false</IsTruncated><Contents><Key>a</Key><Size>1</Size>"
    b"<LastModified>yesterday</LastModified></Contents></ListBucketResult>",
    LIST_HEAD + b"<IsTruncated>false</IsTruncated><CommonPrefixes></CommonPrefixes></ListBucketResult>",
    LIST_HEAD + b"<IsTruncated>true</IsTruncated></ListBucketResult>",
    b"<Error><Code>InternalError</Code></Error>",
]


async def test_a_list_that_is_no_list_is_an_error_of_ours(keys: None, client: str) -> None:
    """Nothing of botocore, and no KeyError, crosses the seam; and it is never an empty directory."""
    with scripted(ScriptedBucket("bucket")) as server:
        async with connect(config("bucket", server.url), CRT) as connection:
            store = guarded_store_of(connection, client)
            for body in NO_LISTS:
                server.script = partial(_document, body)
                with pytest.raises(StoreError):
                    await store.list_page("")


def _document(body: bytes, call: Call) -> bytes:
    return answer(200, body, Content_Type="application/xml")


DATE = "Wed, 01 Jan 2020 00:00:00 GMT"
NO_HEADS = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nLast-Modified: yesterday\r\n\r\n",
    f"HTTP/1.1 200 OK\r\nContent-Length: five\r\nLast-Modified: {DATE}\r\n\r\n".encode(),
    f"HTTP/1.1 200 OK\r\nLast-Modified: {DATE}\r\n\r\n".encode(),
]


async def test_a_head_without_its_facts_is_an_error_of_ours(keys: None) -> None:
    """Size and time are what a HEAD is for."""
    with scripted(ScriptedBucket("bucket")) as server:
        async with connect(config("bucket", server.url), CRT) as connection:
            for head in NO_HEADS:
                server.script = lambda call, head=head: head
                with pytest.raises(StoreError):
                    await connection.catalogue.head("object")
