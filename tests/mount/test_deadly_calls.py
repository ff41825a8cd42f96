"""A call that kills its daemon each time it is handled, and what the others notice of it."""

import errno
import os
import re
import signal
from pathlib import Path

import pytest

from s3mount.units import MIB
from tests.mount import readers
from tests.support.content import make_content
from tests.support.mounts import aws_environment, mounted
from tests.support.processes import wait_until
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server]

SABOTAGE = Path(__file__).parents[1] / "support" / "sabotage"


def sabotaged(**settings: str | Path) -> dict[str, str]:
    """The environment of a mount whose daemons are sabotaged."""
    path = os.pathsep.join([str(SABOTAGE), os.environ.get("PYTHONPATH", "")])
    return aws_environment(PYTHONPATH=path, **{name: str(value) for name, value in settings.items()})


def test_a_read_that_kills_two_daemons(weed: Server, work: Path) -> None:
    """A read that kills two daemons is answered EIO by the third, with one ERROR line; readers of other files notice
    a pause, and a later read of that file is answered EIO at once.
    """
    content = make_content("good", 4 * MIB)
    bucket = weed.make_bucket()
    for key in ("deadly", "good"):
        weed.client.put_object(Bucket=bucket, Key=key, Body=content)
    with mounted(bucket, work, url=weed.url, env=sabotaged(SABOTAGE_KEY="deadly")) as mount:
        good = readers.start("read_at", mount.path / "good", "0", str(4 * MIB))
        with (mount.path / "deadly").open("rb", buffering=0) as file:
            for _ in range(2):
                with pytest.raises(OSError, match="Input/output error") as raised:
                    file.read(4096)
                assert raised.value.errno == errno.EIO
        with pytest.raises(OSError, match="Input/output error"):
            (mount.path / "deadly").read_bytes()
        assert readers.answer(good) == readers.answer(
            readers.start("read_at", mount.path / "good", "0", str(4 * MIB), "direct")
        )
        assert (mount.path / "good").read_bytes() == content
        assert mount.stop() == 0  # so that the log is whole
        assert len(re.findall(r"was killed by SIGABRT", mount.log)) == 2
        (line,) = re.findall(r"ERROR .*", mount.log)
        assert re.search(r"read of 'deadly' killed two daemons", line)
        assert "Fatal Python error: Aborted" in mount.log


def test_stacks_of_a_daemon_that_spins(weed: Server, work: Path) -> None:
    """A daemon in a loop without an end is replaced after --hang-timeout, its stacks are in the log, and the call that
    it was in is answered by the next.
    """
    bucket = weed.make_bucket()
    weed.client.put_object(Bucket=bucket, Key="f", Body=make_content("f", 4 * MIB))
    trigger = work / "spin"
    trigger.touch()
    with mounted(bucket, work, "--hang-timeout", "2", url=weed.url, env=sabotaged(SABOTAGE_SPIN=trigger)) as mount:
        first = mount.daemon_pid
        assert (mount.path / "f").read_bytes() == make_content("f", 4 * MIB)
        assert mount.daemon_pid != first
        assert mount.stop() == 0  # so that the log is whole
        assert re.search(r"sitecustomize.py\", line \d+ in sabotaged", mount.log)


def test_stacks_on_demand(weed: Server, work: Path) -> None:
    """SIGUSR1 writes the counters, where each task waits and where each thread is to the log; the daemon goes on."""
    bucket = weed.make_bucket()
    weed.client.put_object(Bucket=bucket, Key="f", Body=b"content")
    with mounted(bucket, work, url=weed.url) as mount:
        assert (mount.path / "f").read_bytes() == b"content"
        os.kill(mount.process.pid, signal.SIGUSR1)  # which hands it on
        for line in (
            r"most recent call first",
            r"INFO s3mount.daemon.stacks: calls: \{'ok': \d+\}",
            r"requests: StoreStatistics\(",
            r"1 task: \S*MemoryWatch.run > pressure.py:\d+ run\n",
        ):
            wait_until(lambda line=line: re.search(line, mount.log) is not None, 30, line)  # type: ignore[misc]
        assert (mount.path / "f").read_bytes() == b"content"
        assert mount.warnings() == []
        assert mount.stop() == 0
