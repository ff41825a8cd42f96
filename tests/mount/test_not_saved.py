"""Ends of a mount after which S3 does not have all that was written: the exit code tells."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from s3mount.daemon.exits import ExitCode
from tests.support.mounts import Mount, mounted
from tests.support.processes import wait_until
from tests.support.proxy import Fault, Proxy, Request, error_answer, proxy
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server]


@contextmanager
def refusing(weed: Server, work: Path, method: str) -> Iterator[tuple[Mount, Proxy]]:
    """A mount of a bucket with an object `a`, on a server that refuses a method."""
    bucket = weed.make_bucket()
    weed.client.put_object(Bucket=bucket, Key="a", Body=b"head")

    def decide(request: Request) -> Fault | None:
        return Fault(answer=error_answer(403, "AccessDenied")) if request.method == method else None

    with proxy(weed.url) as front:
        front.decide = decide
        with mounted(bucket, work, "--rw", url=front.url) as mount:
            yield mount, front


def test_a_refused_removal_at_the_end(weed: Server, work: Path) -> None:
    """A mount that is stopped and could not remove in S3 what was removed ends with a code of its own."""
    with refusing(weed, work, "DELETE") as (mount, _):
        (mount.path / "a").unlink()
        assert mount.stop() == ExitCode.NOT_SAVED
    assert "not all that was removed is gone in S3" in mount.log


def test_an_append_that_was_refused_earlier(weed: Server, work: Path) -> None:
    """A mount that is stopped long after S3 refused an append that was closed ends with a code of its own."""
    with refusing(weed, work, "PUT") as (mount, front):
        with (mount.path / "a").open("ab") as file:
            file.write(b" tail")
        wait_until(lambda: "what was appended to 'a' (" in mount.log, 30, "the refusal")
        front.decide = None
        assert mount.stop() == ExitCode.NOT_SAVED
    assert "not in S3: 'a'" in mount.log


def test_a_daemon_that_is_killed_while_it_saves(weed: Server, work: Path) -> None:
    """When its daemon is killed before it has saved what is written a stopped mount ends with a code of its own."""
    code = "import sys; file = open(sys.argv[1], 'wb', buffering=0); file.write(b'x'); print(flush=True); input()"
    with mounted(weed.make_bucket(), work, "--rw", url=weed.url) as mount:
        command = [sys.executable, "-c", code, mount.path / "a"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
            try:
                assert program.stdout is not None
                program.stdout.readline()
                daemon = mount.daemon_pid
                mount.process.send_signal(signal.SIGTERM)
                wait_until(lambda: "waiting for files that are being written: 'a'" in mount.log, 30, "the log")
                os.kill(daemon, signal.SIGKILL)
                assert mount.process.wait(30) == ExitCode.NOT_SAVED
            finally:
                program.kill()
        assert "was killed by SIGKILL while it ended" in mount.log
