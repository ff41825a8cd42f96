"""Who opened a file, and whether it has it open still: a FLUSH says neither.

The kernel sends FLUSH for each close of each duplicate of a descriptor: after `subprocess.run`, when a forked child
ends, in the middle of a write.  It is the end of a write only when the opener has closed its last one.  /proc tells:
`fdinfo` has the number of the inode since Linux 5.14, and reading it asks nothing of any file system (stat would).

Where /proc tells nothing (another PID namespace, an older kernel) every FLUSH counts as the end: what was written is
published, and writing goes on as after fsync.
"""

import os
import re

_INO = re.compile(r"^ino:\s*(\d+)$", re.MULTILINE)
_FLAGS = re.compile(r"^flags:\s*([0-7]+)$", re.MULTILINE)


def process_of(thread_id: int) -> int:
    """The process of a thread that the kernel names; 0 where it cannot be seen."""
    try:
        with open(f"/proc/{thread_id}/status", encoding="ascii", errors="replace") as status:
            return next((int(line.split()[1]) for line in status if line.startswith("Tgid:")), 0)
    except (OSError, ValueError):
        return 0


def has_open(process_id: int, ino: int, name: str) -> bool:
    """Whether a process has a file open to write; it may read what it wrote for as long as it likes.

    Args:
        ino: of the file.
        name: its last component; a descriptor on another name is not looked at closer.
    """
    directory = f"/proc/{process_id}/fd"
    try:
        descriptors = os.listdir(directory) if process_id else []
    except OSError:
        return False
    return any(_is_on(process_id, each, ino, name) for each in descriptors)


def _is_on(process_id: int, descriptor: str, ino: int, name: str) -> bool:
    try:
        target = os.readlink(f"/proc/{process_id}/fd/{descriptor}")
        if target.removesuffix(" (deleted)").rpartition("/")[2] != name:
            return False
        with open(f"/proc/{process_id}/fdinfo/{descriptor}", encoding="ascii", errors="replace") as info:
            text = info.read()
    except OSError:
        return False
    found, flags = _INO.search(text), _FLAGS.search(text)
    may_write = flags is None or bool(int(flags[1], 8) & (os.O_WRONLY | os.O_RDWR))
    return may_write and found is not None and int(found[1]) == ino
