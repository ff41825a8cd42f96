"""What is mounted where, how our mount looks from outside, and that only dead mounts are cleared.

The refusals themselves are proven by the command, in tests/mount/test_bad_input.py.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from s3mount.daemon import mountpoint
from s3mount.errors import MountPointUnusable
from s3mount.fuse.device import unmount
from s3mount.fuse.kernel import READ_AHEAD_KIB
from s3mount.fuse.options import FuseConfig
from tests.support.mounts import clean_up, is_mounted, mounted
from tests.support.scripted import Scripted, ScriptedBucket, scripted

pytestmark = [pytest.mark.mount]

BUCKET = "scripted-bucket"


@pytest.fixture
def server() -> Iterator[Scripted]:
    """A bucket with one file."""
    bucket = ScriptedBucket(BUCKET)
    bucket.objects["a.txt"] = b"hello"
    with scripted(bucket) as running:
        yield running


@pytest.fixture
def mnt(work: Path) -> Iterator[Path]:
    """A directory to mount on, unmounted with the test."""
    path = work / "mnt"
    path.mkdir()
    yield path
    clean_up(path)


def mount_tmpfs(path: Path | str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(path)], check=True)


# -- the kernel's table -----------------------------------------------------------------------


def test_nothing_is_mounted(mnt: Path) -> None:
    """A directory on some file system is not itself a mount."""
    assert mountpoint.mounted_on(str(mnt)) is None


def test_the_last_mount_is_on_top(mnt: Path) -> None:
    """Of several mounts on one directory the answer is the one that programs see."""
    mount_tmpfs(mnt)
    first = mountpoint.mounted_on(str(mnt))
    mount_tmpfs(mnt)
    second = mountpoint.mounted_on(str(mnt))
    assert first is not None
    assert second is not None
    assert first.kind == second.kind == "tmpfs"
    device = mnt.stat().st_dev
    assert second.device == f"{os.major(device)}:{os.minor(device)}" != first.device


@pytest.mark.parametrize("name", ["a b", "tab\there", "line\nbreak", "back\\slash", r"\040", "ü", "x.y"])
def test_strange_names(work: Path, name: str) -> None:
    """The kernel escapes blanks, newlines and backslashes in its table; the path is found all the same."""
    path = work / name
    path.mkdir()
    mount_tmpfs(path)
    try:
        found = mountpoint.mounted_on(str(path))
        assert found is not None
        assert found.kind == "tmpfs"
        assert mountpoint.mounted_on(str(path)[:-1]) is None
    finally:
        unmount(str(path))
    assert mountpoint.mounted_on(str(path)) is None


def test_unmount_never_fails(mnt: Path) -> None:
    """Nothing to unmount, or no such directory, is no error: it is called on the way out."""
    unmount(str(mnt))
    unmount(str(mnt / "missing"))


def test_a_busy_mount_is_detached(mnt: Path) -> None:
    """A file that is open on it does not keep the mount in the table."""
    mount_tmpfs(mnt)
    with (mnt / "open").open("w"):
        unmount(str(mnt))
        assert not is_mounted(mnt)


# -- what may be mounted on -------------------------------------------------------------------


def test_a_good_directory(mnt: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An empty directory passes without a word."""
    mountpoint.check(FuseConfig(str(mnt), BUCKET))
    assert caplog.records == []


def test_a_directory_below_a_mount(mnt: Path) -> None:
    """Only the directory itself must be free: a directory inside another mount is as good as any."""
    mount_tmpfs(mnt)
    (mnt / "inner").mkdir()
    mountpoint.check(FuseConfig(str(mnt / "inner"), BUCKET))


def test_a_link_that_leads_nowhere(work: Path) -> None:
    """A dangling link is no directory and is not called missing."""
    (work / "link").symlink_to(work / "nowhere")
    with pytest.raises(MountPointUnusable, match="is not a directory"):
        mountpoint.check(FuseConfig(str(work / "link"), BUCKET))


def test_only_dead_mounts_are_cleared(server: Scripted, work: Path, mnt: Path) -> None:
    """What the clean-up after a failed start may touch: not another type, not a mount that answers."""
    mount_tmpfs(mnt)
    mountpoint.clear_dead(str(mnt))
    assert is_mounted(mnt)
    clean_up(mnt)
    with mounted(BUCKET, work, url=server.url) as mount:
        mountpoint.clear_dead(str(mnt))
        assert (mount.path / "a.txt").read_bytes() == b"hello"
        mount.kill()
        assert is_mounted(mnt)
        mountpoint.clear_dead(str(mnt))
        assert not is_mounted(mnt)


# -- how our mount looks ----------------------------------------------------------------------


def test_how_the_mount_looks(server: Scripted, work: Path) -> None:
    """`mount` and `df` show bucket, type and options; the file system has room; the kernel reads 1 MiB ahead."""
    with mounted(f"s3://{BUCKET}/", work, "--read-only", url=server.url) as mount:
        found = mountpoint.mounted_on(str(mount.path))
        assert found is not None
        assert found.kind == mountpoint.FILE_SYSTEM_TYPE == "fuse.s3mount"
        (line,) = [each for each in Path("/proc/mounts").read_text().splitlines() if f" {mount.path} " in each]
        source, _, kind, options, *_ = line.split(" ")
        assert (source, kind) == (BUCKET, "fuse.s3mount")
        assert {"ro", "nosuid", "nodev", "noatime"} <= set(options.split(","))
        assert not {"allow_other", "default_permissions"} & set(options.split(","))
        df = subprocess.run(["df", "-T", str(mount.path)], capture_output=True, text=True, check=True).stdout
        assert df.splitlines()[1].split()[:2] == [BUCKET, "fuse.s3mount"]
        assert os.statvfs(mount.path).f_bavail > 0
        read_ahead = Path(f"/sys/class/bdi/{found.device}/read_ahead_kb").read_text()
        assert int(read_ahead) == READ_AHEAD_KIB


def test_a_prefix_is_part_of_the_source(server: Scripted, work: Path) -> None:
    """Two mounts of one bucket can be told apart in `df`, also when the prefix has a comma or a blank."""
    with mounted(f"s3://{BUCKET}/a,b c/", work, url=server.url) as mount:
        (line,) = [each for each in Path("/proc/mounts").read_text().splitlines() if f" {mount.path} " in each]
        assert line.split(" ")[0] == f"{BUCKET}/a_b_c/"


def test_writing_is_refused_by_the_kernel(server: Scripted, work: Path) -> None:
    """Every change is EROFS, and no request is sent for it."""
    with mounted(BUCKET, work, "--read-only", url=server.url) as mount:
        server.reset()
        path = mount.path / "a.txt"
        for change in (
            lambda: path.write_bytes(b"x"),
            path.unlink,
            lambda: path.chmod(0o600),
            lambda: path.rename(mount.path / "b.txt"),
            (mount.path / "new").mkdir,
        ):
            with pytest.raises(OSError, match="Read-only file system"):
                change()
        assert all(call.method == "GET" for call in server.calls)
        assert mount.warnings() == []
