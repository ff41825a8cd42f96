"""One process becomes two: the mounter in its place, and the daemon as its child.

The mounter is an interpreter of its own, started anew, so that it has none of what the command imported; and it is
the process that the user or the service manager started, so that what they know of it stays true.  The daemon
is the fork, which has all of it.
"""

import os
import signal
import sys
from pathlib import Path

from s3mount.mounter import __file__ as _package
from s3mount.mounter.channel import Channel
from s3mount.mounter.signals import HELD_BACK

_PROGRAM = str(Path(_package).with_name("__main__.py"))


def split(mount_point: str) -> Channel:
    """Return in the child, the daemon, with its end of the channel; no threads may exist."""
    ours, theirs = Channel.pair()
    pid = os.fork()
    if pid == 0:
        theirs.close()
        return ours
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, HELD_BACK)  # until the mounter has handlers
        command = [sys.executable, "-I", "-S", _PROGRAM, str(theirs.lend()), str(pid), mount_point]
        os.execv(sys.executable, command)
    finally:
        os._exit(1)
