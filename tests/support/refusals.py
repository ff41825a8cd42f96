"""Starts that must fail: an exit code, one line, and nothing left behind."""

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from tests.support.mounts import COMMAND, is_mounted, run_command


def refusal(
    mount_point: Path,
    code: int,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    within_s: float = 60.0,
) -> str:
    """The line that the command prints when it cannot mount; checks that nothing is left.

    Args:
        arguments: all of the command's, `--foreground` too where that is meant.
        within_s: the longest the user may wait for it.
    """
    started = time.perf_counter()
    result = run_command(*arguments, env=env)
    took_s = time.perf_counter() - started
    assert result.returncode == code, (result.returncode, result.stderr)
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert not is_mounted(mount_point)
    assert processes_of(mount_point) == []
    assert took_s < within_s
    return lines[0]


def refusal_in_both_modes(
    mount_point: Path, code: int, *arguments: str, env: Mapping[str, str] | None = None, within_s: float = 60.0
) -> str:
    """As `refusal`, in the background and in the foreground, which must say the same."""
    line = refusal(mount_point, code, *arguments, env=env, within_s=within_s)
    assert line.startswith("s3mount: ")
    in_foreground = refusal(mount_point, code, *arguments, "--foreground", env=env, within_s=within_s)
    assert in_foreground.endswith(line.removeprefix("s3mount: ")), in_foreground
    return line


def daemon_of(mount_point: Path) -> int:
    """The one daemon that serves the path."""
    (pid,) = processes_of(mount_point, COMMAND)
    return pid


def kill_all(mount_point: Path) -> None:
    """kill -9 of daemon and mounter; that one first, since it would start another daemon."""
    daemon = daemon_of(mount_point)
    for pid in (os.getsid(daemon), daemon):
        os.kill(pid, signal.SIGKILL)


def kill_processes_of(mount_point: Path) -> None:
    """kill -9 of whatever names the path, and may end meanwhile."""
    for pid in processes_of(mount_point):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def processes_of(mount_point: Path, program: str = "") -> list[int]:
    """Processes that name the path as an argument: the command, its daemon, fusermount3; or one program's."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it ended meanwhile
        if bytes(mount_point) in arguments and (not program or program.encode() in arguments):
            found.append(int(process.name))
    return sorted(found)
