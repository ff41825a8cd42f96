"""A daemon that dies or hangs is replaced under the mount, which programs take for a pause."""

import hashlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mount import readers
from tests.support.mounts import Mount, aws_environment, children, is_mounted, mounted
from tests.support.processes import wait_until
from tests.support.proxy import Fault, Request, proxy
from tests.support.refusals import processes_of
from tests.support.servers import Server
from tests.support.takeover import Gate, Installation, is_prepared, standby_of, wait_for_takeover

pytestmark = [pytest.mark.mount, pytest.mark.server]

#: Daemons and what they ask: named by the warnings of a mount on which nothing else goes wrong.
_DIED = "another takes the mount over"


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


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def cat(path: Path) -> str:
    """By another process, which a mount that does not answer does not take this one with."""
    return subprocess.run(["cat", path], capture_output=True, text=True, check=True, timeout=60).stdout


def only_deaths(mount: Mount, count: int) -> bool:
    """Whether the log warns of so many deaths, and of nothing else but calls that are under suspicion for one."""
    lines = [line for line in mount.warnings() if "the daemon before died in one of" not in line]
    return len(lines) == count and all(_DIED in line for line in lines)


# -- death ------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_call_in_flight_outlives_its_daemon(
    weed: Server, bucket: str, work: Path, gate: Gate, number: signal.Signals
) -> None:
    """An open that waits for S3 when the daemon dies is answered by the next daemon, and no program gets an error."""
    with proxy(weed.url) as front:
        front.decide = gate
        with mounted(bucket, work, url=front.url) as mount:
            first = mount.daemon_pid
            reader = readers.start("read_at", mount.path / "d" / "3", "0", "4096")
            assert gate.has_arrived.wait(30)
            os.kill(first, number)
            gate.may_pass.set()
            assert readers.answer(reader) == digest(b"3")
            assert wait_for_takeover(mount) == mount.daemon_pid != first
            assert cat(mount.path / "d" / "4") == "4"
            assert mount.stop() == 0  # so that the log is whole
            warnings = [line for line in mount.warnings() if "tried one at a time" not in line]
            assert (len(warnings), _DIED in warnings[0]) == (1, True)
            assert len(mount.warnings()) == 1 + (number == signal.SIGSEGV)  # any call may have been its cause
    assert not is_mounted(mount.path)


def test_a_call_in_flight_on_older_kernels(weed: Server, bucket: str, work: Path, gate: Gate) -> None:
    """Where the kernel cannot send calls again, those in flight fail at once, and everything else goes on."""
    env = aws_environment(S3MOUNT_WITHOUT_RESEND="1")
    with proxy(weed.url) as front:
        front.decide = gate
        with mounted(bucket, work, url=front.url, env=env) as mount:
            for count in (1, 2):
                gate.has_arrived.clear()
                reader = readers.start("read_at", mount.path / "d" / str(count), "0", "4096")
                assert gate.has_arrived.wait(30)
                os.kill(mount.daemon_pid, signal.SIGKILL)
                assert readers.answer(reader) == "ECONNABORTED"
                gate.may_pass.set()
                assert cat(mount.path / "d" / "4") == "4"
                gate.may_pass.clear()
                wait_for_takeover(mount, count)
            gate.may_pass.set()
            assert mount.stop() == 0
            assert only_deaths(mount, 2)


def test_a_standby_takes_over(weed: Server, bucket: str, work: Path) -> None:
    """After a death the next daemon is started in advance, and takes over when it is needed."""
    with mounted(bucket, work, url=weed.url) as mount:
        os.kill(mount.daemon_pid, signal.SIGKILL)
        second = wait_for_takeover(mount)
        standby = standby_of(mount, second)
        wait_until(lambda: is_prepared(standby), 60, "the standby being prepared")
        os.kill(standby, signal.SIGUSR1)  # of which it has nothing to say yet
        os.kill(second, signal.SIGKILL)
        assert wait_for_takeover(mount, 2) == standby
        assert sorted(os.listdir(mount.path / "d")) == [str(number) for number in range(10)]
        os.killpg(mount.process.pid, signal.SIGINT)  # as a terminal's Ctrl-C, which reaches all of them
        assert mount.process.wait(30) == 0
        assert only_deaths(mount, 2)
        assert mount.log.count("stopping on") == 1


