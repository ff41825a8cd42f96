"""The control server: what `s3mountctl` asks a running daemon, on a Unix socket.

    →  {"verb": "warm", "args": {"paths": ["train"]}}\\n             one request a connection
    ←  {"event": "progress", …}\\n                                   any number, of any kind
    ←  {"event": "result", …}\\n  or  {"event": "error", "code": …, "message": …}\\n      one, the last

A verb is an async function of its arguments and a `Talk`; `Verbs` is the table of them.  What a verb raises is
the client's answer, and never the daemon's end.

* Only the daemon's own user and root are served (SO_PEERCRED); the socket's mode says the same.
* A client that goes away cancels its verb.  Leave the connection open in both directions until the answer.
* Progress never waits: of a client that reads slowly, the next one it gets is the newest.  All else that a verb tells
  waits for the client, and so does only that verb.  A client that reads nothing for `_SEND_S` is gone.
* `_HEARTBEAT_S` pass without a line only when the daemon is stuck, so a client need not wait for ever.
* At most `MAX_CONNECTIONS` verbs at once, and `MAX_LINE` bytes of request for each.
"""

import json
import logging
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import outcome
import trio

from s3mount.daemon.mistakes import FAILURES
from s3mount.errors import BadOption, NameNotFound, S3MountError, sole_cause
from s3mount.units import KIB, MIB

log = logging.getLogger(__name__)

#: Restart, statistics and a few long ones; each may hold a request of `MAX_LINE`.
MAX_CONNECTIONS = 8
#: Some ten thousand paths; a client with more asks several times.
MAX_LINE = 4 * MIB
#: Seconds for the request to arrive, and for a client to read something.
_REQUEST_S = 10.0
_SEND_S = 30.0
#: Seconds for the client to take the answer and close.
_LINGER_S = 1.0
#: Seconds between two lines of progress, and the longest without any line.
_PROGRESS_S = 0.2
_HEARTBEAT_S = 5.0
_PEERCRED = struct.Struct("3i")  # socket(7), SO_PEERCRED: pid, uid, gid

Arguments = Mapping[str, Any]
#: Returns the facts of the result.
Verb = Callable[[Arguments, "Talk"], Awaitable[dict[str, Any]]]
Verbs = Mapping[str, Verb]


class Talk:
    """What a verb tells its client.

    Args:
        scope: of the connection; cancelled when the client is gone.

    Attributes:
        lock: held while a line is being sent.
    """

    def __init__(self, stream: trio.SocketStream, scope: trio.CancelScope) -> None:
        self._stream = stream
        self._scope = scope
        self.lock = trio.Lock()
        self._news = trio.Event()
        self._progress: dict[str, Any] = {}

    def progress(self, **facts: Any) -> None:
        """How far the verb is; replaces what was said before and not sent yet."""
        self._progress = facts
        self._news.set()

    async def tell(self, event: str, **facts: Any) -> None:
        """A line of its own, sent when this returns.  Never cancel it and go on: it may be sent in part."""
        line = json.dumps({"event": event, **facts}).encode() + b"\n"
        async with self.lock:
            with trio.move_on_after(_SEND_S), suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await self._stream.send_all(line)
                return
        self._scope.cancel()
        await trio.lowlevel.checkpoint()

    async def watch(self) -> None:
        """Cancel the verb when the client goes away."""
        with suppress(trio.BrokenResourceError):
            while await self._stream.receive_some():
                pass  # one request a connection: more is not asked for
        self._scope.cancel()

    async def run(self) -> None:
        """Send progress, or a heartbeat, for ever."""
        while True:
            with trio.move_on_after(_HEARTBEAT_S):
                await self._news.wait()
            self._news = trio.Event()
            await self.tell("progress", **self._progress)
            await trio.sleep(_PROGRESS_S)


@dataclass(frozen=True)
class ControlStatistics:
    """Connections now, and since the start: served, and refused because of who or how many they were."""

    open: int
    served: int
    refused: int


