"""The bytes of one new file: past the kernel's page cache where they are many.

A block that came from S3 is in the pages of the mount; nobody reads its file for a while.  Written through the page
cache, 8 MiB cost a copy, 2,048 fresh pages and their write-back: 0.5 s of CPU a GB here, and up to 2.3 while memory is
short.  O_DIRECT from memory that is used again costs 0.25 (decision 0028), and pushes nothing out of memory.

Small blocks are not worth it: a direct write waits for the disk, of which one thread has one at a time.
"""

import errno
import fcntl
import os

from s3mount.cache.buffers import PageBuffers
from s3mount.units import MIB

_LEAST_DIRECT = MIB


class FileFiller:
    """Writes whole files; not for two threads at once."""

    def __init__(self) -> None:
        self._buffers = PageBuffers()
        self._may_be_direct = True

    def fill(self, fd: int, header: bytes, content: memoryview) -> None:
        """Both, one after the other, into an empty file.

        Raises:
            OSError: not all of it was written.
        """
        n_bytes = len(header) + len(content)
        if not (len(content) >= _LEAST_DIRECT and self._may_be_direct and self._fill_directly(fd, header, content)):
            fcntl.fcntl(fd, fcntl.F_SETFL, 0)
            if os.pwritev(fd, [header, content], 0) != n_bytes:
                raise OSError(errno.ENOSPC, "No space left on device")

    def _fill_directly(self, fd: int, header: bytes, content: memoryview) -> bool:
        """False where this file system cannot do it, and nothing was written."""
        n_bytes = len(header) + len(content)
        pages = self._buffers.lend(n_bytes)
        pages[: len(header)] = header
        pages[len(header) : n_bytes] = content
        try:
            fcntl.fcntl(fd, fcntl.F_SETFL, os.O_DIRECT)
            n_written = os.pwrite(fd, pages, 0)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._may_be_direct = False
            return False
        if n_written != len(pages):
            raise OSError(errno.ENOSPC, "No space left on device")
        if n_bytes != len(pages):
            os.ftruncate(fd, n_bytes)
        return True
