"""Made-up trees of control groups, as files below one directory."""

from collections.abc import Mapping
from pathlib import Path

from s3mount.limits import Host, MemoryUse, this_host

V2 = ("cgroup2", "rw,nsdelegate")
V1_MEMORY = ("cgroup", "rw,memory")
V1_CPU = ("cgroup", "rw,cpu,cpuacct")


class Tree:
    """A /proc/self and the mounts it names."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.proc = base / "self"
        self.proc.mkdir()
        self._mounts: list[str] = []

    def mount(self, point: str, kind: tuple[str, str], files: Mapping[str, str], root: str = "/") -> None:
        """A hierarchy whose group `root` is seen at `point`, with these files in it."""
        self.write(point, files)
        name, options = kind
        self._mounts.append(f"30 23 0:28 {root} {self.base / point} rw,relatime shared:9 - {name} {name} {options}")

    def write(self, point: str, files: Mapping[str, str]) -> None:
        """Files of a hierarchy."""
        for name, text in files.items():
            path = self.base / point / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")

    def _place(self, groups: tuple[str, ...]) -> None:
        (self.proc / "mountinfo").write_text("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n" + "\n".join(self._mounts) + "\n")
        (self.proc / "cgroup").write_text("\n".join(groups) + "\n")

    def host(self, *groups: str) -> Host:
        """What a process in these groups may use."""
        self._place(groups)
        return this_host(self.proc)

    def memory(self, *groups: str) -> MemoryUse:
        """The memory of a process in these groups, on a host that has plenty."""
        self._place(groups)
        (self.base / "meminfo").write_text("MemAvailable: 1099511627776 kB\n")
        return MemoryUse(self.proc, self.base / "meminfo")
