"""What tests start ends with them, also when pytest itself is ended."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import WITH_US, kill_all, strays, wait_until

ROOT = Path(__file__).parents[2]
#: Starts two processes and waits until somebody ends this one.
TEST = """
import os, subprocess, sys
from pathlib import Path
from tests.support.processes import WITH_US, running, wait_until

def test_that_waits():
    here = Path(__file__).parent
    with running([*WITH_US, "sleep", "100"], here / "log") as bound, running(["sleep", "100"], here / "log") as other:
        (here / "new").write_text(f"{bound.pid} {other.pid}")
        (here / "new").rename(here / "pids")
        wait_until(lambda: False, 100, "the end")
"""


#: A test that fails with programs in its hands, and one during which nobody holds them any more.
FAILING = """
import gc, subprocess, sys

def test_that_fails():
    ended = subprocess.Popen(["true"], stdout=subprocess.PIPE)
    running = subprocess.Popen(["sleep", "100"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert ended is running

def test_after_it():
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        sys.__dict__.pop(name, None)
    gc.collect()
"""


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_a_session(tmp_path: Path, number: signal.Signals) -> None:
    """pytest ended by SIGTERM ends what its tests started; killed, it takes the servers with it."""
    (tmp_path / "test_waiting.py").write_text(TEST, encoding="ascii")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "--rootdir", tmp_path, "-c", os.devnull]
    with subprocess.Popen([*command, tmp_path], cwd=ROOT, stdout=subprocess.PIPE) as session:
        wait_until(lambda: (tmp_path / "pids").exists() or session.poll() is not None, 60, "the test")
        assert session.poll() is None, session.stdout.read().decode() if session.stdout else ""
        bound, other = map(int, (tmp_path / "pids").read_text().split())
        assert runs(bound)
        assert runs(other)
        session.send_signal(number)
        session.communicate()
    if number is signal.SIGTERM:
        assert session.returncode == pytest.ExitCode.INTERRUPTED
        assert not runs(other)
    else:
        os.kill(other, signal.SIGKILL)
    wait_until(lambda: not runs(bound), 10, "the server's end")


def test_a_failure_fails_no_other_test(tmp_path: Path) -> None:
    """Programs that a failed test has started are ended and waited for before the next one begins."""
    (tmp_path / "test_failing.py").write_text(FAILING, encoding="ascii")
    options = ["-q", "-p", "no:cacheprovider", "-p", "tests.conftest", "--rootdir", tmp_path, "-c", os.devnull]
    command = [sys.executable, "-m", "pytest", *options, "-W", "error", tmp_path]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert ran.stdout.splitlines()[-1].startswith("1 failed, 1 passed in "), ran.stdout


def test_a_process_that_a_test_forgot_is_known() -> None:
    """It is found with its command line, and killed; one that has ended is none."""
    before = strays()
    with subprocess.Popen(["true"]) as ended, subprocess.Popen([*WITH_US, "sleep", "100"]) as forgotten:
        wait_until(lambda: not runs(ended.pid), 10, "its end")
        command = Path(f"/proc/{forgotten.pid}/cmdline")
        wait_until(lambda: command.read_bytes() == b"sleep\x00100\x00", 10, "the program")  # for a moment it has none
        assert strays().items() - before.items() == {(forgotten.pid, "sleep 100")}
        kill_all([forgotten.pid])
        assert not runs(forgotten.pid)
