"""Asks the mount, from a process of its own, whether anybody answers.

`stat -f` is statvfs(3), which the daemon answers without S3, and the kernel never does by itself.  The process has no
descriptor of the device, so when nobody answers it only waits.  There is never more than one.
"""

import contextlib
import os
import signal
from collections.abc import Callable

#: Seconds from one question to the next.
EVERY_S = 5.0
_PROGRAM = "stat"


class Prober:
    """Questions to one mount.

    Args:
        clock: seconds, from anywhere.
    """

    def __init__(self, mount_point: str, clock: Callable[[], float]) -> None:
        self._command = [_PROGRAM, "-f", mount_point]
        self._clock = clock
        self._pid: int | None = None
        self._asked_at = 0.0
        self.answers = 0

    @property
    def due_at(self) -> float:
        """When `ask` does something next."""
        return self._asked_at + EVERY_S

    def ask(self) -> None:
        """One more question, if the last one was answered and it is time.

        Raises:
            OSError: no process can be started.
        """
        self._collect()
        now = self._clock()
        if self._pid is not None or now < self.due_at:
            return
        self._asked_at = now
        to_nowhere = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
        self._pid = os.posix_spawnp(_PROGRAM, self._command, os.environ, file_actions=to_nowhere)

    def silent_s(self) -> float:
        """How long the question that is open waits already; 0 when none is.  An error is an answer."""
        self._collect()
        return 0.0 if self._pid is None else self._clock() - self._asked_at

    def close(self) -> None:
        """Leave no process behind, unless it cannot be killed."""
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            self._collect()

    def _collect(self) -> None:
        if self._pid is not None and os.waitpid(self._pid, os.WNOHANG)[0]:
            self._pid = None
            self.answers += 1
