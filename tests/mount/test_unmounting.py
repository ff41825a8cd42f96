"""The end of a mount that is in use: a forced unmount and a stop while programs wait, and mounts in a row."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from s3mount.daemon import rundir
from s3mount.daemon.exits import ExitCode
from tests.support.ctl import run_ctl
from tests.support.mounts import Mount, aws_environment, is_mounted, mounted
from tests.support.processes import wait_until
from tests.support.proxy import Fault, Request, error_answer, proxy
from tests.support.refusals import processes_of
from tests.support.servers import Server
from tests.support.takeover import Gate

pytestmark = [pytest.mark.mount, pytest.mark.server]

READERS = 32
WRITERS = 4
UNIT = Path(__file__).parents[2] / "systemd" / "s3mount@.service"
#: Writes more than a part, waits for a line, writes the end; "lost" when the close fails.
WRITER = """
import sys
file = open(sys.argv[1], "wb", buffering=0)
file.write(b"x" * 9_000_000)
print("open", flush=True)
sys.stdin.readline()
try:
    file.write(b"end")
    file.close()
    print("saved")
except OSError:
    print("lost")
"""


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Opened at the end, so that no thread of the proxy stays behind."""
    made = Gate()
    yield made
    made.may_pass.set()


@contextmanager
def stalled(mount: Mount) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Readers of a file each, all of which wait for S3; killed, and not waited for, which could be for ever."""
    readers = []
    try:
        for number in range(READERS):
            command = ["cat", str(mount.path / f"{number:02}")]
            readers.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE))
        for reader in readers:
            wait_until(lambda pid=reader.pid: is_waiting(pid), 60, "a reader that waits")  # type: ignore[misc]
        yield readers
    finally:
        for reader in readers:
            reader.kill()


def is_waiting(pid: int) -> bool:
    """Whether a process waits for an answer of FUSE."""
    return "fuse" in Path(f"/proc/{pid}/stack").read_text(encoding="ascii")


def fill(weed: Server) -> str:
    bucket = weed.make_bucket()
    for number in range(READERS):
        weed.client.put_object(Bucket=bucket, Key=f"{number:02}", Body=b"x" * 4096)
    return bucket


@pytest.mark.parametrize("is_stopped", [False, True], ids=["waits for S3", "stopped"])
def test_a_forced_unmount(weed: Server, work: Path, gate: Gate, is_stopped: bool) -> None:  # noqa: FBT001
    """A forced unmount with 32 readers that wait for S3, of a daemon that works or hangs, ends; no process stays."""
    flags = ("--hang-timeout", "0", "--read-only")
    with proxy(weed.url) as front:
        front.decide = gate
        with mounted(fill(weed), work, *flags, url=front.url) as mount, stalled(mount) as readers:
            if is_stopped:
                os.kill(mount.daemon_pid, signal.SIGSTOP)
            ran = run_ctl("unmount", mount.path, "--force", timeout_s=60)
            assert (ran.returncode, ran.stderr) == (0, "")
            assert not is_mounted(mount.path)
            assert not gate.may_pass.is_set()
            for reader in readers:
                _, said = reader.communicate(timeout=60)
                assert b"abort" in said or b"not connected" in said, said
            assert mount.process.wait(60) == 0
            wait_until(lambda: not processes_of(mount.path), 30, "the end of all")
            assert list(mount.path.iterdir()) == []


def test_an_unmount_of_what_is_busy(weed: Server, work: Path) -> None:
    """Without --force it says that the target is busy, and the mount goes on; when nothing uses it, it ends it."""
    with mounted(fill(weed), work, url=weed.url) as mount:
        with (mount.path / "00").open("rb") as file:
            ran = run_ctl("unmount", mount.path)
            assert ran.returncode != 0
            assert "busy" in ran.stderr
            assert file.read(1) == b"x"
        assert run_ctl("unmount", mount.path / "00").returncode == 0
        assert mount.process.wait(30) == 0
        assert not is_mounted(mount.path)


@contextmanager
def writing(mount: Mount) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Programs that are in the middle of a file each, w0 and so on; they end with the block."""
    programs = []
    try:
        for number in range(WRITERS):
            command = [sys.executable, "-c", WRITER, str(mount.path / f"w{number}")]
            program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            programs.append(program)
            assert program.stdout is not None
            assert program.stdout.readline() == b"open\n"
        yield programs
    finally:
        for program in programs:
            program.kill()
            program.communicate()


