"""What can be wrong on this host: the directory, FUSE, the user's rights; and how an ordinary user mounts."""

import ctypes
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from s3mount.daemon.exits import ExitCode
from tests.support.mounts import COMMAND, aws_environment, clean_up, is_mounted, mounted, run_command
from tests.support.namespaces import NO_FUSE_DEV, NOBODY, PUBLIC_FUSE_DEV, as_nobody, in_namespace, over
from tests.support.processes import wait_until
from tests.support.proxy import error_answer
from tests.support.refusals import kill_all, kill_processes_of, processes_of, refusal, refusal_in_both_modes
from tests.support.scripted import Scripted, ScriptedBucket, scripted

pytestmark = [pytest.mark.mount]

BUCKET = "scripted-bucket"
TRANSPORT = "Transport endpoint is not connected"


@pytest.fixture
def server() -> Iterator[Scripted]:
    """A bucket with one file."""
    bucket = ScriptedBucket(BUCKET)
    bucket.objects["a.txt"] = b"hello"
    with scripted(bucket) as running:
        yield running


@pytest.fixture
def mnt(work: Path) -> Iterator[Path]:
    """An empty directory to mount on; unmounted with the test, and no daemon outlives it."""
    path = work / "mnt"
    path.mkdir()
    yield path
    clean_up(path)
    wait_until(lambda: not processes_of(path), 60, "the daemon ending")


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory of an ordinary user that he can reach; pytest's own are root's alone."""
    path = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="s3mount-test-"))
    os.chown(path, NOBODY, NOBODY)
    yield path
    kill_processes_of(path)
    wait_until(lambda: not processes_of(path), 60, "the daemon ending")
    shutil.rmtree(path)


def at(server: Scripted, path: Path) -> list[str]:
    """The arguments for the bucket."""
    return [BUCKET, str(path), "--endpoint-url", server.url, "--force-path-style"]


# -- the directory ----------------------------------------------------------------------------


def test_mount_point_missing(server: Scripted, work: Path) -> None:
    """A missing directory is said before S3 is asked, and the command that creates it works as it is printed."""
    path = work / "no such; directory"
    line = refusal_in_both_modes(path, ExitCode.MOUNT_POINT, *at(server, path))
    assert server.calls == []
    assert "does not exist" in line
    subprocess.run(line.partition("create it: ")[2], shell=True, check=True)
    assert path.is_dir()


def test_mount_point_is_a_file(server: Scripted, work: Path) -> None:
    """A file cannot be mounted on, and is left as it was."""
    path = work / "file"
    path.write_text("mine")
    line = refusal_in_both_modes(path, ExitCode.MOUNT_POINT, *at(server, path))
    assert f"{str(path)!r} is not a directory" in line
    assert path.read_text() == "mine"


def test_mount_point_not_empty(server: Scripted, mnt: Path) -> None:
    """A directory with files in it is mounted on, with one warning on the user's terminal, and keeps its files."""
    (mnt / "mine.txt").write_text("mine")
    result = run_command(*at(server, mnt))
    assert result.returncode == 0
    assert [entry.name for entry in mnt.iterdir()] == ["a.txt"]
    (line,) = result.stderr.splitlines()
    assert line.startswith("s3mount: WARNING: ")
    assert f"{str(mnt)!r} is not empty" in line
    clean_up(mnt)
    assert (mnt / "mine.txt").read_text() == "mine"


def test_mount_point_is_a_mount_of_ours(server: Scripted, work: Path) -> None:
    """A second mount on a live one is refused, and the first goes on."""
    with mounted(BUCKET, work, "--hang-timeout", "0", url=server.url) as first:
        result = run_command(*at(server, first.path))
        assert result.returncode == ExitCode.MOUNT_POINT
        (line,) = result.stderr.splitlines()
        assert "something of type fuse.s3mount is mounted" in line
        assert f"unmount it first: umount {first.path}" in line
        assert (first.path / "a.txt").read_bytes() == b"hello"
        assert {os.getsid(pid) for pid in processes_of(first.path)} == {first.process.pid}


def test_mount_point_is_another_mount(server: Scripted, mnt: Path) -> None:
    """A directory on which something else is mounted is refused, and that stays mounted."""
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(mnt)], check=True)
    (mnt / "mine.txt").write_text("mine")
    result = run_command(*at(server, mnt))
    assert result.returncode == ExitCode.MOUNT_POINT
    assert "something of type tmpfs is mounted" in result.stderr
    assert (mnt / "mine.txt").read_text() == "mine"


def test_dead_mount_of_ours_is_cleared(server: Scripted, mnt: Path) -> None:
    """After kill -9 of mounter and daemon the same command mounts again, and says that it cleared the dead mount."""
    assert run_command(*at(server, mnt)).returncode == 0
    mnt.stat()  # for a second the kernel answers the next stat by itself
    kill_all(mnt)
    wait_until(lambda: _is_dead(mnt), 60, "the mount dying")
    result = run_command(*at(server, mnt))
    assert result.returncode == 0
    (line,) = result.stderr.splitlines()
    assert line.startswith("s3mount: WARNING: clearing the dead mount")
    assert (mnt / "a.txt").read_bytes() == b"hello"
    table = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    assert table.count(f" {mnt} ") == 1


