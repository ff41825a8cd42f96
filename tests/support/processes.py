"""Processes that a test starts, and that end with it whatever happens.

a test fails                what it started by `running` is ended, anything else killed (tests/conftest.py)
SIGTERM to pytest           the same: it is as an interrupt
SIGKILL to pytest           the kernel kills what was started as `WITH_US`: servers, which nobody would miss
"""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

_Seen = TypeVar("_Seen")
#: The beginning of a command line: the rest dies with the thread that starts it.
WITH_US = ("setpriv", "--pdeathsig", "KILL")
_running: set[int] = set()

KEY, SECRET, REGION = "testkey", "testsecret", "us-east-1"


def free_port() -> int:
    """A port nobody listens on now, outside the range the kernel gives to connecting sockets.

    SeaweedFS listens for gRPC on a port + 10,000, so both must be free.
    """
    for _ in range(1000):
        port = 10_000 + int.from_bytes(os.urandom(2), "big") % 10_000
        if all(_is_free(candidate) for candidate in (port, port + 10_000)):
            return port
    raise RuntimeError("no free port")


def _is_free(port: int) -> bool:
    with socket.socket() as sock:
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def wait_until(look: Callable[[], _Seen], timeout_s: float, what: str) -> _Seen:
    """Poll something outside this process until it is true, and tell what it was; inside there are events."""
    deadline = time.perf_counter() + timeout_s
    while not (seen := look()):
        if time.perf_counter() > deadline:
            raise TimeoutError(f"{what} did not happen within {timeout_s:g} s")
        time.sleep(0.02)  # noqa: TID251  another process
    return seen


@contextlib.contextmanager
def running(
    command: list[str], log: Path, *, patience_s: float = 10, **popen: object
) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own; the whole group is ended on the way out, killed after `patience_s`."""
    with log.open("ab") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink, start_new_session=True, **popen)  # type: ignore[call-overload]
    _running.add(process.pid)
    try:
        yield process
    finally:
        end(process, patience_s)
        _running.discard(process.pid)


def strays() -> dict[int, str]:
    """Children of this process that run and that no `running` ends, with their command lines."""
    found = {}
    for listed in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for pid in map(int, listed.read_text(encoding="ascii").split()):
                command = Path(f"/proc/{pid}/cmdline").read_bytes()  # empty of one that has ended
                if command and pid not in _running:
                    found[pid] = command.replace(b"\0", b" ").decode("utf-8", "replace").strip()
    return found


def kill_all(pids: Iterable[int]) -> None:
    """SIGKILL to children, which are gone when this returns."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def end(process: subprocess.Popen[bytes], patience_s: float = 10) -> None:
    """SIGTERM, then SIGKILL, to the process's own group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            continue
        return
