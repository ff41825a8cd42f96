"""What a signal asks of a daemon: to stop, to forget and go on in new files, to say more or less.

    SIGINT, SIGTERM   stop
    SIGHUP            the terminal was closed: stop; else: open the log anew, forget names and attributes
    SIGUSR2           the next log level

SIGUSR1 is `daemon.stacks`.  With a mounter beside it the daemon gets them from there; one that comes to both, from a
terminal, is harmless twice, also while the end saves what is not in S3: trio raises again what comes then, when nobody
receives any more.
"""

import logging
import signal
from collections.abc import AsyncIterator
from types import FrameType

from s3mount.fs.filesystem import S3FileSystem
from s3mount.logs import Log
from s3mount.mounter.signals import Terminal

log = logging.getLogger(__name__)


def signals_heeded() -> list[signal.Signals]:
    """What nohup ignores stays ignored."""
    hangup = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGINT, signal.SIGTERM, signal.SIGUSR2, *hangup]


def pass_over_at_the_end() -> None:
    """Nothing that comes after the last receiver is closed ends the process; call it before the first is opened."""
    for each in signals_heeded():
        signal.signal(each, _pass_over)  # not SIG_IGN, which throws away what waits while it is blocked


def ignore_from_now_on() -> None:
    """Everything is done; Python gives up its handlers before the process has ended, and then a stop would kill it."""
    for each in signals_heeded():
        signal.signal(each, signal.SIG_IGN)


def _pass_over(_number: int, _frame: FrameType | None) -> None:
    """The end is under way."""


class Commands:
    """Obeys whatever is no stop.

    Args:
        own_log: of this process.
    """

    def __init__(self, filesystem: S3FileSystem, own_log: Log) -> None:
        self._filesystem = filesystem
        self._log = own_log
        self._terminal = Terminal()

    async def until_stop(self, signals: AsyncIterator[int]) -> signal.Signals | None:
        """The first signal that asks to stop; None when no more come."""
        async for number in signals:
            if number == signal.SIGUSR2:
                self._log.cycle_level()
            elif number == signal.SIGHUP and not self._terminal.is_gone():
                await self.reload()
            else:
                return signal.Signals(number)
        return None

    async def reload(self) -> None:
        """Open the log anew, and forget what is known of names: the next use asks S3."""
        self._log.reopen()
        await self._filesystem.refresh()
        log.info("reloaded: the log is open anew, names and attributes are forgotten")
