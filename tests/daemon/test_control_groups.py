"""Who is moved to which control group: on made-up trees of groups; tests/mount/test_who_gets_in.py has a real one."""

from pathlib import Path

import pytest

from s3mount.control_groups import leave_groups
from tests.daemon.groups import V1_CPU, V1_MEMORY, V2, Tree

PID = 4321


@pytest.fixture
def tree(work: Path) -> Tree:
    return Tree(work)


def members(tree: Tree) -> dict[str, str]:
    """What was written to which group."""
    found = {str(path.parent.relative_to(tree.base)): path.read_text() for path in tree.base.rglob("cgroup.procs")}
    return {group: text.strip() for group, text in found.items() if text.strip()}


def test_the_highest_group_that_takes_it(tree: Tree) -> None:
    """A process leaves its groups, in each hierarchy for one group, the highest above them that takes it."""
    tree.mount("u", V2, {f"{group}/cgroup.procs": "" for group in (".", "job", "job/step")})
    tree.mount("m", V1_MEMORY, {"job/cgroup.procs": "", "job/step/cgroup.procs": "", "job/step/task/cgroup.procs": ""})
    tree.mount("c", V1_CPU, {"cgroup.procs": ""})
    tree.host("0::/job/step", "4:memory:/job/step/task", "1:cpu,cpuacct:/")
    assert leave_groups(PID, tree.proc) == [tree.base / "u", tree.base / "m/job"]
    assert members(tree) == {"u": str(PID), "m/job": str(PID)}


def test_nobody_takes_it(tree: Tree) -> None:
    """Where no group above takes it, or none can be seen, a process stays, and that is no error."""
    tree.mount("u", V2, {"job/step/cgroup.procs": ""})
    tree.mount("m", V1_MEMORY, {"cgroup.procs": ""}, root="/job")
    tree.host("0::/job/step", "4:memory:/job", "1:cpu,cpuacct:/job/step")
    assert leave_groups(PID, tree.proc) == []
    assert leave_groups(PID, tree.base / "absent") == []
    assert members(tree) == {}
