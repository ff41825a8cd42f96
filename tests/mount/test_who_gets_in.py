"""Mounts as users make them: let root in, mount what is not there yet, start one in a step that ends."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.groups import killable_group
from tests.support.mounts import COMMAND, aws_environment, children, clean_up, is_mounted, mounted
from tests.support.namespaces import NOBODY, PUBLIC_FUSE_DEV, as_nobody, in_namespace, over
from tests.support.processes import wait_until
from tests.support.refusals import daemon_of, processes_of
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server]


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that an ordinary user may mount on."""
    path = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="s3mount-test-"))
    os.chown(path, NOBODY, NOBODY)
    path.chmod(0o755)
    yield path
    clean_up(path)
    wait_until(lambda: not processes_of(path), 30, "the end of the daemon")
    shutil.rmtree(path)


def test_root_and_nobody_else(weed: Server, work: Path, public: Path) -> None:
    """With --allow-root the user who mounted and root read, list and write, and every other user gets EACCES."""
    bucket = weed.make_bucket()
    weed.client.put_object(Bucket=bucket, Key="d/f", Body=b"content")
    (work / "fuse.conf").write_text("user_allow_other\n")
    other = ["setpriv", "--reuid=4321", "--regid=4321", "--clear-groups"]
    reach = ["--endpoint-url", weed.url, "--force-path-style", "--rw"]
    script = (
        PUBLIC_FUSE_DEV
        + over(work / "fuse.conf", "/etc/fuse.conf")
        + as_nobody(COMMAND, bucket, str(public), "--allow-root", *reach)
        + as_nobody("cat", f"{public}/d/f")
        + f"cat {public}/d/f\n"
        + f"ls {public}\n"
        + f"echo new > {public}/by-root\n"
        + " ".join(other)
        + f" cat {public}/d/f 2>&1 || true\n"
        + as_nobody("fusermount3", "-u", str(public))
    )
    result = in_namespace(script)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == f"contentcontentd\ncat: {public}/d/f: Permission denied\n"
    assert weed.client.get_object(Bucket=bucket, Key="by-root")["Body"].read() == b"new\n"


@pytest.mark.parametrize("flags", [(), ("--prefix", "nobody/wrote/this/")], ids=["bucket", "prefix"])
def test_nothing_there_yet(weed: Server, work: Path, flags: tuple[str, ...]) -> None:
    """An empty bucket, or a prefix that no key has, mounts as an empty directory; what is written first is there."""
    bucket = weed.make_bucket()
    with mounted(bucket, work, "--rw", *flags, url=weed.url) as mount:
        assert os.listdir(mount.path) == []
        (mount.path / "first").write_bytes(b"1")
        assert os.listdir(mount.path) == ["first"]
        assert mount.stop() == 0
    (stored,) = weed.client.list_objects_v2(Bucket=bucket)["Contents"]
    assert stored["Key"] == "".join(flags[1:]) + "first"


def test_a_step_that_is_ended(weed: Server, work: Path) -> None:
    """When a scheduler ends a step, with SIGTERM to every process of it at once, the mount that was started in it, in
    the background, saves what was written, and is gone with all its processes.
    """
    bucket, mnt = weed.make_bucket(), work / "mnt"
    weed.client.put_object(Bucket=bucket, Key="log", Body=b"first\n")
    mnt.mkdir()
    flags = ["--rw", "--endpoint-url", weed.url, "--force-path-style"]
    environment = aws_environment(STATE_DIRECTORY=str(work / "state"))
    try:
        subprocess.run([COMMAND, bucket, str(mnt), *flags], env=environment, check=True)
        mounter = os.getsid(daemon_of(mnt))
        wait_until(lambda: len(children(mounter)) == 2, 60, "a standby")
        with (mnt / "log").open("ab") as file:
            file.write(b"second\n")
        for pid in (mounter, *children(mounter)):
            with contextlib.suppress(ProcessLookupError):  # the mounter was quick
                os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not processes_of(mnt), 60, "the end of the processes")
        assert not is_mounted(mnt)
        assert os.listdir(mnt) == []
    finally:
        clean_up(mnt)
    assert weed.client.get_object(Bucket=bucket, Key="log")["Body"].read() == b"first\nsecond\n"


def test_a_job_that_is_killed(weed: Server, work: Path) -> None:
    """With --auto-unmount a mount of root's is gone, with all its processes, when the control group that it was started
    in, or one above it, is killed as a whole.
    """
    bucket, mnt = weed.make_bucket(), work / "mnt"
    weed.client.put_object(Bucket=bucket, Key="a", Body=b"content")
    mnt.mkdir()
    flags = ["--auto-unmount", "--endpoint-url", weed.url, "--force-path-style"]
    try:
        with killable_group() as (job, inside):
            subprocess.run([*inside, COMMAND, bucket, str(mnt), *flags], env=aws_environment(), check=True)
            assert (mnt / "a").read_bytes() == b"content"
            daemon = daemon_of(mnt)
            inside_of_it = set(map(int, (job / "step/cgroup.procs").read_text(encoding="ascii").split()))
            assert {os.getsid(daemon), daemon} <= inside_of_it
            (job / "cgroup.kill").write_text("1", encoding="ascii")
            wait_until(lambda: not is_mounted(mnt), 60, "the unmount")
            wait_until(lambda: not processes_of(mnt), 60, "the end of the processes")
            assert os.listdir(mnt) == []
    finally:
        clean_up(mnt)
