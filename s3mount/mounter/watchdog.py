"""Whether a daemon hangs, and how far that has gone.

    answered ── silent for --hang-timeout ──▶ suspected ── `_DUMP_S` ──▶ condemned ── `_MOST` in a row ──▶ hopeless
        ▲                                         │ it says that it only waits for S3
        └─────────────────────────────────────────┘

A daemon that was started and does not come to serve is measured by its start, with more patience.  One that is
stopped by a signal hangs like any other.  An outage of S3 is no silence: statvfs is answered without S3, unless each
task of the daemon waits, and then it says so.
"""

import logging
import math
import signal
from collections.abc import Callable
from enum import Enum, auto

from s3mount.mounter.offspring import Offspring
from s3mount.mounter.prober import Prober

log = logging.getLogger(__name__)

#: Seconds between the request for the stacks and the kill.
_DUMP_S = 1.0
#: Seconds between two looks, while nothing is answered.
_LOOK_S = 1.0
#: Seconds for a start at least: a loaded host needs ten.
_START_S = 60.0
#: Daemons in a row that are condemned, without an answer between them.
_MOST = 3


class Step(Enum):
    """What to do now."""

    NOTHING = auto()
    CONDEMN = auto()
    GIVE_UP = auto()


class Watchdog:
    """Watches whoever serves.

    Args:
        timeout_s: of `--hang-timeout`; 0 for never.
        clock: seconds, from anywhere.
    """

    def __init__(self, mount_point: str, timeout_s: float, clock: Callable[[], float]) -> None:
        self._timeout_s = timeout_s
        self._clock = clock
        self._prober = Prober(mount_point, clock)
        self._looked_at = 0.0
        self._suspected_at: float | None = None
        self._excused_at = 0.0
        self._condemned = 0
        self._answers_then = 0

    @property
    def is_suspicious(self) -> bool:
        """Whether nobody has answered for so long that whoever serves is about to be replaced."""
        return self._suspected_at is not None

    def due_at(self) -> float:
        """When to look next."""
        if not self._timeout_s:
            return math.inf
        if self._suspected_at is not None:
            return self._suspected_at + _DUMP_S
        return max(self._prober.due_at, self._looked_at + _LOOK_S)

    def look(self, daemon: Offspring) -> Step:
        """Ask, and judge by how long nobody has answered."""
        now = self._looked_at = self._clock()
        if not self._timeout_s or not self._is_late(daemon, now):
            self._suspected_at = None
            return Step.NOTHING
        if self._suspected_at is None:
            self._suspected_at = now
            log.error("the mount has not answered for %g s: process %d is replaced, its stacks should be in the log",
                      self._timeout_s, daemon.pid)  # fmt: skip
            daemon.tell("busy?")
            daemon.send(signal.SIGUSR1)
            return Step.NOTHING
        if now < self._suspected_at + _DUMP_S:
            return Step.NOTHING
        self._suspected_at = None
        self._condemned = 1 if self._prober.answers > self._answers_then else self._condemned + 1
        self._answers_then = self._prober.answers
        if self._condemned <= _MOST:
            return Step.CONDEMN
        log.error("no daemon gets this mount to answer: its calls are failed, and it is unmounted; "
                  "mount again, and report this with the log")  # fmt: skip
        return Step.GIVE_UP

    def _is_late(self, daemon: Offspring, now: float) -> bool:
        if daemon.serving_since is None:
            return now - daemon.called_at >= max(self._timeout_s, _START_S)
        try:
            self._prober.ask()
        except OSError as error:
            log.warning("the mount cannot be watched: %s", error)
            return False
        since = max(daemon.serving_since, self._excused_at)
        return min(self._prober.silent_s(), now - since) >= self._timeout_s

    def excuse(self, reason: str) -> None:
        """The daemon has said why it is silent, and gets the same time again."""
        log.warning("the mount is slow to answer: %s", reason)
        self._suspected_at = None
        self._excused_at = self._clock()

    def close(self) -> None:
        """Ask no more."""
        self._prober.close()
