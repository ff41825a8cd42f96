"""The background: a parent that waits until the mount answers, and reports the child's error.

The fork happens before any thread exists (the CRT hangs in a forked child, and a fork of threads
is never safe); `start` refuses otherwise.  The child sends one line over a pipe: empty
for ready, or its exit code and message.  Nothing on the pipe means that it died.

The child leads a session of its own; but not where an automounter waits for the mount, whose process group alone may
name the mount point before it is there.
"""

import contextlib
import os
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from s3mount.daemon import mountpoint
from s3mount.daemon.exits import ExitCode
from s3mount.fuse.mountinfo import is_automounted
from s3mount.logs import close_stderr

#: Seconds, as Mountpoint gives.
READY_TIMEOUT_S = 30.0


class Outcome(NamedTuple):
    """How the start went; `message` is empty when it went well."""

    code: int
    message: str


class Pipe:
    """The child's end (`Readiness`)."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def ready(self) -> None:
        """The mount answers: release the parent, and whoever waits for the end of its stderr."""
        close_stderr()
        self.report(Outcome(ExitCode.OK, ""))

    def report(self, outcome: Outcome) -> None:
        """The first report counts; the parent may be gone."""
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.write(self._descriptor, f"{outcome.code} {outcome.message}\n".encode("utf-8", "replace"))
            os.close(self._descriptor)
            self._descriptor = -1


def start(serve: Callable[[Pipe], int], mount_point: str, *, timeout_s: float = READY_TIMEOUT_S) -> Outcome:
    """Run `serve` in a child with no terminal; returns only in the parent, when the child is ready.

    Args:
        serve: gets the pipe, returns the exit code of the child.
        timeout_s: then the child is killed; also when the user interrupts the wait.
    """
    if len(os.listdir("/proc/self/task")) != 1:
        raise RuntimeError("a process with threads must not fork")
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        if not is_automounted(mount_point):
            os.setsid()
        _detach_from_terminal()
        sys.exit(serve(Pipe(writer)))
    os.close(writer)
    try:
        return _wait(reader, pid, mount_point, timeout_s)
    except KeyboardInterrupt:
        _give_up(pid, mount_point)
        raise
    finally:
        os.close(reader)


def _detach_from_terminal() -> None:
    """No terminal, no working directory that could not be unmounted; stderr stays until ready."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    os.chdir("/")


def _wait(reader: int, pid: int, mount_point: str, timeout_s: float) -> Outcome:
    ready, _, _ = select.select([reader], [], [], timeout_s)
    if not ready:
        _give_up(pid, mount_point)
        return Outcome(ExitCode.NOT_ANSWERING, f"the mount did not answer within {timeout_s:g} s")
    line = b""
    while piece := os.read(reader, 65536):
        line += piece
    if line:
        code, _, message = line.decode("utf-8", "replace").strip().partition(" ")
        if int(code) != ExitCode.OK:
            os.waitpid(pid, 0)
        return Outcome(int(code), message)
    _, status = os.waitpid(pid, 0)
    mountpoint.clear_dead(mount_point)
    if status == 0:
        return Outcome(ExitCode.NOT_ANSWERING, f"{mount_point} was unmounted before it was ready")
    return Outcome(ExitCode.INTERNAL, f"the daemon died while starting (wait status {status})")


def _give_up(pid: int, mount_point: str) -> None:
    """No process and no mount of this start stays: not the child, and not its children."""
    with contextlib.suppress(ProcessLookupError):  # it leads no group, or not yet, if it was just forked
        os.killpg(pid, signal.SIGKILL)
    os.kill(pid, signal.SIGSTOP)  # so that it starts no other daemon
    for each in (*_children_of(pid), pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
    os.waitpid(pid, 0)
    mountpoint.clear_dead(mount_point)


def _children_of(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]
    except OSError:
        return []
