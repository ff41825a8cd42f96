"""What this process may use of its host: memory and processors, as the kernel's control groups limit them.

A limit stands at the group of the process or at any group above it (a container's, a systemd unit's, a slice's), and
the smallest counts (`control_groups` finds them):

    v2    memory.max, cpu.max
    v1    memory.limit_in_bytes; cpu.cfs_quota_us and cpu.cfs_period_us

What cannot be read limits nothing.

What is used of a limit (`MemoryUse`) counts neither page cache nor slabs that the kernel gives up when it needs them:
every group that reads files is filled with those, up to its limit, and nothing is wrong.  Above that, memory.high
slows the group down and memory.max kills in it, so the smaller one counts.
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from s3mount.control_groups import groups_of, text_of
from s3mount.core.pressure import Use
from s3mount.units import KIB

PROC_SELF = Path("/proc/self")


class Host(NamedTuple):
    """Bytes of memory and processors that this process may use."""

    memory_bytes: int
    cpus: float


def this_host(proc: Path = PROC_SELF) -> Host:
    """The host's own memory and processors, or less where a control group or the affinity says so.

    Args:
        proc: where `cgroup` and `mountinfo` of the process are.
    """
    processors = float(len(os.sched_getaffinity(0)))
    memory = [_memory_limit(group) for group in groups_of(proc, "memory")]
    cpus = [_cpu_limit(group) for group in groups_of(proc, "cpu")]
    return Host(int(min([_physical(), *memory])), min([processors, *cpus]))


def _physical() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class MemoryUse:
    """The limits on the memory of this process, and what is used of each.

    Args:
        proc: where `cgroup` and `mountinfo` of the process are; its groups are those at this moment.
        meminfo: of the host, whose memory is a limit too.
    """

    def __init__(self, proc: Path = PROC_SELF, meminfo: Path = Path("/proc/meminfo")) -> None:
        self._groups = list(groups_of(proc, "memory"))
        self._meminfo = meminfo

    def fullest(self) -> tuple[Use, str]:
        """The limit that is nearest, and a name for it."""
        return max(self._all(), key=lambda found: found[0].fullness)

    def _all(self) -> Iterator[tuple[Use, str]]:
        available = _table(self._meminfo, "kB").get("MemAvailable", math.inf)
        total = _physical()
        yield Use(int(total - min(available * KIB, total)), total), "the host's memory"
        for group in self._groups:
            limit = _memory_limit(group)
            if limit <= total:
                yield Use(_memory_used(group), int(limit)), f"the memory of the control group {group}"


def _memory_used(group: Path) -> int:
    """Bytes that the kernel cannot give up by itself."""
    stat = _table(group / "memory.stat")
    used = min(_number(group / "memory.current"), _number(group / "memory.usage_in_bytes"))
    names = ("inactive_file", "active_file", "slab_reclaimable")  # v1 counts its groups below under total_, no slabs
    given_up = sum(stat.get(f"total_{name}", stat.get(name, 0)) for name in names)
    return 0 if math.isinf(used) else max(int(used) - given_up, 0)


def _table(path: Path, unit: str = "") -> dict[str, int]:
    """Lines of a name, perhaps a colon, and a number."""
    rows = (line.removesuffix(unit).split() for line in text_of(path).splitlines())
    return {row[0].removesuffix(":"): int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}


def _memory_limit(group: Path) -> float:
    """Bytes; infinite where there is no limit.  Of v1's and v2's files only some are there."""
    return min(_number(group / name) for name in ("memory.max", "memory.high", "memory.limit_in_bytes"))


def _cpu_limit(group: Path) -> float:
    """Processors: the share of a period that the group may run; v1 writes -1 for no limit."""
    quota, _, period = text_of(group / "cpu.max").partition(" ")
    if not quota:
        quota, period = text_of(group / "cpu.cfs_quota_us"), text_of(group / "cpu.cfs_period_us")
    if not (quota.isdigit() and period.isdigit() and int(period)):
        return math.inf
    return int(quota) / int(period)


def _number(path: Path) -> float:
    text = text_of(path)
    return int(text) if text.isdigit() else math.inf
