"""A connection that the caller made: mount(2) by root here, and a daemon without privileges that serves it."""

import ctypes
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from s3mount.daemon.exits import ExitCode
from tests.support.mounts import COMMAND, aws_environment, clean_up, is_mounted
from tests.support.namespaces import NOBODY
from tests.support.processes import end, wait_until
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server]

_libc = ctypes.CDLL(None, use_errno=True)
#: MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOATIME.
_FLAGS = 1 | 2 | 4 | 1024


@contextmanager
def connection(path: Path) -> Iterator[int]:
    """The descriptor of a mount on a path, as a node plugin makes it; closed, and unmounted if it is still there."""
    path.mkdir(exist_ok=True)
    fd = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other"
    made = _libc.mount(b"mountpoint-s3", bytes(path), b"fuse", ctypes.c_ulong(_FLAGS), options.encode())
    assert made == 0, os.strerror(ctypes.get_errno())
    try:
        yield fd
    finally:
        os.close(fd)
        clean_up(path)


@contextmanager
def server_of(bucket: str, fd: int, *flags: str, url: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The command as an ordinary user who can do nothing but read, with the descriptor and no other."""
    rights = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search", "--bounding-set=-all,+dac_read_search"]
    user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs", *rights]
    command = [*user, COMMAND, bucket, f"/dev/fd/{fd}", "--endpoint-url", url, "--force-path-style", *flags]
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command, pass_fds=[fd], stdout=sink, stderr=sink, env=aws_environment(), cwd="/", start_new_session=True
        )
    try:
        yield process
    finally:
        end(process)


@pytest.fixture
def bucket(weed: Server) -> str:
    name = weed.make_bucket()
    weed.client.put_object(Bucket=name, Key="d/f", Body=b"content")
    return name


@pytest.mark.parametrize("flag", ["--allow-root", "--read-only"])
def test_a_descriptor_is_served(weed: Server, bucket: str, work: Path, flag: str) -> None:
    """`s3mount BUCKET /dev/fd/N` serves a connection that the caller mounted, as a user without privileges,
    through bind mounts too; when the caller unmounts it ends by itself with 0.
    """
    path, bound = work / "mnt", work / "bound"
    bound.mkdir()
    with connection(path) as fd, server_of(bucket, fd, "-f", flag, url=weed.url, log=work / "log") as process:
        assert (path / "d/f").read_bytes() == b"content"
        subprocess.run(["mount", "--bind", path, bound], check=True)
        assert os.listdir(bound / "d") == ["f"]
        assert [line.split()[0] for line in Path("/proc/mounts").read_text().splitlines() if str(work) in line] == [
            "mountpoint-s3"
        ] * 2
        subprocess.run(["umount", bound], check=True)
        assert (path / "d/f").stat().st_size == len(b"content")
        subprocess.run(["umount", path], check=True)
        assert process.wait(30) == ExitCode.OK
        log = (work / "log").read_text(encoding="utf-8")
        assert f"serving: s3://{bucket}/" in log
        assert not [line for line in log.splitlines() if " WARNING " in line or " ERROR " in line]


def test_in_the_background(weed: Server, bucket: str, work: Path) -> None:
    """Without --foreground the command returns 0 when the descriptor is served, and its daemon ends with the mount."""
    path = work / "mnt"
    with connection(path) as fd, server_of(bucket, fd, "--no-log", url=weed.url, log=work / "log") as process:
        assert process.wait(60) == ExitCode.OK
        assert (path / "d/f").read_bytes() == b"content"
        subprocess.run(["umount", path], check=True)
        wait_until(lambda: not _processes_with(f"/dev/fd/{fd}", bucket), 30, "the end of the daemon")


def _processes_with(*arguments: str) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it ended meanwhile
        if all(each.encode() in line for each in arguments):
            found.append(process.name)
    return found


def test_a_signal(weed: Server, bucket: str, work: Path) -> None:
    """SIGTERM ends it with 0, and it unmounts nothing: that is the caller's."""
    path = work / "mnt"
    with connection(path) as fd, server_of(bucket, fd, "-f", url=weed.url, log=work / "log") as process:
        assert os.listdir(path) == ["d"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == ExitCode.OK
        assert is_mounted(path)


@pytest.mark.parametrize(
    ("which", "code", "says"),
    [
        ("closed", ExitCode.MOUNT_POINT, "was passed: the caller must leave it open and inheritable"),
        ("other", ExitCode.MOUNT_POINT, "is not of /dev/fuse"),
        ("unmounted", ExitCode.MOUNT_POINT, "is of no mount"),
        ("served", ExitCode.FUSE, "it must be of a new mount that nobody has served yet"),
        ("bucket", ExitCode.BUCKET, "no-such-bucket"),
        ("auto-unmount", ExitCode.USAGE, "is mounted by the caller, who unmounts it, too"),
    ],
)
def test_failures(weed: Server, bucket: str, work: Path, which: str, code: int, says: str) -> None:
    """A descriptor that cannot be served, or a bucket that cannot be read, ends the command at once with one line
    and a code that is not 0.
    """
    path = work / "mnt"
    flags = ["--auto-unmount"] if which == "auto-unmount" else []
    name = "no-such-bucket" if which == "bucket" else bucket
    with connection(path) as mounted:
        fd = mounted
        if which in ("closed", "other", "unmounted"):
            fd = os.open("/dev/null" if which == "other" else "/dev/fuse", os.O_RDWR)
        if which == "served":
            os.read(fd, 1 << 16)  # the INIT message
        command = [COMMAND, name, f"/dev/fd/{fd}", "--endpoint-url", weed.url, "--force-path-style", *flags]
        passed = [] if which == "closed" else [fd]
        ran = subprocess.run(
            command, pass_fds=passed, env=aws_environment(), capture_output=True, timeout=60, check=False
        )
        if fd != mounted:
            os.close(fd)
    lines = ran.stderr.decode().splitlines()
    assert (ran.returncode, len(lines)) == (code, 1), lines
    assert says in lines[0]