def test_dead_mount_of_somebody_else(server: Scripted, mnt: Path) -> None:
    """A dead mount of another program is left alone; the command that the line gives clears it."""
    _make_dead_mount(mnt, b"fuse.other")
    result = run_command(*at(server, mnt))
    assert result.returncode == ExitCode.MOUNT_POINT
    assert is_mounted(mnt)
    (line,) = result.stderr.splitlines()
    assert TRANSPORT in line
    subprocess.run(shlex.split(line.partition("clear it: ")[2]), check=True)
    assert not is_mounted(mnt)
    assert run_command(*at(server, mnt)).returncode == 0


def test_auto_unmount_leaves_no_dead_mount(server: Scripted, mnt: Path) -> None:
    """With --auto-unmount, kill -9 of mounter and daemon leaves nothing to clear."""
    assert run_command(*at(server, mnt), "--auto-unmount").returncode == 0
    assert (mnt / "a.txt").read_bytes() == b"hello"
    kill_all(mnt)
    wait_until(lambda: not is_mounted(mnt), 60, "the unmount")


def test_log_directory_inside_the_mount_point(server: Scripted, mnt: Path) -> None:
    """A log that would be hidden by the mount is refused, also through a link, and nothing is created."""
    link = mnt.parent / "link"
    link.symlink_to(mnt)
    for directory in (mnt, mnt / "logs", link / "logs"):
        line = refusal(mnt, ExitCode.USAGE, *at(server, mnt), "--log-directory", str(directory))
        assert "lies inside the mount point" in line
        assert "choose another" in line
    assert list(mnt.iterdir()) == []


@pytest.mark.parametrize("mode", [[], ["--foreground"]], ids=["background", "foreground"])
def test_log_directory_cannot_be_written(server: Scripted, mnt: Path, mode: list[str]) -> None:
    """A log that cannot be written is refused before anything is mounted, on the terminal in both modes."""
    (mnt.parent / "file").touch()
    directory = mnt.parent / "file" / "logs"
    line = refusal(mnt, ExitCode.USAGE, *at(server, mnt), "--log-directory", str(directory), *mode)
    assert f"the log directory {str(directory)!r} cannot be written" in line
    assert server.calls == []


@pytest.mark.parametrize("elsewhere", ["--no-log", "--log-directory={}/logs"], ids=["no-log", "log-directory"])
def test_the_line_comes_also_when_the_log_goes_elsewhere(server: Scripted, work: Path, elsewhere: str) -> None:
    """In the foreground, too, the reason of a failed start is on the terminal, wherever the log goes."""
    path = work / "missing"
    line = refusal_in_both_modes(path, ExitCode.MOUNT_POINT, *at(server, path), elsewhere.format(work))
    assert "does not exist" in line


def _is_dead(path: Path) -> bool:
    try:
        os.statvfs(path)
    except OSError as error:
        return error.strerror == TRANSPORT
    return False


def _make_dead_mount(path: Path, kind: bytes) -> None:
    """What a FUSE program leaves that died: mount(2) by hand, and its descriptor closed."""
    libc = ctypes.CDLL(None, use_errno=True)
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    result = libc.mount(b"other", bytes(path), kind, 0, options)
    os.close(device)
    assert result == 0, os.strerror(ctypes.get_errno())


# -- credentials that may not list ------------------------------------------------------------


def test_listing_denied(server: Scripted, mnt: Path) -> None:
    """A bucket that denies LIST is refused with what to do; with the flag it is mounted all the same."""
    bucket = server.script
    denied = error_answer(403, "AccessDenied", "not you")
    server.script = lambda call: denied if call.path.rstrip("/") == f"/{BUCKET}" else bucket(call)
    line = refusal_in_both_modes(mnt, ExitCode.ACCESS, *at(server, mnt))
    assert "S3 answered 403 AccessDenied: not you" in line
    assert "s3:ListBucket" in line
    assert "--prefix" in line
    assert "--without-listing" in line
    result = run_command(*at(server, mnt), "--without-listing")
    assert (result.returncode, result.stderr) == (0, "")
    assert is_mounted(mnt)
    assert mnt.is_dir()
    with pytest.raises(PermissionError):
        os.listdir(mnt)


# -- FUSE and the user's rights ---------------------------------------------------------------


def in_namespace_refused(path: Path, code: ExitCode, setup: str, command: str) -> str:
    """The one line of a command that must fail in a host so set up; nothing stays mounted or running."""
    status = f"if {command.rstrip()}; then exit 0; else code=$?; fi\n"
    result = in_namespace(f"{setup}{status}if grep -F {path} /proc/self/mountinfo; then exit 99; fi\nexit $code")
    assert result.returncode == code, (result.returncode, result.stdout, result.stderr)
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert processes_of(path) == []
    return lines[0]


