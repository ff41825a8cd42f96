"""The control server on real Unix sockets: protocol, limits, and clients that misbehave."""

import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from s3mount.daemon import rundir
from s3mount.daemon.control import MAX_CONNECTIONS, MAX_LINE, Arguments, ControlServer, Talk
from s3mount.errors import BadOption, NameNotFound, StoreFailure
from tests.support.namespaces import NOBODY


class Daemon:
    """A server with verbs that do what a test wants.

    Attributes:
        started, cancelled: how often the verb `wait` was.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.started = 0
        self.cancelled = 0
        self.server = ControlServer({
            "echo": self.echo, "count": self.count, "fail": self.fail, "wait": self.wait, "flood": self.flood,
            "talk": self.talk,
        })  # fmt: skip

    async def echo(self, args: Arguments, talk: Talk) -> dict[str, Any]:
        return dict(args)

    async def count(self, args: Arguments, talk: Talk) -> dict[str, Any]:
        for number in range(args["n"]):
            await talk.tell("failed", number=number)
        return {"n": args["n"]}

    async def fail(self, args: Arguments, talk: Talk) -> dict[str, Any]:
        errors = {"usage": BadOption("no"), "absent": NameNotFound("gone"), "store": StoreFailure("500", key="a\x1b")}
        async with trio.open_nursery():
            raise errors.get(args["how"], ZeroDivisionError("bug"))

    async def wait(self, args: Arguments, talk: Talk) -> dict[str, Any]:
        self.started += 1
        try:
            await trio.sleep_forever()
        finally:
            self.cancelled += 1

    async def flood(self, args: Arguments, talk: Talk) -> dict[str, Any]:
        while True:
            await talk.tell("failed", text="x" * 10_000)

    async def talk(self, args: Arguments, talk: Talk) -> dict[str, Any]:
        for number in range(100_000):
            talk.progress(number=number)
        await trio.sleep(1)
        talk.progress(number=-1)
        await trio.sleep(1)
        return {}

    async def connect(self) -> trio.SocketStream:
        return await trio.open_unix_socket(self.path)

    async def ask(self, verb: str, **args: Any) -> list[dict[str, Any]]:
        return await self.ask_raw(json.dumps({"verb": verb, "args": args}).encode() + b"\n")

    async def ask_raw(self, request: bytes) -> list[dict[str, Any]]:
        async with await self.connect() as stream:
            await stream.send_all(request)
            return await answers(stream)


async def answers(stream: trio.SocketStream) -> list[dict[str, Any]]:
    """Everything until the daemon closes."""
    content = b"".join([piece async for piece in stream])
    return [json.loads(line) for line in content.splitlines()]


@asynccontextmanager
async def daemon(work: Path) -> AsyncIterator[Daemon]:
    """A server that runs; every verb has ended when the block has."""
    control = rundir.bind(work / "run", "/mnt")
    served = Daemon(control.path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(served.server.serve, control.listener)
        yield served
        served.server.check_invariants()
        nursery.cancel_scope.cancel()
    control.close()
    assert served.server.statistics().open == 0
    assert served.started == served.cancelled


async def test_a_verb_is_answered(work: Path) -> None:
    """A request gets what its verb tells, in order, and the result as the last line."""
    async with daemon(work) as served:
        assert await served.ask("echo", text="ü\udcff\x1b") == [{"event": "result", "text": "ü\udcff\x1b"}]
        told = await served.ask("count", n=500)
        assert [each["number"] for each in told if each["event"] == "failed"] == list(range(500))
        assert told[-1] == {"event": "result", "n": 500}


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [("usage", "usage", "no"), ("absent", "not-found", "gone"), ("store", "failed", r"500 (key='a\x1b')")],
)
async def test_an_error_is_an_answer(work: Path, how: str, code: str, words: str) -> None:
    """What a verb raises on purpose is its client's answer, with a code and the words of the error."""
    async with daemon(work) as served:
        assert await served.ask("fail", how=how) == [{"event": "error", "code": code, "message": words}]


