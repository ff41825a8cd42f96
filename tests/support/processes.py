"""Processes that a test starts, and that end with it whatever happens.

a test fails                what it started by `running` is ended, anything else killed (tests/conftest.py)
SIGTERM to pytest           the same: it is as an interrupt
SIGKILL to pytest           the kernel kills what was started as `WITH_US`: servers, which nobody would miss
"""

import contextlib
import gc
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Container, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

_Seen = TypeVar("_Seen")
#: The beginning of a command line: the rest dies with the thread that starts it.
WITH_US = ("setpriv", "--pdeathsig", "KILL")
_running: set[int] = set()
#: Of ports; held until this process ends.
_claims: list[socket.socket] = []

KEY, SECRET, REGION = "testkey", "testsecret", "us-east-1"


def free_port() -> int:
    """A port nobody listens on now, outside the range the kernel gives to connecting sockets.

    SeaweedFS listens for gRPC on a port + 10,000, so both must be free.  Whoever gets one listens a moment later: no
    other session of tests at the same time, and no other caller, gets it until this process ends.
    """
    for _ in range(1000):
        port = 10_000 + int.from_bytes(os.urandom(2), "big") % 10_000
        if _claim(port) and all(_is_free(candidate) for candidate in (port, port + 10_000)):
            return port
    raise RuntimeError("no free port")


def _claim(port: int) -> bool:
    """Whether nobody else has it: of an abstract Unix address there is one socket, and it goes with its process."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0s3mount-tests-port-{port}")
    except OSError:
        claim.close()
        return False
    _claims.append(claim)
    return True


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
    command: list[str], log: Path, *, patience_s: float = 30, **popen: object
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


def let_go(before: Container[int]) -> None:
    """End each program of a test that failed, but for those that ran before it and those of `running`.

    What failed keeps its `Popen` until a later test, which would fail by the warning that it was never waited for.
    """
    for program in [each for each in gc.get_objects() if issubclass(type(each), subprocess.Popen)]:
        if program.pid is None or program.pid in before or program.pid in _running:
            continue
        program.kill()
        for pipe in (program.stdin, program.stdout, program.stderr):
            with contextlib.suppress(OSError):  # what was not written yet
                if pipe is not None:
                    pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):  # stuck in the kernel
            program.wait(10)


def end(process: subprocess.Popen[bytes], patience_s: float = 30) -> None:
    """SIGTERM, then SIGKILL, to the process's own group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            continue
        return
