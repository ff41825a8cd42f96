"""What signals ask of a mount that runs, sent to the process that an operator knows."""

import os
import signal
from pathlib import Path

import pytest

from tests.support.mounts import clean_up, mounted, run_command
from tests.support.processes import wait_until
from tests.support.refusals import processes_of
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server]


def test_a_reload(weed: Server, work: Path) -> None:
    """After SIGHUP to the mounter all write to a new log file, and what S3 has by now is seen; open files go on."""
    bucket = weed.make_bucket()
    weed.client.put_object(Bucket=bucket, Key="f", Body=b"old")
    mnt, logs = work / "mnt", work / "logs"
    mnt.mkdir()
    flags = ["--endpoint-url", weed.url, "--force-path-style", "--metadata-ttl", "indefinite", "-l", str(logs)]
    try:
        assert run_command(bucket, str(mnt), *flags).returncode == 0
        mounter = os.getsid(processes_of(mnt)[0])
        with (mnt / "f").open("rb") as file:
            assert file.read() == b"old"
            assert os.listdir(mnt) == ["f"]
            weed.client.put_object(Bucket=bucket, Key="new", Body=b"new")
            assert os.listdir(mnt) == ["f"]
            (path,) = logs.iterdir()
            path.rename(work / "old")
            os.kill(mounter, signal.SIGHUP)
            wait_until(lambda: path.exists() and "reloaded" in path.read_text(), 30, "the new file")
            assert (mnt / "new").read_bytes() == b"new"
            file.seek(0)
            assert file.read() == b"old"
            os.kill(mounter, signal.SIGUSR2)
            wait_until(lambda: path.read_text().count("the log level is debug") == 2, 30, "both processes")
    finally:
        clean_up(mnt)
        wait_until(lambda: not processes_of(mnt), 60, "the daemon ending")
    assert "unmounted after" in path.read_text()
    assert "reloaded" not in (work / "old").read_text()


def test_levels_by_signal(weed: Server, work: Path) -> None:
    """SIGUSR2 to the mounter goes through the log levels of the daemon, which logs more, then less, and serves on."""
    bucket = weed.make_bucket()
    with mounted(bucket, work, url=weed.url) as mount:
        assert not (mount.path / "first").exists()
        for level in ("debug", "warning", "info"):
            mount.process.send_signal(signal.SIGUSR2)
            wait_until(lambda level=level: mount.log.count(f"the log level is {level}") == 2, 30, level)
            assert not (mount.path / f"with {level}").exists()
        assert mount.stop() == 0
        assert "'with debug'" in mount.log
        assert not [name for name in ("'first'", "'with warning'", "'with info'") if name in mount.log]
