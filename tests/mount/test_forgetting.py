"""What the kernel forgot costs nothing: memory of a daemon that was walked through."""

import subprocess
from pathlib import Path

import pytest

from tests.fs.trees import SortedStore, tree
from tests.mount.test_walking import ListedBucket, counted
from tests.support.mounts import Mount
from tests.support.processes import wait_until
from tests.support.scripted import Call

pytestmark = [pytest.mark.mount, pytest.mark.server]

N_FILES = 80_000


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


def forget() -> None:
    """The kernel lets go of every inode that nobody uses, as it does under memory pressure; needs root.

    More than once: it passes names over that were used lately.
    """
    for _ in range(3):
        Path("/proc/sys/vm/drop_caches").write_text("2\n", encoding="ascii")


def test_forgotten_names_cost_nothing(work: Path) -> None:
    """After `find` and a forget the daemon is at most 64 MiB larger than at its start; a second `find` adds nothing."""
    with counted(ManyFiles(), work) as (mount, _):
        started = mount.rss_mib()
        assert find(mount) == N_FILES
        held = mount.rss_mib()
        forget()
        wait_until(lambda: mount.rss_mib() < held - 8, 30, "the memory going back")
        wait_until(lambda: mount.rss_mib() <= started + 64, 30, "all of it")
        after = mount.rss_mib()
        assert find(mount) == N_FILES
        forget()
        wait_until(lambda: mount.rss_mib() <= after + 8, 30, "the second find's memory going back")
