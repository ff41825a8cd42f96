"""A mount that ends before it was ready: nobody is blamed for it."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from s3mount.daemon.exits import ExitCode
from tests.support.mounts import COMMAND, aws_environment, clean_up, is_mounted
from tests.support.processes import wait_until
from tests.support.refusals import processes_of
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server]

#: Answers well, as stat(1) does, and only when what it asks about is no longer mounted.
_LATE_STAT = """#!/bin/sh
while grep -qF " $2 " /proc/self/mountinfo; do sleep 0.01; done
"""


@contextmanager
def starting(server: Server, work: Path, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    """The command, mounted, and about to learn whether the mount answers."""
    (work / "bin").mkdir()
    (work / "bin" / "stat").write_text(_LATE_STAT, encoding="ascii")
    (work / "bin" / "stat").chmod(0o755)
    mnt = work / "mnt"
    mnt.mkdir()
    env = aws_environment(PATH=f"{work}/bin:{os.environ['PATH']}")
    command = [COMMAND, server.make_bucket(), str(mnt), "--endpoint-url", server.url, "--force-path-style", *flags]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE) as process:
        try:
            wait_until(lambda: processes_of(mnt, str(work / "bin" / "stat")), 30, "the daemon asking the mount")
            yield process
        finally:
            process.kill()
            clean_up(mnt)
    assert processes_of(mnt) == []


def test_a_stop_before_it_is_ready(weed: Server, work: Path) -> None:
    """A daemon told to stop before its mount answered ends well, and does not say that the mount did not answer."""
    with starting(weed, work, "--foreground", "--no-log") as process:
        process.terminate()
        _, said = process.communicate(timeout=30)
        assert (process.returncode, said) == (0, b"")
        assert not is_mounted(work / "mnt")


def test_an_unmount_before_it_is_ready(weed: Server, work: Path) -> None:
    """The command says so when somebody unmounts what it waits for."""
    with starting(weed, work) as process:
        subprocess.run(["umount", work / "mnt"], check=True)
        _, said = process.communicate(timeout=30)
        line = f"s3mount: {work}/mnt was unmounted before it was ready\n"
        assert (process.returncode, said.decode()) == (ExitCode.NOT_ANSWERING, line)
