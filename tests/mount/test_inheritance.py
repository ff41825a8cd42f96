"""What a daemon leaves to the one after it, on real mounts: nothing that is open or in use is lost."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from s3mount.units import KIB
from tests.mount import readers
from tests.mount.long_use import SIZES, contents
from tests.support.mounts import Mount, mounted
from tests.support.processes import wait_until
from tests.support.servers import Server
from tests.support.takeover import wait_for_takeover

pytestmark = [pytest.mark.mount, pytest.mark.server]

ROOT = Path(__file__).parents[2]
#: More than that is for a quiet hour: each takes seconds of CPU.
_TAKEOVERS = int(os.environ.get("S3MOUNT_TEST_TAKEOVERS", "2"))


@pytest.fixture(scope="module")
def bucket(weed: Server) -> str:
    """What `long_use` uses."""
    name = weed.make_bucket()
    for key, content in contents().items():
        weed.client.put_object(Bucket=name, Key=key, Body=content)
    return name


def begin_to_use(mount: Mount, begun: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.mount.long_use", str(mount.path), str(begun)]
    user = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    wait_until(lambda: begun.exists() or user.poll() is not None, 60, "the program opening its files")
    return user


def record_kib(mount: Mount) -> int:
    """Memory that the takeover record takes, both areas together."""
    opened = Path(f"/proc/{mount.process.pid}/fd")
    areas = [each for each in opened.iterdir() if "s3mount-record" in os.readlink(each)]
    assert len(areas) == 2
    return sum(os.stat(each).st_blocks for each in areas) * 512 // KIB


def descriptors(mount: Mount) -> int:
    """What the mounter has open."""
    return len(os.listdir(f"/proc/{mount.process.pid}/fd"))


@pytest.mark.parametrize("ttl", ["minimal", "60"])
def test_programs_go_on_under_daemons_that_are_killed(weed: Server, bucket: str, work: Path, ttl: str) -> None:
    """Sequential, random and mapped reads, a long readdir, a walk and a working directory notice no kill -9."""
    with mounted(bucket, work, "--metadata-ttl", ttl, url=weed.url) as mount:
        users = [begin_to_use(mount, work / f"begun{number}") for number in range(2)]
        daemon, sizes, opened = mount.daemon_pid, [], []
        for count in range(1, _TAKEOVERS + 1):
            os.kill(daemon, signal.SIGKILL)
            daemon = wait_for_takeover(mount, count)
            sizes.append(record_kib(mount))
            opened.append(descriptors(mount))
        for user in users:
            found = readers.answer(user)
            assert isinstance(found, dict)
            assert found["wrong"] == []
            assert found["done"].keys() == {*SIZES, "listing", "walk"}
        assert max(sizes) <= 64
        assert max(opened) <= min(opened) + 2  # the channel of a standby that is being started or replaced
        assert all("another takes the mount over" in line for line in mount.warnings())
        assert mount.stop() == 0