def test_a_takeover_while_s3_is_away(weed: Server, bucket: str, work: Path) -> None:
    """A daemon takes over while S3 answers nothing: the mount answers, and a read waits until S3 is back."""
    is_away = False

    def decide(request: Request) -> Fault | None:
        return Fault(drop=True) if is_away else None

    with proxy(weed.url) as front:
        front.decide = decide
        with mounted(bucket, work, url=front.url) as mount:
            is_away = True
            os.kill(mount.daemon_pid, signal.SIGKILL)
            wait_for_takeover(mount)
            subprocess.run(["stat", "-f", mount.path], check=True, timeout=30, stdout=subprocess.DEVNULL)
            reader = readers.start("read_at", mount.path / "d" / "5", "0", "4096")
            front.reset()
            wait_until(lambda: front.count() > 0, 30, "the read asking S3")
            is_away = False
            assert readers.answer(reader) == digest(b"5")


def test_daemons_that_cannot_start(weed: Server, bucket: str, work: Path) -> None:
    """While no daemon can be started calls wait; the log says so and says less and less often; then they go on."""
    installation = Installation(work)
    with mounted(bucket, work, url=weed.url, env=installation.env) as mount:
        installation.break_it()
        os.kill(mount.daemon_pid, signal.SIGKILL)
        reader = readers.start("read_at", mount.path / "d" / "6", "0", "4096")
        wait_until(lambda: "ended with exit code 3; another takes the mount over in 2 s" in mount.log, 60, "a pause")
        assert reader.poll() is None
        installation.mend()
        assert mount.daemon_pid != mount.process.pid
        assert readers.answer(reader) == digest(b"6")


# -- the end ----------------------------------------------------------------------------------


def test_an_unmount_while_no_daemon_serves(weed: Server, bucket: str, work: Path) -> None:
    """A mount that is unmounted between two daemons ends as one that is unmounted while it is served."""
    installation = Installation(work)
    with mounted(bucket, work, url=weed.url, env=installation.env) as mount:
        installation.break_it()
        os.kill(mount.daemon_pid, signal.SIGKILL)
        wait_until(lambda: "ended with exit code 3" in mount.log, 60, "a failed start")
        subprocess.run(["umount", "-l", mount.path], check=True)
        assert mount.process.wait(30) == 0
        wait_until(lambda: not processes_of(mount.path), 30, "the end of all")
        assert not is_mounted(mount.path)


def test_a_stop_while_no_daemon_serves(weed: Server, bucket: str, work: Path) -> None:
    """SIGTERM between two daemons unmounts; a call that waited fails."""
    installation = Installation(work)
    with mounted(bucket, work, url=weed.url, env=installation.env) as mount:
        installation.break_it()
        os.kill(mount.daemon_pid, signal.SIGKILL)
        reader = readers.start("read_at", mount.path / "d" / "6", "0", "4096")
        wait_until(lambda: "ended with exit code 3" in mount.log, 60, "a failed start")
        assert mount.stop() == 0
        # ENOENT is that of the directory below: the reader began when nothing was mounted any more.
        assert readers.answer(reader) in ("ENOTCONN", "ECONNABORTED", "ENOENT")
        assert not is_mounted(mount.path)


def test_a_daemon_outlives_its_mounter(weed: Server, bucket: str, work: Path) -> None:
    """When the mounter dies the daemon goes on and warns once; it unmounts when it is stopped."""
    with mounted(bucket, work, url=weed.url) as mount:
        daemon = mount.daemon_pid
        mount.process.kill()
        mount.process.wait(30)
        wait_until(lambda: "the mounter is gone" in mount.log, 30, "the warning")
        assert cat(mount.path / "d" / "7") == "7"
        os.kill(daemon, signal.SIGTERM)
        wait_until(lambda: not Path(f"/proc/{daemon}").exists(), 30, "the daemon ending")
        assert not is_mounted(mount.path)
        assert len(mount.warnings()) == 1


def test_one_process(weed: Server, bucket: str, work: Path) -> None:
    """With --no-takeover there is one process, and when it is killed the mount is dead."""
    with mounted(bucket, work, "--no-takeover", url=weed.url) as mount:
        assert children(mount.process.pid) == []
        assert cat(mount.path / "d" / "8") == "8"
        mount.process.kill()
        mount.process.wait(30)
        assert is_mounted(mount.path)
        with pytest.raises(OSError, match="Transport endpoint"):
            os.statvfs(mount.path)


def test_the_mounter_is_small(weed: Server, bucket: str, work: Path) -> None:
    """The mounter takes at most 25 MiB, and has loaded no library but the interpreter's own."""
    with mounted(bucket, work, url=weed.url) as mount:
        status = Path(f"/proc/{mount.process.pid}/status").read_text(encoding="ascii")
        assert int(status.partition("VmHWM:")[2].split()[0]) <= 25 * 1024
        maps = Path(f"/proc/{mount.process.pid}/maps").read_text(encoding="utf-8")
        assert "site-packages" not in maps
        assert "site-packages" in Path(f"/proc/{mount.daemon_pid}/maps").read_text(encoding="utf-8")
