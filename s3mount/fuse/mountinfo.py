"""What the kernel says is mounted where (proc(5), mountinfo), without asking the mount."""

from pathlib import Path
from typing import NamedTuple

#: Of our mounts.
FILE_SYSTEM_TYPE = "fuse.s3mount"
#: The kernel escapes these.
_ESCAPES = {"\\040": " ", "\\011": "\t", "\\012": "\n", "\\134": "\\"}


class Mounted(NamedTuple):
    """What is mounted on a directory: file system type, and "major:minor" of its device."""

    kind: str
    device: str


def mounted_on(path: str) -> Mounted | None:
    """What is mounted on exactly this directory; None when nothing is."""
    found = mounts_on(path)
    return found[-1] if found else None


def mounts_on(path: str) -> list[Mounted]:
    """All that is mounted on exactly this directory, the one that is seen last."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        before, _, after = line.partition(" - ")
        _, _, device, _, target, *_ = before.split(" ")
        for escape, character in _ESCAPES.items():
            target = target.replace(escape, character)
        if target == path:
            found.append(Mounted(after.split(" ")[0], device))
    return found