def test_no_fuse_device(server: Scripted, mnt: Path) -> None:
    """Without /dev/fuse, as in most containers, the line says how to load or pass it."""
    command = shlex.join([COMMAND, *at(server, mnt)])
    line = in_namespace_refused(mnt, ExitCode.FUSE, NO_FUSE_DEV, command)
    assert "/dev/fuse does not exist" in line
    assert "modprobe fuse" in line
    assert "--device /dev/fuse" in line


def test_fuse_device_not_permitted(server: Scripted, public: Path) -> None:
    """A /dev/fuse of root only stops an ordinary user with the mode it must have."""
    setup = PUBLIC_FUSE_DEV + "chmod 600 /dev/fuse\n"
    line = in_namespace_refused(public, ExitCode.FUSE, setup, as_nobody(COMMAND, *at(server, public)))
    assert "/dev/fuse cannot be opened (Permission denied)" in line
    assert "0666" in line


def test_no_fusermount_as_an_ordinary_user(server: Scripted, public: Path) -> None:
    """Without fusermount3 an ordinary user is told which package has it."""
    setup = PUBLIC_FUSE_DEV + over("/dev/null", '"$(command -v fusermount3)"')
    line = in_namespace_refused(public, ExitCode.FUSE, setup, as_nobody(COMMAND, *at(server, public)))
    assert "fusermount3 is not installed" in line
    assert "install the package fuse3" in line


@pytest.mark.parametrize("flag", ["--allow-other", "--allow-root"])
def test_others_not_permitted(server: Scripted, work: Path, public: Path, flag: str) -> None:
    """An ordinary user may let others in only when /etc/fuse.conf says so; a commented line does not."""
    (work / "fuse.conf").write_text("#user_allow_other\nmount_max = 1000\n")
    setup = PUBLIC_FUSE_DEV + over(work / "fuse.conf", "/etc/fuse.conf")
    line = in_namespace_refused(public, ExitCode.FUSE, setup, as_nobody(COMMAND, *at(server, public), flag))
    assert f"{flag} is not permitted here" in line
    assert "add the line user_allow_other to /etc/fuse.conf" in line


def test_mount_point_of_somebody_else(server: Scripted, public: Path) -> None:
    """fusermount3 refuses a directory the user may not write; its words and ours reach the terminal."""
    os.chown(public, 0, 0)
    os.chmod(public, 0o755)
    script = PUBLIC_FUSE_DEV + as_nobody(COMMAND, *at(server, public))
    result = in_namespace(script)
    assert result.returncode == ExitCode.FUSE
    assert "no write access to mountpoint" in result.stderr
    assert result.stderr.splitlines()[-1].startswith(f"s3mount: {public} could not be mounted")
    assert processes_of(public) == []


def test_an_ordinary_user_mounts(server: Scripted, public: Path) -> None:
    """By fusermount3 an ordinary user mounts, owns the files, keeps root out, and unmounts."""
    script = (
        PUBLIC_FUSE_DEV
        + as_nobody(COMMAND, *at(server, public))
        + as_nobody("cat", f"{public}/a.txt")
        + as_nobody("stat", "-c", " %u:%g", f"{public}/a.txt")
        + f"if cat {public}/a.txt 2>/dev/null; then exit 90; fi\n"
        + f"grep -o '{public} .* fuse.s3mount .*' /proc/self/mountinfo\n"
        + as_nobody("fusermount3", "-u", str(public))
        + f"if grep -F {public} /proc/self/mountinfo; then exit 91; fi\n"
    )
    result = in_namespace(script)
    assert result.returncode == 0, (result.stdout, result.stderr)
    assert result.stderr == ""
    content, mount_line = result.stdout.splitlines()
    assert content == f"hello {NOBODY}:{NOBODY}"
    assert f"user_id={NOBODY}" in mount_line
    assert "allow_other" not in mount_line
    wait_until(lambda: not processes_of(public), 60, "the daemon ending after the unmount")


def test_an_ordinary_user_lets_others_in(server: Scripted, work: Path, public: Path) -> None:
    """With user_allow_other in /etc/fuse.conf, --allow-other lets root read the mount of an ordinary user."""
    (work / "fuse.conf").write_text("user_allow_other\n")
    script = (
        PUBLIC_FUSE_DEV
        + over(work / "fuse.conf", "/etc/fuse.conf")
        + as_nobody(COMMAND, *at(server, public), "--allow-other")
        + f"cat {public}/a.txt\numount {public}\n"
    )
    result = in_namespace(script)
    assert (result.returncode, result.stdout, result.stderr) == (0, "hello", "")
    wait_until(lambda: not processes_of(public), 60, "the daemon ending after the unmount")


def test_a_parent_that_ignores_the_end_of_children(work: Path) -> None:
    """A command whose parent ignores SIGCHLD, which children inherit, says why it fails and exits as always."""
    ignore = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    )
    arguments = ["s3mount-bucket", str(work), "--endpoint-url", "http://127.0.0.1:9", "--request-deadline", "1"]
    result = subprocess.run(
        [sys.executable, "-c", ignore, COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False,
        env=aws_environment(),
    )  # fmt: skip
    assert (result.returncode, len(result.stderr.splitlines())) == (ExitCode.ENDPOINT, 1), result.stderr
