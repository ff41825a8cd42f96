"""What a daemon leaves to the one after it, on real mounts: nothing that is open or in use is lost."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from s3mount.core.takeover import Heading, RecordedInode, read_heading, read_inodes
from s3mount.units import KIB
from tests.mount import readers
from tests.mount.long_use import SIZES, contents
from tests.support.mounts import Mount, mounted
from tests.support.processes import wait_until
from tests.support.servers import Server
from tests.support.takeover import is_prepared, open_files, standby_of, wait_for_takeover

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
    areas = [each for each, name in open_files(mount.process.pid) if "s3mount-record" in name]
    assert len(areas) == 2
    return sum(os.stat(each).st_blocks for each in areas) * 512 // KIB


def record_of(daemon: int) -> tuple[Heading, list[RecordedInode]]:
    """What a daemon after this one would read."""
    contents = [each.read_bytes() for each, name in open_files(daemon) if "s3mount-record" in name]
    headings = {read_heading(each): each for each in contents}
    headings.pop(None, None)
    ((heading, content),) = headings.items()
    assert heading is not None
    return heading, read_inodes(content)


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


def test_a_standby_leaves_the_record_alone(weed: Server, bucket: str, work: Path) -> None:
    """When the mounter dies the standby ends, and the record of the daemon that goes on is what it was."""
    with mounted(bucket, work, url=weed.url) as mount:
        os.kill(mount.daemon_pid, signal.SIGKILL)
        daemon = wait_for_takeover(mount)
        assert os.listdir(mount.path)
        standby = standby_of(mount, daemon)
        wait_until(lambda: is_prepared(standby), 60, "the standby being prepared")
        left = record_of(daemon)
        mount.process.kill()
        mount.process.wait(30)
        wait_until(lambda: not Path(f"/proc/{standby}").exists(), 30, "the end of the standby")
        assert record_of(daemon) == left
        os.kill(daemon, signal.SIGTERM)
        wait_until(lambda: not Path(f"/proc/{daemon}").exists(), 30, "the end of the daemon")
