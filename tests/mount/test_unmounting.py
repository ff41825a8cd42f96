"""The end of a mount that is in use: a forced unmount and a stop while programs wait, and mounts in a row."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from s3mount.daemon import rundir
from tests.support.ctl import run_ctl
from tests.support.mounts import Mount, is_mounted, mounted
from tests.support.processes import wait_until
from tests.support.proxy import proxy
from tests.support.refusals import processes_of
from tests.support.servers import Server
from tests.support.takeover import Gate

pytestmark = [pytest.mark.mount, pytest.mark.server]

READERS = 32


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
            assert processes_of(mount.path) == []
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


def test_a_stop_with_readers(weed: Server, work: Path, gate: Gate) -> None:
    """SIGTERM with 32 readers that wait ends with 0: they get an error, nothing is mounted, and no process is left."""
    with proxy(weed.url) as front:
        front.decide = gate
        with mounted(fill(weed), work, url=front.url) as mount, stalled(mount) as readers:
            assert mount.stop() == 0
            assert not is_mounted(mount.path)
            assert not gate.may_pass.is_set()
            assert all(b"abort" in reader.communicate(timeout=60)[1] for reader in readers)
            assert processes_of(mount.path) == []


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
        assert leftovers(work) == ([], [])
        (work / "s3mount.log").unlink()


def test_mounts_in_a_row(weed: Server, work: Path) -> None:
    """A directory is mounted and unmounted ten times, and nothing stays: no process, socket or mount."""
    mount_in_a_row(fill(weed), weed, work, 10)
