"""The control socket of real mounts: it comes and goes with the daemon, and is the mount's own."""

import json
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from s3mount.daemon import rundir
from tests.support.ctl import run_ctl
from tests.support.mounts import Mount, aws_environment, mounted
from tests.support.processes import wait_until
from tests.support.servers import Server
from tests.support.takeover import has_ended

pytestmark = [pytest.mark.mount, pytest.mark.server]


def socket_of(mount: Mount) -> Path | None:
    return rundir.find(str(mount.path), 0, {})


def status_of(mount: Mount) -> dict[str, object]:
    path = socket_of(mount)
    assert path is not None
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(b'{"verb": "status"}\n')
        with client.makefile() as lines:
            answer: dict[str, object] = json.loads(lines.readline())
    return answer


def test_two_mounts_answer_for_themselves(weed: Server, work: Path) -> None:
    """Each mount has a control socket of its own, at which its own daemon answers, and which is gone when it ended."""
    bucket = weed.make_bucket()
    with mounted(bucket, work / "a", url=weed.url) as one, mounted(bucket, work / "b", url=weed.url) as two:
        for mount in (one, two):
            answer = status_of(mount)
            assert (answer["mount_point"], answer["pid"]) == (str(mount.path), mount.daemon_pid)
        path = socket_of(one)
        assert one.stop() == 0
        assert path is not None
        assert not path.exists()
        assert status_of(two)["pid"] == two.daemon_pid
        assert one.warnings() == two.warnings() == []


def test_a_killed_daemon_leaves_nothing_in_the_way(weed: Server, work: Path) -> None:
    """After kill -9 the next mount of the directory answers at the same place, without a warning of it."""
    bucket = weed.make_bucket()
    with mounted(bucket, work, url=weed.url) as mount:
        mount.kill()
        assert socket_of(mount) is not None
    (work / "s3mount.log").unlink()
    with mounted(bucket, work, url=weed.url) as mount:
        assert status_of(mount)["pid"] == mount.daemon_pid


def test_a_restart_by_command(weed: Server, work: Path) -> None:
    """s3mountctl restart returns when another daemon serves and answers, and what was open goes on; twice in a row."""
    bucket = weed.make_bucket()
    weed.client.put_object(Bucket=bucket, Key="d/a", Body=b"content")
    with mounted(bucket, work, url=weed.url) as mount, (mount.path / "d" / "a").open("rb") as opened:
        first = mount.daemon_pid
        for _ in range(2):
            before = mount.daemon_pid
            answer = run_ctl("restart", mount.path / "d")
            assert (answer.returncode, answer.stderr) == (0, "")
            wait_until(lambda pid=before: has_ended(mount, pid), 30, "the end of the daemon before")  # type: ignore[misc]
            assert status_of(mount)["pid"] == mount.daemon_pid
            assert mount.daemon_pid not in (first, before)
        assert opened.read() == b"content"
        assert mount.warnings() == []


def test_no_restart_of_one_process(weed: Server, work: Path) -> None:
    """Without a mounter s3mountctl restart fails and says why, and the mount goes on."""
    bucket = weed.make_bucket()
    with mounted(bucket, work, "--no-takeover", url=weed.url) as mount:
        answer = run_ctl("restart", mount.path)
        assert answer.returncode == 1
        assert "--no-takeover" in answer.stderr
        assert status_of(mount)["pid"] == mount.process.pid


def test_no_place_for_a_socket(weed: Server, work: Path) -> None:
    """Where the runtime directory cannot be used the mount works, and one warning says why it cannot be controlled."""
    bucket = weed.make_bucket()
    weed.client.put_object(Bucket=bucket, Key="a", Body=b"content")
    control = rundir.bind(Path("/run/s3mount"), str(work / "mnt"))  # somebody else answers for it
    try:
        with mounted(bucket, work, url=weed.url, env=aws_environment()) as mount:
            assert (mount.path / "a").read_bytes() == b"content"
            assert mount.stop() == 0
        (warning,) = mount.warnings()
        assert "s3mountctl cannot control this mount" in warning
        assert "another s3mount answers there" in warning
        assert rundir.is_answering(control.path)
    finally:
        control.close()


def test_no_restart_while_files_are_written(weed: Server, work: Path) -> None:
    """While files are open to be written, s3mountctl restart does not replace the daemon: one line names up to five
    of them, the write goes on, and after it the restart works."""
    bucket = weed.make_bucket()
    with mounted(bucket, work, "--rw", url=weed.url) as mount:
        first = mount.daemon_pid
        with ExitStack() as stack:
            opened = [stack.enter_context(open(mount.path / f"f{number}", "wb", buffering=0)) for number in range(7)]
            opened[0].write(b"one ")
            answer = run_ctl("restart", mount.path)
            assert answer.returncode == 1
            assert answer.stderr == (
                "s3mountctl: the daemon goes on as it is: programs have files open to write them, close them first: "
                "'f0', 'f1', 'f2', 'f3', 'f4' and 2 more\n"
            )
            assert mount.daemon_pid == first
            opened[0].write(b"two")
        assert weed.client.get_object(Bucket=bucket, Key="f0")["Body"].read() == b"one two"
        assert run_ctl("restart", mount.path).returncode == 0
        wait_until(lambda: has_ended(mount, first), 30, "the end of the daemon before")
        assert mount.daemon_pid != first
        assert (mount.path / "f0").read_bytes() == b"one two"
