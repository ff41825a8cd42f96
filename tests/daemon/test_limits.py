"""What control groups leave a process of its host: on made-up trees of groups, and on this host."""

import os
from pathlib import Path

import pytest

from s3mount.core.pressure import Use
from s3mount.limits import Host, MemoryUse, this_host
from s3mount.units import GIB, MIB
from tests.daemon.groups import V1_CPU, V1_MEMORY, V2, Tree

PHYSICAL = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
PROCESSORS = len(os.sched_getaffinity(0))


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


# -- what is used -----------------------------------------------------------------------------


def test_page_cache_is_not_used(tree: Tree) -> None:
    """Of what a v2 group is charged with, pages of files and slabs that the kernel gives up by itself do not count."""
    stat = f"anon {300 * MIB}\nfile {600 * MIB}\ninactive_file {500 * MIB}\nactive_file {70 * MIB}\n"
    stat += f"slab_reclaimable {20 * MIB}\nslab_unreclaimable 5"
    files = {"a/memory.max": str(GIB), "a/memory.current": str(950 * MIB), "a/memory.stat": stat}
    tree.mount("u", V2, files)
    use, what = tree.memory("0::/a").fullest()
    assert use == Use(360 * MIB, GIB)
    assert what == f"the memory of the control group {tree.base}/u/a"


def test_page_cache_is_not_used_in_v1(tree: Tree) -> None:
    """The same of v1, whose own numbers leave out the groups below."""
    stat = f"inactive_file 1\nactive_file 2\ntotal_inactive_file {100 * MIB}\ntotal_active_file {50 * MIB}"
    files = {"memory.limit_in_bytes": str(GIB), "memory.usage_in_bytes": str(200 * MIB), "memory.stat": stat}
    tree.mount("m", V1_MEMORY, {f"a/{name}": text for name, text in files.items()})
    assert tree.memory("4:memory:/a").fullest()[0] == Use(50 * MIB, GIB)


def test_the_smaller_of_two_limits_counts(tree: Tree) -> None:
    """Above memory.high the kernel slows the group down: that is a limit as memory.max is."""
    tree.mount("u", V2, {"a/memory.max": str(GIB), "a/memory.high": str(800 * MIB), "a/memory.current": "5"})
    assert tree.memory("0::/a").fullest()[0] == Use(5, 800 * MIB)


def test_the_fullest_group_counts(tree: Tree) -> None:
    """A slice that is nearly full matters, though the unit in it has room, and the other way round."""
    files = {"s/memory.max": str(2 * GIB), "s/memory.current": str(1900 * MIB)}
    files |= {"s/u/memory.max": str(GIB), "s/u/memory.current": str(500 * MIB)}
    tree.mount("u", V2, files)
    memory = tree.memory("0::/s/u")
    assert memory.fullest()[0].limit == 2 * GIB
    tree.write("u", {"s/u/memory.current": str(1020 * MIB)})
    assert memory.fullest()[0].limit == GIB


def test_the_host_is_a_limit(tree: Tree) -> None:
    """Without groups it is the host's memory that may become short; without /proc/meminfo nothing of it is used."""
    memory = tree.memory()
    assert memory.fullest() == (Use(0, PHYSICAL), "the host's memory")
    (tree.base / "meminfo").write_text("MemTotal: 1 kB\nMemAvailable:     1024 kB\n")
    assert memory.fullest()[0] == Use(PHYSICAL - MIB, PHYSICAL)
    (tree.base / "meminfo").unlink()
    assert memory.fullest()[0] == Use(0, PHYSICAL)


def test_memory_of_this_host() -> None:
    """Of the machine that runs the tests: something is used, and not more than there is."""
    use, _ = MemoryUse().fullest()
    assert 0 < use.used <= use.limit <= PHYSICAL
