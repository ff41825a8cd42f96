"""The line of live figures that `systemctl status` shows: what is open, and what went on since the line before."""

import trio

from s3mount.daemon.keeper import Keeper
from s3mount.daemon.wiring import Components
from s3mount.units import MIB, counted

#: Seconds from one line to the next.
_EVERY_S = 10.0


def status_line(where: str, parts: Components, n_bytes: int, n_requests: int, duration_s: float) -> str:
    """One line.

    Args:
        n_bytes, n_requests: from S3 within `duration_s`.
    """
    failed = sum(count for answer, count in parts.boundary.statistics().items() if answer in ("EIO", "ETIMEDOUT"))
    return (
        f"serving {where}: {counted(parts.filesystem.statistics().open_files, 'file')} open, "
        f"{counted(parts.boundary.in_flight, 'call')} in flight; "
        f"{n_bytes / MIB / duration_s:.1f} MiB/s and {n_requests / duration_s:.1f} requests/s from S3; "
        f"{counted(failed, 'call')} failed"
    )


async def tell_status(where: str, keeper: Keeper, parts: Components) -> None:
    """Tell the service manager, whenever it changes, until cancelled."""
    told = ""
    before, asked_at = parts.store.statistics(), trio.current_time()
    while True:
        await trio.sleep(_EVERY_S)
        counts, now = parts.store.statistics(), trio.current_time()
        n_bytes, n_requests = counts.bytes_read - before.bytes_read, counts.requests - before.requests
        line = status_line(where, parts, n_bytes, n_requests, now - asked_at)
        if line != told:
            keeper.status(line)
        told, before, asked_at = line, counts, now
