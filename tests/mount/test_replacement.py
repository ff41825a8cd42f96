"""Daemons that are replaced while they live: those that hang, and those that somebody wants new."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from s3mount.daemon.exits import ExitCode
from tests.mount import readers
from tests.mount.test_takeover import cat, digest
from tests.support.ctl import restarting, run_ctl
from tests.support.mounts import aws_environment, is_mounted, mounted
from tests.support.processes import wait_until
from tests.support.proxy import proxy
from tests.support.servers import Server
from tests.support.takeover import Gate, Installation, has_ended, served_by, standby_of, wait_for_takeover

pytestmark = [pytest.mark.mount, pytest.mark.server]


@pytest.fixture(scope="module")
def bucket(weed: Server) -> str:
    """A bucket with small files."""
    name = weed.make_bucket()
    for number in range(10):
        weed.client.put_object(Bucket=name, Key=f"d/{number}", Body=b"%d" % number)
    return name


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Opened at the end, so that no thread of the proxy stays behind."""
    made = Gate()
    yield made
    made.may_pass.set()


# -- hangs ------------------------------------------------------------------------------------


def test_a_stopped_daemon_is_replaced(weed: Server, bucket: str, work: Path) -> None:
    """A daemon that answers nothing for --hang-timeout is killed and replaced, and a call waits that long."""
    with mounted(bucket, work, "--hang-timeout", "1", url=weed.url) as mount:
        first = mount.daemon_pid
        os.kill(first, signal.SIGSTOP)
        assert cat(mount.path / "d" / "1") == "1"
        assert wait_for_takeover(mount) != first
        assert mount.daemon_pid != first
        assert "has not answered for 1 s" in mount.log
        wait_until(lambda: not Path(f"/proc/{first}").exists(), 30, "the end of the first daemon")
        assert mount.stop() == 0


def test_nothing_helps(weed: Server, bucket: str, work: Path) -> None:
    """When no daemon gets the mount to answer, its calls fail, it is unmounted, and the command ends with 8."""
    installation = Installation(work)
    with mounted(bucket, work, "--hang-timeout", "1", url=weed.url, env=installation.env) as mount:
        installation.have_it_hang()
        os.kill(mount.daemon_pid, signal.SIGSTOP)
        reader = readers.start("read_at", mount.path / "d" / "2", "0", "4096")
        assert mount.process.wait(120) == ExitCode.NOT_ANSWERING
        assert readers.answer(reader) in ("ENOTCONN", "ECONNABORTED", "ENOENT")
        assert not is_mounted(mount.path)
        assert "no daemon gets this mount to answer" in mount.log
        assert len(served_by(mount)) == 3


def test_waiting_for_s3_is_no_hang(weed: Server, bucket: str, work: Path, gate: Gate) -> None:
    """A call that waits for S3 longer than --hang-timeout is left alone."""
    with proxy(weed.url) as front:
        front.decide = gate
        with mounted(bucket, work, "--hang-timeout", "3", url=front.url) as mount:
            first = mount.daemon_pid
            reader = readers.start("read_at", mount.path / "d" / "3", "0", "4096")
            assert gate.has_arrived.wait(30)
            with pytest.raises(TimeoutError):
                wait_until(lambda: "has not answered" in mount.log, 10, "a hang")  # the mount is asked every 5 s
            gate.may_pass.set()
            assert readers.answer(reader) == digest(b"3")
            assert mount.daemon_pid == first


# -- restarts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("resend", [True, False], ids=["this kernel", "older kernels"])
def test_a_restart(weed: Server, bucket: str, work: Path, gate: Gate, *, resend: bool) -> None:
    """A restart has a new daemon serve, and a call in flight that waits for S3 gets its answer from S3."""
    env = aws_environment() if resend else aws_environment(S3MOUNT_WITHOUT_RESEND="1")
    with proxy(weed.url) as front:
        front.decide = gate
        with mounted(bucket, work, url=front.url, env=env) as mount:
            gate.key = "new-name"
            first = mount.daemon_pid
            reader = readers.start("errno_of_stat", mount.path / "new-name")
            assert gate.has_arrived.wait(30)
            with restarting(mount.path) as came:
                if resend:
                    wait_for_takeover(mount)
                else:
                    standby_of(mount, first)
                gate.may_pass.set()
                assert readers.answer(reader) == "ENOENT"
                successor = wait_for_takeover(mount)
            assert came[0].returncode == 0
            wait_until(lambda: has_ended(mount, first), 30, "the first daemon ending")
            assert mount.daemon_pid == successor
            assert "handed over after" in mount.log
            assert mount.stop() == 0
            assert mount.warnings() == []


def test_a_restart_of_what_cannot_start(weed: Server, bucket: str, work: Path) -> None:
    """When the new daemon does not start the old one goes on, and one line says so; mended, the next one serves."""
    installation = Installation(work)
    with mounted(bucket, work, url=weed.url, env=installation.env) as mount:
        first = mount.daemon_pid
        installation.break_it()
        assert run_ctl("restart", mount.path).returncode == 1
        wait_until(lambda: "not restarted" in mount.log, 30, "the line")
        assert cat(mount.path / "d" / "5") == "5"
        assert mount.daemon_pid == first
        installation.mend()
        assert run_ctl("restart", mount.path).returncode == 0
        assert wait_for_takeover(mount) != first
        assert cat(mount.path / "d" / "6") == "6"


def test_restarts_in_a_row(weed: Server, bucket: str, work: Path) -> None:
    """Five restarts under a program that looks at files all the time give it no error."""
    with mounted(bucket, work, url=weed.url) as mount:
        reader = readers.start("stat_until", work / "stop", *(mount.path / "d" / str(number) for number in range(10)))
        for count in range(1, 6):
            assert run_ctl("restart", mount.path).returncode == 0
            wait_for_takeover(mount, count)
        (work / "stop").touch()
        assert readers.answer(reader) == [1]
        assert len(set(served_by(mount))) == 5
