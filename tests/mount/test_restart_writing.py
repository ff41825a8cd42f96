"""A restart on demand while programs begin to write, or did a moment ago."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from s3mount.daemon.exits import ExitCode
from tests.support.ctl import run_ctl
from tests.support.mounts import mounted
from tests.support.processes import wait_until
from tests.support.proxy import Fault, Request, proxy
from tests.support.servers import Server
from tests.support.takeover import wait_for_takeover

pytestmark = [pytest.mark.mount, pytest.mark.server]

#: Appends lines, one open for each, until it is told to end; prints how many.
APPENDING = """
import sys, threading
stop = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
n = 0
while not stop.wait(0.03):
    with open(sys.argv[1], "a") as file:
        file.write(f"{n}\\n")
    n += 1
print(n)
"""


def test_no_restart_while_a_file_is_being_made(weed: Server, work: Path) -> None:
    """A restart while a program waits for the answer to a create is refused; the file has what it writes then."""
    bucket = weed.make_bucket()
    weed.client.put_object(Bucket=bucket, Key="a", Body=b"old")
    has_arrived, may_pass = threading.Event(), threading.Event()

    def decide(request: Request) -> None:
        if request.method == "DELETE":
            has_arrived.set()
            may_pass.wait(60)

    with proxy(weed.url) as front:
        front.decide = decide
        with mounted(bucket, work, "--rw", url=front.url) as mount:
            (mount.path / "a").unlink()
            assert has_arrived.wait(30)
            command = [sys.executable, "-c", "import sys; open(sys.argv[1], 'w').write('new')", mount.path / "a"]
            with subprocess.Popen(command) as program:
                try:
                    stack = Path(f"/proc/{program.pid}/stack")
                    wait_until(lambda: "fuse" in stack.read_text(encoding="ascii"), 30, "the create")
                    answer = run_ctl("restart", mount.path)
                finally:
                    may_pass.set()
            assert answer.returncode == 1
            assert answer.stderr == (
                "s3mountctl: the daemon goes on as it is: programs are opening files to write them; try again\n"
            )
            assert program.returncode == 0
            assert weed.client.get_object(Bucket=bucket, Key="a")["Body"].read() == b"new"
            assert run_ctl("restart", mount.path).returncode == 0
            assert (mount.path / "a").read_bytes() == b"new"


def test_appends_go_on_over_a_restart(weed: Server, work: Path) -> None:
    """A program that opens a file for each line it appends gets no error from a restart, and S3 has every line."""
    bucket = weed.make_bucket()
    weed.client.put_object(Bucket=bucket, Key="log", Body=b"")
    with proxy(weed.url) as front:
        front.decide = lambda request: Fault(stall_s=0.5) if request.method == "PUT" else None
        with mounted(bucket, work, "--rw", url=front.url) as mount:
            command = [sys.executable, "-c", APPENDING, mount.path / "log"]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
                wait_until(lambda: run_ctl("restart", mount.path).returncode == 0, 150, "a restart")
                said, _ = program.communicate("\n", timeout=60)
            assert program.returncode == 0
            assert mount.stop() == 0
    lines = [f"{number}\n" for number in range(int(said))]
    assert weed.client.get_object(Bucket=bucket, Key="log")["Body"].read().decode() == "".join(lines)


def test_what_went_with_a_daemon_is_told(weed: Server, work: Path) -> None:
    """When a daemon dies with what was written, fsync and close of such files fail, of saved ones they do not."""
    bucket = weed.make_bucket()
    for key in "patched", "saved":
        weed.client.put_object(Bucket=bucket, Key=key, Body=b"old content")
    with mounted(bucket, work, "--rw", url=weed.url) as mount:
        flags = {"new": os.O_WRONLY | os.O_CREAT, "patched": os.O_RDWR, "saved": os.O_RDWR, "locked": os.O_RDWR}
        weed.client.put_object(Bucket=bucket, Key="locked", Body=b"")
        files = {name: os.open(mount.path / name, each) for name, each in flags.items()}
        for name in "new", "patched", "saved":
            os.write(files[name], b"NEW")
        os.fsync(files["saved"])
        for takeover in 1, 2:
            os.kill(mount.daemon_pid, signal.SIGKILL)
            wait_for_takeover(mount, takeover)
        for name, descriptor in files.items():
            for call in os.fsync, os.close:
                if name in ("new", "patched"):
                    with pytest.raises(OSError, match="Stale"):
                        call(descriptor)
                else:
                    call(descriptor)
        assert (mount.path / "saved").read_bytes() == b"NEW content"
        assert mount.stop() == ExitCode.NOT_SAVED
    assert mount.log.count("what programs wrote to 'patched' is lost") == 2
    assert weed.client.get_object(Bucket=bucket, Key="patched")["Body"].read() == b"old content"
