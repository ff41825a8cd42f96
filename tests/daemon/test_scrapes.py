"""The metrics server on real sockets: what it answers, and what scrapers that misbehave cannot do."""

import logging
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families
from trio.testing import MockClock, wait_all_tasks_blocked

from s3mount.core.latency import LatencyHistogram, upper_bound_s
from s3mount.daemon.facts import facts_of
from s3mount.daemon.metering import meter_of
from s3mount.daemon.metrics import FAMILIES, text_of
from s3mount.daemon.scrapes import MAX_CONNECTIONS, ScrapeServer
from s3mount.errors import BadOption
from s3mount.listening import Listen, listen, parse_listen

EMPTY: dict[str, Any] = {
    "mount": {"mount_point": "/m", "bucket": "b", "prefix": "", "version": "1"}, "calls": {}, "caches": {},
    "parts": {}, "in_flight": {"calls": [], "requests": []}, "uptime_seconds": 1.5,
}  # fmt: skip


@asynccontextmanager
async def serving(
    work: Path, snapshot: Callable[[], Mapping[str, Any]] = lambda: EMPTY
) -> AsyncIterator[tuple[ScrapeServer, Path]]:
    """A server on a Unix socket."""
    server = ScrapeServer(snapshot)
    path = work / "metrics"
    with listen(parse_listen(str(path))) as listener:
        listener.setblocking(False)  # noqa: FBT003
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.serve, trio.SocketListener(trio.socket.from_stdlib_socket(listener.dup())))
            yield server, path
            nursery.cancel_scope.cancel()
    server.check_invariants()


