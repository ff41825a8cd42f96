"""Who opened a file, and whether it has it open still: a FLUSH says neither.

The kernel sends FLUSH for each close of each duplicate of a descriptor: after `subprocess.run`, when a forked child
ends, in the middle of a write.  It is the end of a write only when the opener has closed its last one.  /proc tells:
`fdinfo` has the number of the inode since Linux 5.14, and reading it asks nothing of any file system (stat would).

Where /proc tells nothing (another PID namespace, an older kernel) every FLUSH counts as the end: what was written is
published, and writing goes on as after fsync.

To look at a descriptor takes 2 µs, or 18 if it has the name, and a training job has hundreds: then a thread does it.
What is looked at on the loop takes half a millisecond at most (measured).
"""

import os
import re

import trio

_INO = re.compile(r"^ino:\s*(\d+)$", re.MULTILINE)
#: Descriptors that take less time than a thread.
_FEW = 32
_FLAGS = re.compile(r"^flags:\s*([0-7]+)$", re.MULTILINE)


def process_of(thread_id: int) -> int:
    """The process of a thread that the kernel names; 0 where it cannot be seen."""
    try:
        with open(f"/proc/{thread_id}/status", encoding="ascii", errors="replace") as status:
            return next((int(line.split()[1]) for line in status if line.startswith("Tgid:")), 0)
    except (OSError, ValueError):
        return 0


async def has_open(process_id: int, ino: int, name: str) -> bool:
    """Whether a process has a file open to write; it may read what it wrote for as long as it likes.

    Args:
        ino: of the file.
        name: its last component; a descriptor on another name is not looked at closer.
    """
    if not process_id:
        return False
    if _is_quick(process_id):
        return _is_found(process_id, ino, name)
    return await trio.to_thread.run_sync(_is_found, process_id, ino, name, abandon_on_cancel=True)


def _is_quick(process_id: int) -> bool:
    """Whether a process has few descriptors; kernels before 6.2 do not say how many."""
    try:
        return 0 < os.stat(f"/proc/{process_id}/fd").st_size <= _FEW
    except OSError:  # it is gone, or not seen
        return True


def _is_found(process_id: int, ino: int, name: str) -> bool:
    try:
        directory = os.open(f"/proc/{process_id}/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return any(_is_on(directory, each, ino, name) for each in os.listdir(directory))
    except OSError:  # it ended
        return False
    finally:
        os.close(directory)


def _is_on(directory: int, descriptor: str, ino: int, name: str) -> bool:
    try:
        target = os.readlink(descriptor, dir_fd=directory)
        if target.removesuffix(" (deleted)").rpartition("/")[2] != name:
            return False
        fd = os.open(f"../fdinfo/{descriptor}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
        with open(fd, encoding="ascii", errors="replace") as info:
            text = info.read()
    except OSError:
        return False
    found, flags = _INO.search(text), _FLAGS.search(text)
    may_write = flags is None or bool(int(flags[1], 8) & (os.O_WRONLY | os.O_RDWR))
    return may_write and found is not None and int(found[1]) == ino
