"""Bodies by threads: what becomes of connections, of who gives up, of trust and of a refusal before the end.

What they send and what it makes is in test_writing_conformance, flavour "large".
"""

import gc
import os
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from s3mount.errors import AccessDenied, StoreError, StoreFailure, StoreUnreachable, UntrustedCertificate
from s3mount.store.connect import connect
from s3mount.store.crt_requests import CrtRequests
from s3mount.store.crt_writer import CrtWriter
from s3mount.store.large_bodies import LargeBodies
from s3mount.store.session import Endpoint
from s3mount.store.write_config import WriteConfig
from s3mount.units import KIB, MIB
from tests.store.conftest import CRT, Front, config
from tests.support.certificates import make_authority
from tests.support.content import make_content
from tests.support.processes import REGION, wait_until
from tests.support.proxy import proxy
from tests.support.servers import Server

pytestmark = pytest.mark.server


@asynccontextmanager
async def writer_to(
    name: str, url: str, *, changes: dict[str, str] | None = None
) -> AsyncIterator[tuple[CrtWriter, LargeBodies]]:
    """A writer with no retries in front, and what sends its large bodies."""
    s3 = config(name, url, **(changes or {}))
    async with connect(s3, CRT) as connection:
        requests = connection.reader.requests
        with closing(LargeBodies(requests, "crc32c")) as large:
            yield CrtWriter(requests, connection.client, s3, WriteConfig(), large), large
            large.check_invariants()
        assert large.statistics().idle == 0


@asynccontextmanager
async def sender_to(front: Front, listener: socket.socket) -> AsyncIterator[LargeBodies]:
    """It sends to that socket, and signs for the bucket."""
    async with connect(config(front.name, front.proxy.url), CRT) as connection:
        host = f"127.0.0.1:{listener.getsockname()[1]}"
        connection.reader.requests.endpoint = Endpoint(is_tls=False, host=host, base_path="/b/", region=REGION)
        with closing(LargeBodies(connection.reader.requests, "off")) as large:
            yield large


def is_free(content: bytearray) -> bool:
    """Whether nobody has a view of it."""
    gc.collect()  # what a thread raised holds its piece, and itself
    try:
        content.append(0)
    except BufferError:
        return False
    return True


async def freed(content: bytearray) -> None:
    """Wait for that; not on the loop, which has to be told how the thread ended."""
    await trio.to_thread.run_sync(wait_until, lambda: is_free(content), 30, "the end of the thread's last frame")


async def test_one_connection_serves_one_after_the_other(front: Front, keys: None) -> None:
    """Large bodies one after another are one connection; a small body is none of theirs; all have their bytes."""
    async with writer_to(front.name, front.proxy.url) as (writer, large):
        for number in range(3):
            body = [make_content(f"{number}", 600 * KIB), memoryview(make_content("b", 600 * KIB))]
            await writer.put(f"{number}", body)
        await writer.put("small", [b"content"])
        found = large.statistics()
    assert (found.connected, found.reused, found.idle) == (1, 2, 1)
    for number in range(3):
        content = front.server.client.get_object(Bucket=front.name, Key=f"{number}")["Body"].read()
        assert content == make_content(f"{number}", 600 * KIB) + make_content("b", 600 * KIB)


async def test_a_connection_that_the_server_closed_is_not_used(front: Front, keys: None) -> None:
    """It closed an idle one: the next body takes another, and nothing fails."""
    async with writer_to(front.name, front.proxy.url) as (writer, large):
        await writer.put("one", [bytes(MIB)])
        [(_, connection)] = large._idle
        connection.sock.shutdown(socket.SHUT_WR)  # the server sees the end, and closes
        await trio.to_thread.run_sync(connection.sock.recv, 1, socket.MSG_PEEK)
        await writer.put("two", [bytes(MIB)])
        found = large.statistics()
    assert (found.connected, found.reused) == (2, 0)


async def test_idle_connections_are_closed(front: Front, keys: None, mock_clock: MockClock) -> None:
    """Nobody used one for a while: it is closed."""
    async with writer_to(front.name, front.proxy.url) as (writer, large), trio.open_nursery() as nursery:
        nursery.start_soon(large.rest)
        await writer.put("one", [bytes(MIB)])
        for seconds, idle in ((14, 1), (2, 0)):
            mock_clock.jump(seconds)
            await wait_all_tasks_blocked()
            assert large.statistics().idle == idle
        nursery.cancel_scope.cancel()


async def test_who_gives_up_while_an_answer_is_due(front: Front, keys: None) -> None:
    """Its body is free, its connection not used again, the next put goes through; the object is not there."""
    arrived, may_pass = front.hold_puts()
    content = bytearray(2 * MIB)
    async with writer_to(front.name, front.proxy.url) as (writer, large):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: writer.put("object", [memoryview(content)]))
            await trio.to_thread.run_sync(arrived.wait)
            nursery.cancel_scope.cancel()
        await freed(content)
        may_pass.set()
        await writer.put("next", [bytes(MIB)])
        assert large.statistics().reused == 0
    listed = front.server.client.list_objects_v2(Bucket=front.name)["Contents"]
    assert [each["Key"] for each in listed] == ["next"]


