"""What the kernel forgot costs nothing, and what another client removed it forgets."""

import ctypes
import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.fs.trees import SortedStore, tree
from tests.mount.test_walking import ListedBucket, counted, spent
from tests.support.ctl import run_ctl
from tests.support.mounts import Mount, mounted
from tests.support.processes import wait_until
from tests.support.scripted import Call
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server]

N_FILES = 80_000
_libc = ctypes.CDLL(None, use_errno=True)
_REMOUNT = 32
#: MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_NOATIME: a remount keeps no others, and these not by itself.
_FLAGS = 1 | 2 | 4 | 8 | 1024


class ManyFiles(ListedBucket):
    """A bucket of many names whose LIST is answered by bisection."""

    def __init__(self) -> None:
        super().__init__([])
        self._store = SortedStore(tree(80, 1000), latency_s=0.0)

    def __call__(self, call: Call) -> bytes:
        return super().__call__(call)


def find(mount: Mount) -> int:
    run = subprocess.run(["find", mount.path, "-type", "f"], capture_output=True, text=True, check=True)
    return len(run.stdout.splitlines())


def forget(mount: Mount) -> None:
    """The kernel lets go of every inode of the mount that nobody uses, as it does under memory pressure; needs root.

    A remount does that for its file system alone (reconfigure_super of the kernel): dropping all caches would do it to
    the mounts of other tests at the same time, too.
    """
    flags = _REMOUNT | os.statvfs(mount.path).f_flag & _FLAGS
    made = _libc.mount(None, bytes(mount.path), None, ctypes.c_ulong(flags), None)
    assert made == 0, os.strerror(ctypes.get_errno())


def names_of(mount: Mount) -> tuple[int, int]:
    """Inodes that the kernel has, and names that listings keep."""
    counts = json.loads(run_ctl("stats", mount.path, "--json").stdout)["parts"]["file_system"]
    return counts["inodes"]["inodes"], counts["metadata"]["listed_names"]


def test_forgotten_names_cost_nothing(work: Path) -> None:
    """After `find` and a forget the daemon is at most 64 MiB larger than at its start; another `find` adds nothing."""
    # Without requests: as long as they go on the CRT's memory grows, by what its connections need (13 MiB in 900).
    with counted(ManyFiles(), work, "--metadata-ttl", "indefinite") as (mount, server):
        started = mount.rss_mib()
        assert find(mount) == N_FILES
        held = mount.rss_mib()
        forget(mount)
        wait_until(lambda: mount.rss_mib() < held - 8, 60, "the memory going back")
        wait_until(lambda: mount.rss_mib() <= started + 64, 60, "all of it")
        wait_until(lambda: names_of(mount)[0] == 1, 60, "the kernel knowing the root alone")
        before = names_of(mount)
        spent(server)
        for _ in range(2):
            after = mount.rss_mib()
            assert find(mount) == N_FILES
            forget(mount)
            wait_until(lambda after=after: mount.rss_mib() <= after + 5, 60, "the memory of another find")  # type: ignore[misc]
        wait_until(lambda: names_of(mount) == before, 60, "as many names as before")
        assert spent(server) == 0


def test_names_that_another_client_removed_are_forgotten(weed: Server, work: Path) -> None:
    """When their directory is listed again the kernel lets go of their inodes; who has one open reads on."""
    bucket = weed.make_bucket()
    for number in range(50):
        weed.client.put_object(Bucket=bucket, Key=f"d/{number:02}", Body=b"content")
    with mounted(bucket, work, url=weed.url) as mount:
        directory = mount.path / "d"
        assert {path.read_bytes() for path in directory.iterdir()} == {b"content"}
        assert names_of(mount)[0] == 52
        with (directory / "00").open("rb") as file:
            objects = [{"Key": f"d/{number:02}"} for number in range(49)]
            weed.client.delete_objects(Bucket=bucket, Delete={"Objects": objects})
            assert os.listdir(directory) == ["49"]
            wait_until(lambda: names_of(mount)[0] == 4, 30, "all but the root, the directory and two files")
            assert file.read() == b"content"
        assert mount.warnings() == []
