"""`s3mountctl` as users run it."""

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.mounts import aws_environment

COMMAND = [sys.executable, "-c", "from s3mount.cli.ctl import main; main(prog_name='s3mountctl')"]


def run_ctl(*arguments: str | Path, stdin: bytes = b"", timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    """The command with these arguments, until it returns."""
    ran = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        input=stdin, env=aws_environment(), capture_output=True, timeout=timeout_s, check=False,
    )  # fmt: skip
    return subprocess.CompletedProcess(ran.args, ran.returncode, ran.stdout.decode(), ran.stderr.decode())


@contextlib.contextmanager
def restarting(mount_point: Path) -> Iterator[list[subprocess.CompletedProcess[str]]]:
    """`s3mountctl restart` runs beside the block; when the block has ended the list has what came of it."""
    came: list[subprocess.CompletedProcess[str]] = []
    thread = threading.Thread(target=lambda: came.append(run_ctl("restart", mount_point)))
    thread.start()
    try:
        yield came
    finally:
        thread.join()


def result_of(ran: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The last event of a command with --json."""
    facts: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    assert facts["event"] == "result", ran
    return facts
