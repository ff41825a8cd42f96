"""`s3mountctl unmount MOUNT`: with `--force` also what is busy, stalled or hangs.

A forced unmount aborts the connection: the kernel fails every call that was not answered, so no program waits any
more, in whatever state; then the mount is detached.  It waits for nobody but the daemon, which has nothing to do then,
and kills it if it does not see that.  The mount point itself is not touched.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator

import click

from s3mount.cli.mounts import daemon_pid, locate
from s3mount.errors import printable
from s3mount.fuse.device import abort
from s3mount.fuse.device import unmount as detach
from s3mount.fuse.mountinfo import Mounted, mounted_on

#: Seconds for a daemon to end whose mount is gone, after which it is killed; and then for that.
_END_S = 3.0
_KILL_S = 1.0


@click.command(short_help="Unmount; with --force whatever it does.")
@click.argument("mount", metavar="MOUNT", type=str)
@click.option("--force", is_flag=True, help="Fail all calls that are not answered; also when it is busy or hangs.")
def unmount(mount: str, force: bool) -> None:  # noqa: FBT001
    """Unmount MOUNT: the directory of a mount, or any path in it.

    With --force programs that read there get an error at once, and it ends within seconds, whatever the daemon and S3
    do.
    What was not uploaded yet is lost then.
    """
    found, _ = locate(mount)
    if not force:
        command = ["umount", found.target] if os.geteuid() == 0 else ["fusermount3", "-u", "--", found.target]
        sys.exit(subprocess.run(command, check=False).returncode)
    with _daemon_of(found) as daemon:
        abort(found.target)
        if _is_there(found):
            detach(found.target)
        if daemon is not None and not _ended(daemon, _END_S):
            signal.pidfd_send_signal(daemon, signal.SIGKILL)
            _ended(daemon, _KILL_S)
    if _is_there(found):
        raise click.ClickException(f"{printable(found.target)} is still mounted: {_advice()}")


@contextlib.contextmanager
def _daemon_of(found: Mounted) -> Iterator[int | None]:
    """A descriptor of the daemon; None where there is none that listens for commands."""
    pid = daemon_pid(found)
    fd = None
    if pid is not None:
        with contextlib.suppress(OSError):  # it ended meanwhile
            fd = os.pidfd_open(pid)
    try:
        yield fd
    finally:
        if fd is not None:
            os.close(fd)


def _ended(daemon: int, timeout_s: float) -> bool:
    return bool(select.select([daemon], [], [], timeout_s)[0])


def _is_there(found: Mounted) -> bool:
    """Not another in its place."""
    now = mounted_on(found.target)
    return now is not None and now.device == found.device


def _advice() -> str:
    return "ask who mounted it, or root" if os.geteuid() else "see dmesg"
