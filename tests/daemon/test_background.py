"""The background: what the parent reports, and that nothing of a failed start stays.

Each case is a process of its own, because the child of a fork must not be a second pytest.
"""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from s3mount.daemon.exits import ExitCode
from tests.support.mounts import clean_up, is_mounted
from tests.support.processes import wait_until

_PRELUDE = """
import os, signal, subprocess, sys, threading
from s3mount.daemon.background import Outcome, start
mount_point = sys.argv[1]
def note(text):
    with open(sys.argv[2], "a") as notes:
        print(text, file=notes)
def done(outcome):
    print(outcome.code, outcome.message)
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        print("no child")
"""


@pytest.fixture
def mnt(work: Path) -> Iterator[Path]:
    """A directory to mount on."""
    path = work / "mnt"
    path.mkdir()
    yield path
    clean_up(path)


def run(code: str, mnt: Path) -> subprocess.CompletedProcess[str]:
    """A program that starts something in the background."""
    return subprocess.run(_command(code, mnt), capture_output=True, text=True, timeout=60, check=False)


def _command(code: str, mnt: Path) -> list[str]:
    return [sys.executable, "-c", _PRELUDE + textwrap.dedent(code), str(mnt), str(mnt.parent / "notes")]


def notes(mnt: Path) -> list[str]:
    """What the child noted about itself."""
    path = mnt.parent / "notes"
    return path.read_text().splitlines() if path.exists() else []


def test_a_process_with_threads_does_not_fork(mnt: Path) -> None:
    """A fork of threads is never safe, so it is refused before it happens."""
    result = run(
        """
        release = threading.Event()
        threading.Thread(target=release.wait).start()
        try:
            start(lambda pipe: note("forked") or 0, mount_point)
        except RuntimeError as error:
            print(error)
        release.set()
        """,
        mnt,
    )
    assert "must not fork" in result.stdout
    assert notes(mnt) == []


def test_ready(mnt: Path) -> None:
    """The parent returns success when the child is ready, and the child lives on, detached."""
    result = run(
        """
        def serve(pipe):
            note(os.getpid())
            note(os.getsid(0) == os.getpid())
            note(os.getcwd())
            note([os.readlink(f"/proc/self/fd/{fd}") for fd in (0, 1)])
            print("the user still sees this", file=sys.stderr, flush=True)
            pipe.ready()
            print("and this no more", file=sys.stderr, flush=True)
            pipe.report(Outcome(7, "too late"))
            signal.pause()
        outcome = start(serve, mount_point)
        print(outcome.code, repr(outcome.message))
        """,
        mnt,
    )
    pid = int(notes(mnt)[0])
    try:
        assert (result.returncode, result.stdout) == (0, "0 ''\n")
        assert result.stderr == "the user still sees this\n"
        assert notes(mnt)[1:] == ["True", "/", "['/dev/null', '/dev/null']"]
        assert _is_running(pid)
    finally:
        os.kill(pid, signal.SIGKILL)


def test_the_childs_error_is_reported(mnt: Path) -> None:
    """Code and message of a child that could not mount are the parent's, and the child is gone."""
    result = run(
        """
        def serve(pipe):
            pipe.report(Outcome(7, "the endpoint — is no use " + "x" * 100_000))
            return 7
        done(start(serve, mount_point))
        """,
        mnt,
    )
    first, second = result.stdout.splitlines()
    assert first == "7 the endpoint — is no use " + "x" * 100_000
    assert second == "no child"


@pytest.mark.parametrize(
    "death", ["os.kill(os.getpid(), signal.SIGKILL)", "os._exit(3)", "raise ZeroDivisionError"], ids=str
)
def test_the_childs_death_is_reported(mnt: Path, death: str) -> None:
    """A child that dies without a word is an internal error at once, not after the time-out."""
    result = run(
        f"""
        def serve(pipe):
            {death}
        done(start(serve, mount_point))
        """,
        mnt,
    )
    first, second = result.stdout.splitlines()
    assert first.startswith(f"{ExitCode.INTERNAL:d} the daemon died while starting")
    assert second == "no child"


def test_a_child_that_is_never_ready(mnt: Path) -> None:
    """After the time-out the child is killed, whatever it does, and the parent says so."""
    result = run(
        """
        def serve(pipe):
            note(os.getpid())
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            while True:
                signal.pause()
        done(start(serve, mount_point, timeout_s=5.0))
        """,
        mnt,
    )
    first, second = result.stdout.splitlines()
    assert first == f"{ExitCode.NOT_ANSWERING:d} the mount did not answer within 5 s"
    assert second == "no child"
    assert not _is_running(int(notes(mnt)[0]))


def test_an_interrupted_wait(mnt: Path) -> None:
    """Control-C while the parent waits ends the child too: no mount appears afterwards."""
    code = """
        def serve(pipe):
            note(os.getpid())
            while True:
                signal.pause()
        try:
            start(serve, mount_point)
        except KeyboardInterrupt:
            print("interrupted")
        """
    with subprocess.Popen(_command(code, mnt), stdout=subprocess.PIPE, text=True) as process:
        wait_until(lambda: bool(notes(mnt)), 30, "the child starting")
        stack = Path(f"/proc/{process.pid}/stack")
        wait_until(lambda: "do_select" in stack.read_text(encoding="ascii"), 30, "the parent waiting")
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=30)
    assert output == "interrupted\n"
    assert not _is_running(int(notes(mnt)[0]))


@pytest.mark.mount
@pytest.mark.parametrize("death", ["os.kill(os.getpid(), signal.SIGKILL)", "signal.pause()"], ids=["dies", "hangs"])
def test_a_failed_start_leaves_other_mounts_alone(mnt: Path, death: str) -> None:
    """What somebody else mounted on the directory stays, however the child ends."""
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(mnt)], check=True)
    run(f"start(lambda pipe: {death}, mount_point, timeout_s=1.0)", mnt)
    assert is_mounted(mnt)


@pytest.mark.mount
def test_a_failed_start_leaves_no_mount_of_its_own(mnt: Path) -> None:
    """A child that mounted and then hangs takes its mount with it."""
    result = run(
        """
        import ctypes
        def serve(pipe):
            device = os.open("/dev/fuse", os.O_RDWR)
            options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
            note(ctypes.CDLL(None).mount(b"x", mount_point.encode(), b"fuse.s3mount", 0, options))
            signal.pause()
        done(start(serve, mount_point, timeout_s=5.0))
        """,
        mnt,
    )
    assert notes(mnt) == ["0"]
    assert result.stdout.startswith(f"{ExitCode.NOT_ANSWERING:d} ")
    assert not is_mounted(mnt)


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
