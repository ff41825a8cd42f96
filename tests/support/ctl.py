"""`s3mountctl` as users run it."""

import json
import subprocess
import sys
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


def result_of(ran: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The last event of a command with --json."""
    facts: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    assert facts["event"] == "result", ran
    return facts
