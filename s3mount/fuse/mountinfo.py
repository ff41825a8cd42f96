"""What the kernel says is mounted where (proc(5), mountinfo), without asking any mount."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FILE_SYSTEM_TYPE = "fuse.s3mount"
#: Where somebody mounts at the first access.
AUTOMOUNT_TYPE = "autofs"
#: The kernel escapes these.
_ESCAPES = {"\\040": " ", "\\011": "\t", "\\012": "\n", "\\134": "\\"}


class Mounted(NamedTuple):
    """One mount.

    Attributes:
        target: the mount point.
        kind: the type of file system.
        device: "major:minor".
        source: of s3mount bucket and prefix.
        uid: who mounted it, for FUSE.
    """

    target: str
    kind: str
    device: str
    source: str
    uid: int


def mounts() -> Iterator[Mounted]:
    """All that this process can see, in the order in which they were made."""
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        before, _, after = line.partition(" - ")
        _, _, device, _, target, *_ = before.split(" ")
        kind, source, options = after.split(" ", 2)
        uid = next((text for text in options.split(",") if text.startswith("user_id=")), "user_id=0")
        yield Mounted(_unescaped(target), kind, device, _unescaped(source), int(uid.partition("=")[2]))


def mounted_on(path: str) -> Mounted | None:
    """What is mounted on exactly this directory, on top; None when nothing is."""
    found = mounts_on(path)
    return found[-1] if found else None


def mounts_on(path: str) -> list[Mounted]:
    """All that is mounted on exactly this directory, the one that is seen last."""
    return [mounted for mounted in mounts() if mounted.target == path]


def is_automounted(path: str) -> bool:
    """Whether an automounter may be waiting for a mount on this directory.

    The kernel has everybody wait with it who as much as names the directory, but its own process group.
    """
    return any(each.kind == AUTOMOUNT_TYPE for each in mounts_on(path))


def _unescaped(text: str) -> str:
    for escape, character in _ESCAPES.items():
        text = text.replace(escape, character)
    return text