async def test_who_gives_up_while_a_body_is_sent(front: Front, keys: None) -> None:
    """The server reads no more: the thread that sends ends, with most of the body not sent."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with sender_to(front, listener) as large:
            content = bytearray(64 * MIB)
            pieces = [memoryview(content)[start : start + MIB] for start in range(0, len(content), MIB)]
            with trio.move_on_after(0.5):
                await large.send("UploadPart", "/b/key", [], "key", pieces)
            pieces.clear()
            large._threads.total_tokens = 1
            with trio.fail_after(60):
                await large._threads.acquire_on_behalf_of("all others have ended")
            await freed(content)
            assert large.statistics().idle == 0


async def test_a_refusal_before_the_end_is_told(front: Front, keys: None) -> None:
    """The server refuses after the headers, and hangs up with most of the body not read: its reason arrives."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(64 * KIB)
                body = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"
                connection.sendall(
                    b"HTTP/1.1 403 F\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body
                )
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(MIB):
                    pass

        thread = threading.Thread(target=refuse)
        thread.start()
        async with sender_to(front, listener) as large:
            with pytest.raises(AccessDenied, match="S3 answered 403 AccessDenied: no"):
                await large.send("UploadPart", "/b/key", [], "key", [bytes(MIB)] * 8)
            assert large.statistics().idle == 0
        thread.join()


async def test_nobody_listens(front: Front, keys: None) -> None:
    """A port that is closed and a name that is not there are an unreachable server; an answer that is none a broken
    connection; each with key and operation."""
    async with connect(config(front.name, front.proxy.url), CRT) as connection:
        requests = connection.reader.requests
        for host, kind in (("127.0.0.1:1", StoreUnreachable), ("no-such-host.invalid:80", StoreUnreachable)):
            assert kind is type(await _failure(requests, host))
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def hang_up() -> None:
                connection, _ = listener.accept()
                connection.close()

            thread = threading.Thread(target=hang_up)
            thread.start()
            error = await _failure(requests, f"127.0.0.1:{listener.getsockname()[1]}")
            thread.join()
    assert type(error) is StoreFailure
    assert (error.key, error.operation) == ("key", "PutObject")


async def _failure(requests: CrtRequests, host: str) -> StoreError:
    requests.endpoint = Endpoint(is_tls=False, host=host, base_path="/b/", region=REGION)
    with closing(LargeBodies(requests, "off")) as large, pytest.raises(StoreError) as caught:
        await large.send("PutObject", "/b/key", [], "key", [bytes(MIB)])
    return caught.value


async def test_a_certificate_has_to_be_trusted(weed: Server, keys: None, work: Path) -> None:
    """Through TLS with the mount's authority the bytes arrive; with another the server is not trusted."""
    authority, other = make_authority(work / "ca"), make_authority(work / "other", "somebody else")
    name, content = weed.make_bucket(), make_content("secure", 3 * MIB)
    with proxy(weed.url, tls=authority.server) as front:
        async with writer_to(name, front.url, changes={"ca_bundle": str(authority.bundle)}) as (writer, large):
            for key in ("a", "b"):
                await writer.put(key, [content[:MIB], content[MIB:]])
            assert (large.statistics().connected, large.statistics().reused) == (1, 1)
            requests = writer._requests
            requests.ca_bundle = str(other.bundle)
            with closing(LargeBodies(requests, "off")) as distrusting, pytest.raises(UntrustedCertificate):
                await distrusting.send("PutObject", requests.endpoint.path("c"), [], "c", [content])
    assert weed.client.get_object(Bucket=name, Key="b")["Body"].read() == content
    assert weed.client.list_objects_v2(Bucket=name)["KeyCount"] == 2


@pytest.mark.parametrize(
    ("is_tls", "environment", "is_proxied"),
    [
        (False, {"http_proxy": "http://127.0.0.1:1"}, True),
        (False, {"HTTP_PROXY": "http://127.0.0.1:1"}, True),
        (True, {"HTTPS_PROXY": "http://127.0.0.1:1"}, True),
        (True, {"http_proxy": "http://127.0.0.1:1"}, False),
        (False, {"https_proxy": "http://127.0.0.1:1"}, False),
        (True, {"https_proxy": "http://127.0.0.1:1", "no_proxy": "localhost,.example.com"}, False),
        (True, {"https_proxy": "http://127.0.0.1:1", "NO_PROXY": "localhost,.other.com"}, True),
        (True, {}, False),
    ],
)
def test_behind_a_proxy(
    monkeypatch: pytest.MonkeyPatch, *, is_tls: bool, environment: dict[str, str], is_proxied: bool
) -> None:
    """An endpoint that is reached by a proxy is told from one that is not, with the variables that all clients know."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert Endpoint(is_tls=is_tls, host="s3.example.com:9000", base_path="/b/", region=REGION).is_proxied == is_proxied