class ControlServer:
    """Serves the verbs of one daemon.

    Args:
        verbs: by name.
    """

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs
        self._open = 0
        self._served = 0
        self._refused = 0
        self._ended = trio.Event()

    async def serve(self, listener: socket.socket) -> None:
        """Accept until cancelled.

        Args:
            listener: bound and listening; it stays the caller's to close, as does its name.
        """
        listener.setblocking(False)  # noqa: FBT003
        ours = trio.socket.from_stdlib_socket(listener.dup())
        await trio.serve_listeners(self._greet, [trio.SocketListener(ours)])

    async def _greet(self, stream: trio.SocketStream) -> None:
        """One connection, from the first byte to the last."""
        with trio.CancelScope() as scope:
            async with stream:
                talk = Talk(stream, scope)
                refusal = self._refusal(stream)
                if refusal is not None:
                    self._refused += 1
                    await talk.tell("error", code=refusal[0], message=refusal[1])
                    await _linger(stream)
                    return
                self._open += 1
                self._served += 1
                try:
                    await self._answer(stream, talk)
                    await _linger(stream)
                finally:
                    self._open -= 1
                    self._ended.set()
                    self._ended = trio.Event()

    def _refusal(self, stream: trio.SocketStream) -> tuple[str, str] | None:
        """Why a connection is not served: code and message."""
        raw = stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEERCRED.size)
        _, uid, _ = _PEERCRED.unpack(raw)
        if uid not in (0, os.geteuid()):
            return "not-permitted", f"uid {uid} may not control the mount of uid {os.geteuid()}"
        if self._open >= MAX_CONNECTIONS:
            return "busy", f"{MAX_CONNECTIONS} commands are under way; wait for one to end"
        return None

    async def _answer(self, stream: trio.SocketStream, talk: Talk) -> None:
        try:
            facts = await self._perform(stream, talk)
        except FAILURES as failure:
            error = sole_cause(failure)
            if isinstance(error, S3MountError):
                await talk.tell("error", code=_code_of(error), message=str(error))
            else:
                log.exception("a bug in a command of s3mountctl")
                await talk.tell("error", code="internal", message="this is a bug; the daemon's log has a traceback")
            return
        await talk.tell("result", **facts)

    async def _perform(self, stream: trio.SocketStream, talk: Talk) -> dict[str, Any]:
        name, args = await _request(stream)
        verb = self._verbs.get(name)
        if verb is None:
            raise BadOption(f"this daemon has no command {name!r}; it has {', '.join(sorted(self._verbs))}")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(talk.run)
            nursery.start_soon(talk.watch)
            came = await outcome.acapture(verb, args, talk)
            async with talk.lock:  # else a line of progress is cut off
                nursery.cancel_scope.cancel()
        return came.unwrap()

    async def idle(self) -> None:
        """Until no verb is under way."""
        while self._open:
            await self._ended.wait()
        await trio.lowlevel.checkpoint()

    def statistics(self) -> ControlStatistics:
        """A snapshot of the counters."""
        return ControlStatistics(self._open, self._served, self._refused)

    def check_invariants(self) -> None:
        """Raises ValueError when there are more connections than allowed."""
        if not 0 <= self._open <= MAX_CONNECTIONS:
            raise ValueError(f"{self._open} connections are open")


async def _linger(stream: trio.SocketStream) -> None:
    """Take what the client still sends: a socket closed before that gives it an error in the place of the answer."""
    with trio.move_on_after(_LINGER_S), suppress(trio.BrokenResourceError):
        await stream.send_eof()
        while await stream.receive_some():
            pass


def _code_of(error: S3MountError) -> str:
    """What a client can act on: what was asked cannot be meant, is not there, or failed."""
    if isinstance(error, BadOption):
        return "usage"
    return "not-found" if isinstance(error, NameNotFound) else "failed"


async def _request(stream: trio.SocketStream) -> tuple[str, Arguments]:
    """The verb's name and its arguments.

    Raises:
        BadOption: it is no request, too long, or did not come.
    """
    line = bytearray()
    with trio.move_on_after(_REQUEST_S):
        while b"\n" not in line[-64 * KIB :] and len(line) <= MAX_LINE:
            with suppress(trio.BrokenResourceError):
                if piece := await stream.receive_some(64 * KIB):
                    line += piece
                    continue
            break
    if b"\n" not in line or len(line) > MAX_LINE:
        raise BadOption(f"a request is one line of at most {MAX_LINE} bytes, within {_REQUEST_S:g} s")
    try:
        request = json.loads(line)
        name, args = request["verb"], request.get("args", {})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadOption('a request is {"verb": NAME, "args": {…}} as JSON') from error
    if not isinstance(name, str) or not isinstance(args, dict):
        raise BadOption('a request is {"verb": NAME, "args": {…}} as JSON')
    return name, args