async def ask(path: Path, request: bytes = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n") -> bytes:
    """All that is answered."""
    async with await trio.open_unix_socket(path) as stream:
        await stream.send_all(request)
        return b"".join([piece async for piece in stream])


async def test_a_scrape(work: Path) -> None:
    """A GET of /metrics is answered with every family and those of the process, and the connection ends."""
    async with serving(work) as (server, path):
        head, _, body = (await ask(path)).partition(b"\r\n\r\n")
        assert server.statistics().answered == 1
    assert head.startswith(b"HTTP/1.1 200")
    assert b"text/plain; version=" in head
    names = {family.name for family in text_string_to_metric_families(body.decode())}
    assert {f"s3mount_{family.name}" for family in FAMILIES} <= names
    assert {"process_cpu_seconds", "process_resident_memory_bytes", "process_open_fds"} <= names


def test_a_histogram() -> None:
    """Durations are counted up to every bound that is shown, above the last one too, and added up."""
    histogram = LatencyHistogram()
    for duration_ns in (1, 5_000, 5_000_000, 10**9, 10**12):
        histogram.note(duration_ns)
    found = histogram.statistics()
    call = {"count": found.count, "seconds": found.seconds, "buckets": list(found.buckets), "waited": 0, "errors": {}}
    text = text_of({**EMPTY, "calls": {"read": call}}).decode()
    (family,) = [each for each in text_string_to_metric_families(text) if each.name == "s3mount_call_duration_seconds"]
    assert family.type == "histogram"
    assert {sample.labels["operation"] for sample in family.samples} == {"read"}
    counts = {sample.labels["le"]: sample.value for sample in family.samples if sample.name.endswith("_bucket")}
    assert [*counts] == [f"{upper_bound_s(number):.9g}" for number in range(2, 27, 2)] + ["+Inf"]
    bounds_s = {bound: float(bound) for bound in counts}
    noted_s = [1e-9, 5e-6, 5e-3, 1.0, 1000.0]
    assert counts == {bound: sum(each < limit_s for each in noted_s) for bound, limit_s in bounds_s.items()}
    totals = {sample.name.rpartition("_")[2]: sample.value for sample in family.samples if not sample.labels.get("le")}
    assert totals == {"count": 5, "sum": pytest.approx(1001.005005)}


@pytest.mark.parametrize(
    ("request_", "status"),
    [(b"GET /other HTTP/1.1\r\nHost: x\r\n\r\n", b"404"), (b"POST / HTTP/1.1\r\nHost: x\r\n\r\n", b"405"),
     (b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n", b"200")],
)  # fmt: skip
async def test_other_requests(work: Path, request_: bytes, status: bytes) -> None:
    """What is no scrape gets a status and nothing else."""
    async with serving(work) as (_, path):
        answer = await ask(path, request_)
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert b"s3mount_" not in answer


@pytest.mark.parametrize("noise", [b"\x00\xff\r\n\r\n", b"GET /" + b"x" * 100_000, b"GET / HT", b""])
async def test_noise(work: Path, noise: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Bytes that are no request end their connection, without a word in the log; the next scrape is answered."""
    async with serving(work) as (_, path):
        async with await trio.open_unix_socket(path) as stream:
            try:
                await stream.send_all(noise)
                await stream.send_eof()
                assert b"".join([piece async for piece in stream]) == b""
            except trio.BrokenResourceError:
                pass  # closed in the middle of it
        assert b"200" in await ask(path)
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


async def test_slow_scrapers_are_few_and_end(work: Path, mock_clock: MockClock) -> None:
    """Scrapers that send nothing hold some connections for ten seconds and no more; others are closed meanwhile."""
    async with serving(work) as (server, path):
        slow = [await trio.open_unix_socket(path) for _ in range(MAX_CONNECTIONS)]
        assert await ask_or_nothing(path) == b""
        assert (server.statistics().open, server.statistics().refused) == (MAX_CONNECTIONS, 1)
        mock_clock.jump(9.9)
        await wait_all_tasks_blocked()
        assert server.statistics().open == MAX_CONNECTIONS
        mock_clock.jump(0.2)
        for stream in slow:
            assert await stream.receive_some() == b""
            await stream.aclose()
        await wait_all_tasks_blocked()
        assert server.statistics().open == 0
        assert b"200" in await ask(path)


async def ask_or_nothing(path: Path) -> bytes:
    try:
        return await ask(path)
    except trio.BrokenResourceError:
        return b""


async def test_a_second_has_one_snapshot(work: Path, mock_clock: MockClock) -> None:
    """However often it is scraped, the parts are asked once a second."""
    asked = []

    def snapshot() -> dict[str, Any]:
        asked.append(trio.current_time())
        return EMPTY

    async with serving(work, snapshot) as (_, path):
        for step in (0.0, 0.0, 0.9, 0.2, 0.9, 0.2):
            mock_clock.jump(step)
            assert b"200" in await ask(path)
    assert len(asked) == 3


async def test_a_bug_is_told_once(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A bug in what is told ends scrapes without an answer and is one line in the log; the mount goes on."""
    async with serving(work, lambda: {}["nothing"]) as (server, path):
        for _ in range(3):
            assert await ask(path) == b""
        assert server.statistics().answered == 0
    assert ["told once" in each.message for each in caplog.records if each.levelno >= logging.WARNING] == [True]


def test_no_label_has_a_key() -> None:
    """Of a mount with calls in flight no sample names what they are about."""
    facts = EMPTY | {
        "in_flight": {"calls": [{"operation": "read", "key": "secret", "age_seconds": 9.0}], "requests": []}
    }
    text = text_of(facts).decode()
    assert "secret" not in text
    assert "s3mount_oldest_call_age_seconds 9.0" in text


@pytest.mark.parametrize("text", ["9200", ":9200", "host:", "127.0.0.1:0", "127.0.0.1:70000", "[::1]9200", ""])
def test_no_place_to_serve(text: str) -> None:
    """What is neither an address and a port nor a path is refused with an example."""
    with pytest.raises(BadOption, match=r"127\.0\.0\.1:9200"):
        parse_listen(text)


def test_places() -> None:
    """An IPv6 address stands in brackets; a path is made absolute."""
    assert parse_listen("[::1]:9200") == Listen("[::1]:9200", None, "::1", 9200)
    assert parse_listen("run/metrics").path == Path.cwd() / "run/metrics"


@pytest.mark.parametrize("everywhere", ["0.0.0.0:0", "[::]:0"])
def test_everywhere_is_refused(everywhere: str) -> None:
    """An address that means all of them is refused, since what is served has no password."""
    with pytest.raises(BadOption, match="every address"):
        listen(parse_listen(everywhere.replace(":0", ":9999")))


def test_what_is_not_ours() -> None:
    """An address of another host is refused, and so is a port in use, with its name."""
    with pytest.raises(BadOption, match=r"192\.0\.2\.1:9200 cannot be served: Cannot assign"):
        listen(parse_listen("192.0.2.1:9200"))
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(BadOption, match=f"127.0.0.1:{port} cannot be served: Address already in use"):
            listen(parse_listen(f"127.0.0.1:{port}"))


def test_a_socket_that_is_there(work: Path) -> None:
    """A socket that nobody serves is replaced, one that is served and a file are refused; its group may connect."""
    where = parse_listen(str(work / "metrics"))
    assert where.path is not None
    with listen(where):
        assert where.path.stat().st_mode & 0o777 == 0o660
        with pytest.raises(BadOption, match="another process serves"):
            listen(where)
    with listen(where):
        pass
    where.path.unlink()
    where.path.touch()
    with pytest.raises(BadOption, match="no socket"):
        listen(where)


async def test_a_later_daemon_waits_for_the_address(work: Path, mock_clock: MockClock) -> None:
    """The first daemon needs its address; a later one serves without, and answers as soon as it is free."""
    where = parse_listen(str(work / "metrics"))
    assert where.path is not None
    with meter_of(where, lambda: EMPTY, is_first=True) as old:
        with pytest.raises(BadOption), meter_of(where, lambda: EMPTY, is_first=True):
            pass
        with meter_of(where, lambda: EMPTY, is_first=False) as new:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(new.serve)
                for _ in range(3):
                    await wait_all_tasks_blocked()
                    mock_clock.jump(1)
                await wait_all_tasks_blocked()
                old.close()
                mock_clock.jump(1)
                await wait_all_tasks_blocked()
                assert b"200" in await ask(where.path)
                new.close()
                nursery.cancel_scope.cancel()
    assert not where.path.exists()


def test_facts_of_anything() -> None:
    """Statistics become JSON by their field names; what JSON does not have is null, what is strange is its text."""
    found = facts_of({"a": Listen("x", Path("/p")), ("t", 1): float("inf"), "s": {3}, "n": None, "b": True})
    listening = {"said": "x", "path": "/p", "host": "", "port": 0}
    assert found == {"a": listening, "('t', 1)": None, "s": [3], "n": None, "b": True}
