"""What the kernel says is mounted where (proc(5), mountinfo), without asking the mount."""

from pathlib import Path
from typing import NamedTuple

#: The kernel escapes these.
_ESCAPES = {"\\040": " ", "\\011": "\t", "\\012": "\n", "\\134": "\\"}


class Mounted(NamedTuple):
    """What is mounted on a directory: file system type, and "major:minor" of its device."""

    kind: str
    device: str


def mounted_on(path: str) -> Mounted | None:
    """What is mounted on exactly this directory; None when nothing is."""
    found = None
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        before, _, after = line.partition(" - ")
        _, _, device, _, target, *_ = before.split(" ")
        for escape, character in _ESCAPES.items():
            target = target.replace(escape, character)
        if target == path:
            found = Mounted(after.split(" ")[0], device)  # the last one mounted is on top
    return found
