"""The process that unmounts when all others of a mount have died, and where it waits.

fusermount3 waits for the end of a socket that mounter and daemons hold.  What kills a control group as a whole
(cgroup.kill, memory.oom.group, a scheduler at the end of a step) would kill it with them, and leave a dead mount.  So
it leaves the groups that it was started in, for the highest that takes it: in v2 none between has processes, and nobody
knows which will be killed.  It ends by itself within a moment of the last of the others.

As root that is the root's group.  An ordinary user may move nothing, unless groups were delegated; then it stays.
"""

import contextlib
import logging
import socket
import subprocess
from pathlib import Path

from s3mount.control_groups import leave_groups

log = logging.getLogger(__name__)

_END_S = 5.0


class Undertaker:
    """A fusermount3 that waits.

    Args:
        ours: this end of its socket.
    """

    def __init__(self, process: subprocess.Popen[bytes], ours: socket.socket) -> None:
        self._process = process
        self._ours = ours

    def fileno(self) -> int:
        """Its end shows fusermount3 that the mount may be dead."""
        return self._ours.fileno()

    def move_out(self) -> None:
        """It is not killed with the group of this process, where that can be."""
        pid = self._process.pid
        groups = leave_groups(pid, Path(f"/proc/{pid}"))
        log.debug("process %d, which unmounts when all others are dead, waits in %s", pid, groups or "our groups")

    def end(self) -> None:
        """It sees that nothing is mounted any more, and goes; it is not waited for if it hangs on something else."""
        self._ours.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