def zombies(session: int) -> list[int]:
    """Ended processes of a session that nobody has waited for."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, its_session = path.read_text(encoding="utf-8").rpartition(")")[2].split()[:4]
        except OSError:
            continue  # it is gone
        if (state, its_session) == ("Z", str(session)):
            found.append(int(path.parent.name))
    return found


def time_to_stop_s() -> float:
    """What the service manager waits for."""
    (value,) = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT.read_text(encoding="ascii"), re.MULTILINE)
    return float(value)


def test_a_stop_with_readers_and_writers(weed: Server, work: Path, gate: Gate) -> None:
    """SIGTERM with 32 readers that wait and 4 programs that write: what is written is whole in S3, the readers get an
    error, the exit code is 0, and there is no mount, process or zombie, before systemd would kill anything.
    """
    bucket = fill(weed)
    with proxy(weed.url) as front:
        front.decide = gate
        with (
            mounted(bucket, work, "--rw", url=front.url) as mount,
            writing(mount) as writers,
            stalled(mount) as readers,
        ):
            mount.process.send_signal(signal.SIGTERM)
            wait_until(lambda: "files that are being written: 'w0', 'w1', 'w2', 'w3'" in mount.log, 30, "the log")
            assert [program.communicate(b"\n", timeout=60)[0] for program in writers] == [b"saved\n"] * WRITERS
            assert mount.process.wait(time_to_stop_s()) == 0
            assert not is_mounted(mount.path)
            assert not gate.may_pass.is_set()
            assert all(b"abort" in reader.communicate(timeout=60)[1] for reader in readers)
            wait_until(lambda: not processes_of(mount.path), 30, "the end of all")
            assert zombies(mount.process.pid) == []
    for number in range(WRITERS):
        content = weed.client.get_object(Bucket=bucket, Key=f"w{number}")["Body"].read()
        assert content == b"x" * 9_000_000 + b"end"


def refuse_content(request: Request) -> Fault | None:
    """Whatever brings content is not allowed."""
    return Fault(answer=error_answer(403, "AccessDenied")) if request.method in ("PUT", "POST") else None


def test_a_stop_that_cannot_save(weed: Server, work: Path) -> None:
    """When S3 refuses at a stop what programs appended and closed, the log names the files, and the exit code is 9; the
    next mount has it in S3.
    """
    bucket = fill(weed)
    with proxy(weed.url) as front:
        with mounted(bucket, work, "--rw", url=front.url) as mount:
            front.decide = refuse_content
            for number in range(WRITERS):
                with (mount.path / f"{number:02}").open("ab") as file:
                    file.write(b"more")
            mount.process.send_signal(signal.SIGTERM)
            assert mount.process.wait(time_to_stop_s()) == ExitCode.NOT_SAVED
            assert "not in S3: '00', '01', '02', '03'" in mount.log
            assert not is_mounted(mount.path)
            wait_until(lambda: not processes_of(mount.path), 30, "the end of all")
        front.decide = None
        environment = aws_environment(STATE_DIRECTORY=str(work / "state"))
        with mounted(bucket, work / "again", "--rw", url=front.url, env=environment) as mount:
            assert mount.stop() == 0
    for number in range(WRITERS):
        content = weed.client.get_object(Bucket=bucket, Key=f"{number:02}")["Body"].read()
        assert content == b"x" * 4096 + b"more"


def test_a_daemon_killed_while_it_stops(weed: Server, work: Path) -> None:
    """A daemon that is killed before it has ended in order cannot say what is not in S3: the exit code is 9."""
    with mounted(fill(weed), work, "--rw", "--hang-timeout", "0", url=weed.url) as mount:
        daemon = mount.daemon_pid
        os.kill(daemon, signal.SIGSTOP)
        wait_until(lambda: "T (stopped)" in status_of(daemon), 30, "the stop")
        mount.process.send_signal(signal.SIGTERM)
        wait_until(lambda: has_pending(daemon, signal.SIGTERM), 10, "the mounter handing it on")  # it kills after 15 s
        os.kill(daemon, signal.SIGKILL)
        assert mount.process.wait(time_to_stop_s()) == ExitCode.NOT_SAVED
        assert not is_mounted(mount.path)
        wait_until(lambda: not processes_of(mount.path), 30, "the end of all")


def status_of(pid: int) -> str:
    return Path(f"/proc/{pid}/status").read_text(encoding="ascii")


def has_pending(pid: int, number: signal.Signals) -> bool:
    """Whether a signal waits for a process that is stopped."""
    return bool(int(status_of(pid).partition("ShdPnd:")[2].split()[0], 16) & 1 << number - 1)


def leftovers(work: Path) -> tuple[list[Path], list[int]]:
    """Runtime files of the mount point, and processes that name it."""
    found = [path for path in Path("/run/s3mount").glob("*") if path.name.startswith(rundir.name_of(str(work / "mnt")))]
    return found, processes_of(work / "mnt")


def mount_in_a_row(bucket: str, weed: Server, work: Path, times: int) -> None:
    """Mount, read and unmount so many times, leaving nothing behind."""
    for _ in range(times):
        with mounted(bucket, work, url=weed.url) as mount:
            assert (mount.path / "00").read_bytes() == b"x" * 4096
            assert mount.stop() == 0
            assert not is_mounted(mount.path)
            assert mount.warnings() == []
        wait_until(lambda: leftovers(work) == ([], []), 30, "the end of all")
        (work / "s3mount.log").unlink()


def test_mounts_in_a_row(weed: Server, work: Path) -> None:
    """A directory is mounted and unmounted ten times, and nothing stays: no process, socket or mount."""
    mount_in_a_row(fill(weed), weed, work, 10)
