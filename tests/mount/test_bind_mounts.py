"""Other places that show a mount: bind mounts made before and after it, with the same ids or with mapped ones."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.idmapped import bind
from tests.support.mounts import is_mounted, mounted
from tests.support.servers import Server
from tests.support.takeover import wait_for_takeover

pytestmark = [pytest.mark.mount, pytest.mark.server]

FIRST = 200_000
#: Tries to make a file as another user, who may not come to the directory by its path; prints what came of it.
MAKE = """
import os, sys
os.chdir(os.path.dirname(sys.argv[1]))
os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[2]))
try:
    with open(os.path.basename(sys.argv[1]), "xb") as file:
        file.write(b"made")
    print("made")
except OSError as error:
    print(error.strerror)
"""


@pytest.fixture
def places(work: Path) -> Iterator[Path]:
    """A directory for mounts, shared with its copies; whatever is mounted in it is gone with the test."""
    subprocess.run(["mount", "--bind", work, work], check=True)
    subprocess.run(["mount", "--make-shared", work], check=True)
    for name in ("host", "view", "late"):
        (work / name).mkdir()
    yield work
    subprocess.run(["umount", "--recursive", "--lazy", work], check=True)


def has_idmap() -> bool:
    """FUSE takes part from Linux 6.12 on."""
    major, minor, *_ = os.uname().release.split(".")
    return (int(major), int(minor)) >= (6, 12)


def make_as(user: int, path: Path) -> str:
    ran = subprocess.run([sys.executable, "-c", MAKE, path, str(user)], capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def test_bind_mounts_before_and_after(weed: Server, places: Path) -> None:
    """A mount is seen in copies of its parent that were made before, and in copies of itself that were made after,
    also when its daemon was replaced; after a stop the first are gone, and the second answer ENOTCONN.
    """
    bucket = weed.make_bucket()
    for key in ("a", "b"):
        weed.client.put_object(Bucket=bucket, Key=key, Body=key.encode())
    subprocess.run(["mount", "--bind", places / "host", places / "host"], check=True)
    subprocess.run(["mount", "--bind", places / "host", places / "view"], check=True)
    with mounted(bucket, places / "host", url=weed.url) as mount:
        subprocess.run(["mount", "--bind", mount.path, places / "late"], check=True)
        shown = [mount.path, places / "view" / "mnt", places / "late"]
        assert [(path / "a").read_bytes() for path in shown] == [b"a"] * 3
        os.kill(mount.daemon_pid, signal.SIGKILL)
        wait_for_takeover(mount)
        assert [(path / "b").read_bytes() for path in shown] == [b"b"] * 3
        assert mount.stop() == 0
        assert [is_mounted(path) for path in shown] == [False, False, True]
        with pytest.raises(OSError, match="not connected"):
            os.stat(places / "late")


def test_mapped_ids(weed: Server, places: Path) -> None:
    """With --allow-other a bind mount with mapped ids shows the mapped owners and lets those, and nobody else, write,
    also when the daemon was replaced; it needs Linux 6.12.
    """
    bucket = weed.make_bucket()
    weed.client.put_object(Bucket=bucket, Key="a", Body=b"a")
    late = places / "late"
    with mounted(bucket, places, "--allow-other", "--rw", url=weed.url) as mount:
        if not has_idmap():
            with pytest.raises(OSError, match="Invalid argument"):
                bind(str(mount.path), str(late), FIRST)
            return
        bind(str(mount.path), str(late), FIRST)
        assert (os.stat(mount.path / "a").st_uid, os.stat(late / "a").st_uid) == (0, FIRST)
        for number in range(2):
            assert make_as(FIRST, late / f"{number} by its owner") == "made"
            assert make_as(FIRST + 1, late / f"{number} by another") == "Permission denied"
            assert os.stat(mount.path / f"{number} by its owner").st_uid == 0
            assert os.stat(late / f"{number} by its owner").st_gid == FIRST
            if number == 0:
                os.kill(mount.daemon_pid, signal.SIGKILL)
                wait_for_takeover(mount)
        assert (late / "a").read_bytes() == b"a"
        assert mount.stop() == 0
        listed = weed.client.list_objects_v2(Bucket=bucket)["Contents"]
        assert [each["Key"] for each in listed] == ["0 by its owner", "1 by its owner", "a"]


def test_no_mapped_ids_where_the_kernel_does_not_check(weed: Server, places: Path) -> None:
    """A mount of one user has no bind mounts with mapped ids: EINVAL."""
    with mounted(weed.make_bucket(), places, url=weed.url) as mount:
        with pytest.raises(OSError, match="Invalid argument"):
            bind(str(mount.path), str(places / "late"), FIRST)
        assert mount.stop() == 0
