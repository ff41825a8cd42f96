"""What control groups leave a process of its host: on made-up trees of groups, and on this host."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from s3mount.limits import Host, this_host
from s3mount.units import GIB, MIB

PHYSICAL = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
PROCESSORS = len(os.sched_getaffinity(0))

V2 = ("cgroup2", "rw,nsdelegate")
V1_MEMORY = ("cgroup", "rw,memory")
V1_CPU = ("cgroup", "rw,cpu,cpuacct")


class Tree:
    """A /proc/self and the mounts it names, below one directory."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.proc = base / "self"
        self.proc.mkdir()
        self._mounts: list[str] = []

    def mount(self, point: str, kind: tuple[str, str], files: Mapping[str, str], root: str = "/") -> None:
        """A hierarchy whose group `root` is seen at `point`, with these files in it."""
        for name, text in files.items():
            path = self.base / point / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
        name, options = kind
        self._mounts.append(f"30 23 0:28 {root} {self.base / point} rw,relatime shared:9 - {name} {name} {options}")

    def host(self, *groups: str) -> Host:
        """What a process in these groups may use."""
        (self.proc / "mountinfo").write_text("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n" + "\n".join(self._mounts) + "\n")
        (self.proc / "cgroup").write_text("\n".join(groups) + "\n")
        return this_host(self.proc)


@pytest.fixture
def tree(work: Path) -> Tree:
    return Tree(work)


def test_without_groups_the_host_is_ours(tree: Tree) -> None:
    """No cgroup file system, no line about the process, not even the files: memory and processors of the host."""
    assert tree.host() == Host(PHYSICAL, PROCESSORS)
    assert this_host(tree.base / "absent") == Host(PHYSICAL, PROCESSORS)


def test_no_limit_is_none(tree: Tree) -> None:
    """`max`, -1 and v1's largest number limit nothing."""
    tree.mount("u", V2, {"a/memory.max": "max", "a/cpu.max": "max 100000"})
    tree.mount("m", V1_MEMORY, {"a/memory.limit_in_bytes": "9223372036854771712"})
    tree.mount("c", V1_CPU, {"a/cpu.cfs_quota_us": "-1", "a/cpu.cfs_period_us": "100000"})
    assert tree.host("0::/a", "4:memory:/a", "1:cpu,cpuacct:/a") == Host(PHYSICAL, PROCESSORS)


@pytest.mark.parametrize("limited", ["system.slice/s3mount.service", "system.slice", "."])
def test_v2_limits_of_every_level(tree: Tree, limited: str) -> None:
    """A unit's MemoryMax and CPUQuota, its slice's and the container's: each counts for the process in the unit."""
    files = {
        "system.slice/s3mount.service/memory.max": "max",
        "system.slice/memory.max": "max",
        f"{limited}/memory.max": str(700 * MIB),
        f"{limited}/cpu.max": "50000 100000",
        "other.slice/memory.max": "1000",
        "other.slice/cpu.max": "1 100000",
    }
    tree.mount("u", V2, files)
    assert tree.host("0::/system.slice/s3mount.service") == Host(700 * MIB, 0.5)


def test_the_smallest_limit_counts(tree: Tree) -> None:
    """Below a group of 800 MiB a limit of 900 MiB means nothing, and a host's memory is never exceeded."""
    tree.mount("u", V2, {"a/memory.max": str(800 * MIB), "a/b/memory.max": str(900 * MIB)})
    assert tree.host("0::/a/b").memory_bytes == 800 * MIB
    tree.mount("u", V2, {"a/memory.max": str(2**60), "a/b/memory.max": "max"})
    assert tree.host("0::/a/b").memory_bytes == PHYSICAL


def test_v1_limits(tree: Tree) -> None:
    """Each controller has a tree of its own, and only its own tree says anything of it."""
    tree.mount("m", V1_MEMORY, {"docker/memory.limit_in_bytes": str(GIB), "cpu.cfs_quota_us": "1"})
    tree.mount("c", V1_CPU, {"jobs/cpu.cfs_quota_us": "150000", "jobs/cpu.cfs_period_us": "100000"})
    tree.mount("p", ("cgroup", "rw,pids"), {"memory.limit_in_bytes": "1", "cpu.max": "1 100000"})
    tree.mount("u", V2, {"docker/memory.max": "1", "jobs/cpu.max": "1 100000"})
    found = tree.host("9:name=systemd:/", "4:memory:/docker/1/unit", "3:cpu,cpuacct:/jobs/7", "2:pids:/", "0::/")
    assert found == Host(GIB, min(1.5, PROCESSORS))


@pytest.mark.parametrize(
    ("root", "path"),
    [("/d/1", "/d/1"), ("/d/1", "/d/1/unit"), ("/d/1", "/../1"), ("/d/1", "/else"), ("/d/1", "/"), ("/", "/../1")],
)
def test_a_mount_that_shows_a_part_of_the_tree(tree: Tree, root: str, path: str) -> None:
    """A container sees its own group at the top of its mount, whatever the process's path is called in there."""
    files = {"memory.limit_in_bytes": str(600 * MIB), "unit/memory.limit_in_bytes": str(500 * MIB)}
    tree.mount("m/top", V1_MEMORY, files, root=root)
    (tree.base / "m/memory.limit_in_bytes").write_text("1000\n")  # above the mount: not a group
    assert tree.host(f"4:memory:{path}").memory_bytes == (500 if path.endswith("unit") else 600) * MIB


def test_nonsense_limits_nothing(tree: Tree) -> None:
    """Files that hold something else are no limits."""
    tree.mount("u", V2, {"memory.max": "", "cpu.max": "nothing at all"})
    tree.mount("c", V1_CPU, {"cpu.cfs_quota_us": "100", "cpu.cfs_period_us": "0"})
    assert tree.host("0::/", "1:cpu:/") == Host(PHYSICAL, PROCESSORS)


def test_this_host() -> None:
    """Of the machine that runs the tests: something, and no more than there is."""
    found = this_host()
    assert 0 < found.memory_bytes <= PHYSICAL
    assert 0 < found.cpus <= PROCESSORS
