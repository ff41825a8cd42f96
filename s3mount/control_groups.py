"""Where the control groups of a process are, and who can be moved where (cgroups(7)).

/proc/PID/cgroup says which groups:

    0::/PATH                v2
    N:CONTROLLER,…:/PATH    v1

and /proc/PID/mountinfo where the groups' files are.  A mount may show only a part of the tree (its root), and
PATH may lie outside it, as in a container without a name space for cgroups: then what the mount shows is walked.
"""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple


def groups_of(proc: Path, controller: str) -> Iterator[Path]:
    """The directories of a process's groups, v1 and v2, from its own up to the highest that can be seen.

    Args:
        proc: where `cgroup` and `mountinfo` of the process are.
    """
    for is_v2, controllers, path in _lines(proc):
        if is_v2 or controller in controllers:
            for mount in _mounts(proc, controller):
                if mount.is_v2 == is_v2:
                    yield from mount.walk(path)


def leave_groups(pid: int, proc: Path) -> list[Path]:
    """Move a process above its groups: in each hierarchy to the highest one that takes it; returns those.

    Args:
        proc: as `groups_of`, of that process.
    """
    taken = []
    for is_v2, controllers, path in _lines(proc):
        for mount in [each for each in _mounts(proc, controllers[0]) if each.is_v2 == is_v2]:
            _, *above = mount.walk(path)
            taken.append(next((group for group in reversed(above) if _takes(group, pid)), None))
    return [group for group in taken if group is not None]


def _takes(group: Path, pid: int) -> bool:
    try:
        fd = os.open(group / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.write(fd, str(pid).encode())
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _lines(proc: Path) -> Iterator[tuple[bool, list[str], PurePosixPath]]:
    """Of each hierarchy: whether it is v2, its controllers, the group."""
    for line in text_of(proc / "cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        yield number == "0" and not controllers, controllers.split(","), PurePosixPath(path)


class _Mount(NamedTuple):
    """A mount of a hierarchy of groups: `root` is the group that is seen at `point`."""

    is_v2: bool
    root: PurePosixPath
    point: Path

    def walk(self, path: PurePosixPath) -> Iterator[Path]:
        relative = path.relative_to(self.root) if path.is_relative_to(self.root) else PurePosixPath()
        if ".." in relative.parts:  # the mount belongs to another name space
            relative = PurePosixPath()
        group = self.point / relative
        yield group
        for _ in relative.parts:
            group = group.parent
            yield group


def _mounts(proc: Path, controller: str) -> Iterator[_Mount]:
    for line in text_of(proc / "mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind == "cgroup2" or (kind == "cgroup" and controller in options.split(",")):
            _, _, _, root, point, *_ = before.split(" ")
            yield _Mount(kind == "cgroup2", PurePosixPath(root), Path(point))


def text_of(path: Path) -> str:
    """What a file of the kernel's says; nothing where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").strip()
    except OSError:
        return ""
