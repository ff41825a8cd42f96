"""The control socket of real mounts: it comes and goes with the daemon, and is the mount's own."""

import json
import signal
import socket
from pathlib import Path

import pytest

from s3mount.daemon import rundir
from tests.support.mounts import Mount, aws_environment, mounted
from tests.support.servers import Server

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
            assert (answer["mount_point"], answer["pid"]) == (str(mount.path), mount.process.pid)
        path = socket_of(one)
        assert one.stop() == 0
        assert path is not None
        assert not path.exists()
        assert status_of(two)["pid"] == two.process.pid
        assert one.warnings() == two.warnings() == []


def test_a_killed_daemon_leaves_nothing_in_the_way(weed: Server, work: Path) -> None:
    """After kill -9 the next mount of the directory answers at the same place, without a warning of it."""
    bucket = weed.make_bucket()
    with mounted(bucket, work, url=weed.url) as mount:
        mount.process.send_signal(signal.SIGKILL)
        mount.process.wait(30)
        assert socket_of(mount) is not None
    (work / "s3mount.log").unlink()
    with mounted(bucket, work, url=weed.url) as mount:
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
