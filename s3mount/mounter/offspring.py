"""One daemon, as its parent knows it."""

import contextlib
import logging
import os
import select
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from s3mount.mounter.channel import Channel
from s3mount.mounter.signals import HELD_BACK

log = logging.getLogger(__name__)

#: What runs a later daemon: whatever code is installed by then.
_SUCCESSOR = ["-P", "-m", "s3mount.cli.successor"]
#: What Python exits with.
_UNCAUGHT = 1
_NOT_SAVED = 9  # ExitCode
_FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP, signal.SIGSYS)


class Offspring:
    """A child process and this end of its channel.

    Attributes:
        channel: closed, and None, when the other end is.
        is_prepared: it waits for the device.
        had_device: it was given it, so that it may have died in something that it was asked for.
        called_at, serving_since: when it was its turn, on the caller's clock; None before it serves.
        reason: why it failed, in its own words, if it had any.
        is_condemned: it hung, though nobody had stopped it, and is killed for that.
    """

    def __init__(self, pid: int, channel: Channel) -> None:
        self.pid = pid
        self.channel: Channel | None = channel
        self.is_prepared = self.had_device = False
        self.called_at = 0.0
        self.reason = ""
        self.serving_since: float | None = None
        self.is_condemned = False
        self._code: int | None = None

    @classmethod
    def start(cls, arguments: list[str]) -> "Offspring":
        """A later daemon, which is told more over the channel.

        Raises:
            OSError: no process can be started.
        """
        ours, theirs = Channel.pair()
        command = [sys.executable, *_SUCCESSOR, str(theirs.lend()), *arguments]
        try:
            # A terminal's Ctrl-C reaches a standby, too, and a daemon heeds signals only when it serves.
            pid = os.posix_spawn(sys.executable, command, os.environ, setsigmask=HELD_BACK)
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        return cls(pid, ours)

    def exit_code(self) -> int | None:
        """As `os.waitstatus_to_exitcode`, -N for signal N; None while it runs."""
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def is_stopped(self) -> bool:
        """Whether a signal stopped it (proc(5), stat)."""
        try:
            return Path(f"/proc/{self.pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"T"
        except OSError:
            return False

    def send(self, number: int) -> None:
        """A signal; none is sent to a process that has been waited for, whose id may be another's."""
        if self._code is None:
            os.kill(self.pid, number)

    def condemn(self) -> None:
        """Kill it, because it hangs."""
        self.is_condemned = not self.is_stopped()
        self.send(signal.SIGKILL)

    def tell(self, kind: str, descriptors: Sequence[int] = (), **facts: Any) -> None:
        """Say something to a daemon that may have died: that is seen next."""
        if self.channel is not None:
            with contextlib.suppress(OSError):
                self.channel.send(kind, descriptors, **facts)

    def has_news(self) -> bool:
        """Whether it has said something, or hung up."""
        return self.channel is not None and bool(select.select([self.channel], [], [], 0)[0])

    def hang_up(self) -> None:
        """Nothing more is expected over the channel."""
        if self.channel is not None:
            self.channel.close()
            self.channel = None


def is_own_fault(code: int) -> bool:
    """Whether a process ended by something it did: an exception that nobody caught, or a signal of the processor's."""
    return code == _UNCAUGHT or -code in _FAULTS


def end_of(daemon: Offspring, code: int, *, is_read_only: bool) -> int:
    """The exit code of a mount that was to end, when its daemon has ended."""
    if daemon.serving_since is None or (code < 0 and is_read_only):
        return 0
    if code < 0:
        log.error("process %d %s while it ended: what S3 did not have yet may be lost", daemon.pid, say_cause(code))
    return code if code >= 0 else _NOT_SAVED


def say_cause(code: int) -> str:
    """How a process ended, for a line of the log."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
