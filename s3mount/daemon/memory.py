"""The areas of the takeover record in memory files, which live as long as any process has them open.

A memory file is mapped once and grows with what is written.  Memory that a daemon wrote is there when it is
killed: nothing is flushed, and nothing is synced.
"""

import mmap
import os

from s3mount.units import MIB

#: The least a mapping grows by: growing takes two system calls.
_STEP = MIB


class MemoryArea:
    """An area in a memory file, as `core.journal.Area` says.

    Args:
        fd: of the file; it stays the caller's, and must stay open.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        os.ftruncate(fd, max(_STEP, os.fstat(fd).st_size))
        self.content = mmap.mmap(fd, 0)

    def reserve(self, n_bytes: int) -> None:
        """Let it have at least that many bytes; doubles, so that it does not grow often."""
        wanted = max(n_bytes, 2 * len(self.content))
        self.content.resize(-(-wanted // _STEP) * _STEP)

    def clear(self) -> None:
        """Make it short and zero, and give its memory back."""
        self.content.resize(_STEP)
        os.ftruncate(self._fd, 0)
        os.ftruncate(self._fd, _STEP)

    def close(self) -> None:
        """Unmap it."""
        self.content.close()
