"""Kernel settings of a mount that no mount option reaches: read-ahead, by sysfs.

The kernel reads ahead 128 KiB by default, so a buffered reader asks for 128 KiB at a time.  With
1 MiB one request does the work of eight; more than that is slower again (measured), and a
random touch of a mapping would fetch more.  Only root may set it; anybody else gets one line in
the log with the command.
"""

import logging
from pathlib import Path

from s3mount.fuse import mountservice

log = logging.getLogger(__name__)

#: Measured: 3.3 GB/s with 128, 4.4 GB/s with 1,024, less again with 16,384.
READ_AHEAD_KIB = 1024
#: At least a page; a touch of a mapping costs 12 MiB at 16 MiB (measured), and nothing gains from more.
READ_AHEAD_RANGE_KIB = (4, 16384)
_BDI = Path("/sys/class/bdi")


def set_read_ahead(device: str, kib: int) -> bool:
    """Let the kernel ask for so much at a time, up to 1 MiB in one request.

    Args:
        device: "major:minor" of the mount, as mountinfo shows it.

    Returns:
        Whether it is set.
    """
    path = _BDI / device / "read_ahead_kb"
    try:
        path.write_text(f"{kib}\n", encoding="ascii")
    except OSError as error:
        if mountservice.is_there() and mountservice.ask("read-ahead", kib=kib):
            return True
        log.info("read-ahead stays at the kernel's default (%s); as root: echo %d > %s", error.strerror, kib, path)
        return False
    return True