async def test_a_bug_is_not_the_end(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A verb with a bug is answered and logged with its traceback, and the daemon goes on."""
    async with daemon(work) as served:
        (answer,) = await served.ask("fail", how="bug")
        assert answer["code"] == "internal"
        assert "ZeroDivisionError" in caplog.text
        assert await served.ask("echo", n=1) == [{"event": "result", "n": 1}]


@pytest.mark.parametrize(
    "request_line",
    [b"\n", b"nonsense\n", b"[1]\n", b'{"verb": 1}\n', b'{"verb": "echo", "args": []}\n', b"\xff\xfe\n", b'"verb"\n',
     b"[" * 100_000 + b"\n", b'{"verb": "nothing"}\n', b"x" * (MAX_LINE + 1) + b"\n"],
    ids=range(10),
)  # fmt: skip
async def test_garbage_is_answered(work: Path, request_line: bytes) -> None:
    """What is no request gets one error that says so, however long it is."""
    async with daemon(work) as served:
        (answer,) = await served.ask_raw(request_line)
        assert (answer["event"], answer["code"]) == ("error", "usage")


async def test_a_long_request(work: Path) -> None:
    """A request just under the limit arrives whole."""
    async with daemon(work) as served:
        (answer,) = await served.ask("echo", text="x" * (MAX_LINE - 100))
        assert len(answer["text"]) == MAX_LINE - 100


async def test_a_request_that_does_not_come(work: Path, autojump_clock: MockClock) -> None:
    """A client that connects and sends half of a request is not waited for."""
    async with daemon(work) as served, await served.connect() as stream:
        await stream.send_all(b'{"verb": ')
        (answer,) = await answers(stream)
        assert answer["code"] == "usage"
        assert trio.current_time() < 60


async def test_a_client_that_goes_away(work: Path, mock_clock: MockClock) -> None:
    """When a client goes away its verb is cancelled, and no other."""
    async with daemon(work) as served:
        streams = [await served.connect() for _ in range(2)]
        for stream in streams:
            await stream.send_all(b'{"verb": "wait"}\n')
        while served.started < 2:
            await wait_all_tasks_blocked()
        await streams[0].aclose()
        for _ in range(1000):  # no heartbeat finds it out: the clock stands still
            await wait_all_tasks_blocked()
        assert served.cancelled == 1
        assert served.server.statistics().open == 1
        await streams[1].aclose()


async def test_a_client_that_does_not_read(work: Path, autojump_clock: MockClock) -> None:
    """A client that reads nothing holds up its own verb only, and is given up after a while."""
    async with daemon(work) as served, await served.connect() as stream:
        await stream.send_all(b'{"verb": "flood"}\n')
        while not served.server.statistics().open:
            await wait_all_tasks_blocked()
        assert await served.ask("echo", n=1) == [{"event": "result", "n": 1}]
        while served.server.statistics().open:  # noqa: ASYNC110  the clock jumps
            await trio.sleep(1)
        assert trio.current_time() < 120


async def test_progress_is_the_newest(work: Path, autojump_clock: MockClock) -> None:
    """Progress is told seldom and never late: what was overtaken is not sent."""
    async with daemon(work) as served:
        told = await served.ask("talk")
        numbers = [each["number"] for each in told[:-1]]
        assert numbers[-1] == -1
        assert 99_999 in numbers
        assert len(numbers) <= 10


async def test_a_verb_that_is_silent(work: Path, autojump_clock: MockClock) -> None:
    """While a verb has nothing to tell its client hears that the daemon lives."""
    async with daemon(work) as served, await served.connect() as stream:
        await stream.send_all(b'{"verb": "wait"}\n')
        for _ in range(3):
            assert json.loads(await stream.receive_some(1000)) == {"event": "progress"}
        assert trio.current_time() < 20


async def test_connections_are_limited(work: Path) -> None:
    """Beyond the limit a client is told that the daemon is busy, and is served when another has gone."""
    async with daemon(work) as served:
        streams = [await served.connect() for _ in range(MAX_CONNECTIONS)]
        for stream in streams:
            await stream.send_all(b'{"verb": "wait"}\n')
        while served.started < MAX_CONNECTIONS:
            await wait_all_tasks_blocked()
        assert [each["code"] for each in await served.ask("echo")] == ["busy"]
        await streams.pop().aclose()
        while served.server.statistics().open == MAX_CONNECTIONS:
            await wait_all_tasks_blocked()
        assert await served.ask("echo", n=1) == [{"event": "result", "n": 1}]
        for stream in streams:
            await stream.aclose()


async def test_another_user_is_refused(work: Path) -> None:
    """A process of another user that gets at the socket is told no, whatever it asks."""
    script = (
        "import os, socket, sys\n"
        "sock = socket.socket(socket.AF_UNIX)\n"
        f"os.setuid({NOBODY}) if sys.argv[2] == 'nobody' else None\n"
        "sock.connect(sys.argv[1]); print(sock.makefile().read() if sock.send(b'{\"verb\": \"echo\"}\\n') else '')"
    )
    async with daemon(work) as served:
        for path in (served.path, *served.path.parents[:3]):
            os.chmod(path, 0o777)
        link = f"/tmp/s3mount-test-{os.urandom(4).hex()}"
        os.link(served.path, link)  # what lies above the test's directory is closed to others
        try:
            for user, expected in (("nobody", "not-permitted"), ("root", "result")):
                ran = await trio.run_process(["python3", "-c", script, link, user], capture_stdout=True)
                assert expected in ran.stdout.decode()
        finally:
            os.unlink(link)
        assert served.server.statistics().refused == 1


async def test_an_inherited_socket(work: Path) -> None:
    """A server takes a listening socket that another process bound and gave it the descriptor of."""
    control = rundir.bind(work, "/mnt")
    given = socket.socket(fileno=os.dup(control.listener.fileno()))
    served = Daemon(control.path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(served.server.serve, given)
        assert await served.ask("echo", n=1) == [{"event": "result", "n": 1}]
        nursery.cancel_scope.cancel()
    assert rundir.is_answering(control.path), "the socket is the other process's to close"
    given.close()
    control.close()
