"""One mount's keeper: mounts, starts daemons, and ends when the mount is gone.

    starting ── ready ──▶ serving ── the daemon died, the mount lives ──▶ between ── pause ──▶ (the next daemon) serving
       │ it ended            │ it ended with 0, or the mount is gone         │ the mount is gone
       ▼                     ▼                                               ▼
      end                   end                                             end

The daemon that was started first has checked everything that a user can have got wrong; if it ends before it is
ready, its exit code is the command's.  Later ones are told what it found out.

To start takes more than a second of CPU time.  So after a while, and at once after a death, the next daemon is
started in advance: the standby has done everything that needs no device, and waits.

INVARIANT: when `run` returns there is no daemon, and nothing is mounted; unless libfuse mounted, and its daemon was
killed.
"""

import contextlib
import logging
import math
import os
import select
import signal
import time
from collections.abc import Callable
from typing import Any

from s3mount.mounter.channel import Channel, Hello, Message
from s3mount.mounter.lending import LentDevice
from s3mount.mounter.offspring import Offspring, say_cause
from s3mount.mounter.pauses import Pauses
from s3mount.mounter.sdnotify import ServiceManager
from s3mount.mounter.signals import Signals

log = logging.getLogger(__name__)

#: Seconds from a stop to the kill: unmounting and calls in flight get 5 each, and systemd kills after 30.
_STOP_S = 15.0
#: Seconds between two looks at whether the mount still exists while nobody serves it.
_LOOK_S = 0.5
#: Seconds of service before the first standby: a mount that is used for a moment does not pay for one.
_STANDBY_AFTER_S = 10.0


class Mounter:
    """One mount.

    Args:
        first: the daemon that was started with this process.
        clock: seconds, from anywhere.
    """

    def __init__(
        self, hello: Hello, first: Offspring, manager: ServiceManager, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._hello = hello
        self._manager = manager
        self._clock = clock
        self._signals = Signals()
        self._device: LentDevice | None = None
        self._facts: dict[str, Any] | None = None  # of the first daemon, when it was ready
        self._daemon: Offspring | None = first
        self._pauses = Pauses()
        self._died_at = 0.0
        self._start_at = 0.0
        self._standby: Offspring | None = None
        self._standby_pauses = Pauses()
        self._standby_at = math.inf
        self._kill_at = math.inf
        self._code: int | None = None

    def run(self) -> int:
        """Until the mount is gone; the exit code, -N for signal N."""
        with self._signals:
            while self._code is None:
                self._wait()
                for number in self._signals.take():
                    self._stop(number)
                for each in (self._daemon, self._standby):
                    if each is not None:
                        self._listen(each)
                self._look_after_daemon()
                self._look_after_standby()
        if self._standby is not None:
            self._standby.kill()
        if self._device is not None:
            self._device.close()
        return self._code

    @property
    def _is_stopping(self) -> bool:
        return self._kill_at != math.inf

    def _wait(self) -> None:
        """Until something happens, or it is time to do something."""
        poll = select.poll()
        poll.register(self._signals, select.POLLIN)
        for each in (self._daemon, self._standby):
            if each is not None and each.channel is not None:
                poll.register(each.channel, select.POLLIN)
        now = self._clock()
        next_at = self._kill_at if self._daemon is not None else min(self._start_at, now + _LOOK_S)
        if self._standby is None:
            next_at = min(next_at, self._standby_at)
        poll.poll(None if next_at == math.inf else max(0.0, next_at - now) * 1000 + 1)

    def _stop(self, number: int) -> None:
        """Hand the first signal on; a daemon that it reached by itself, from a terminal, heeds only one."""
        if self._is_stopping:
            return
        self._kill_at = self._clock() + _STOP_S
        self._standby_at = math.inf
        if self._daemon is None:
            self._code = 0
        else:
            self._daemon.send(number)

    # -- what a daemon says ----------------------------------------------------------------

    def _listen(self, daemon: Offspring) -> None:
        while daemon.channel is not None and select.select([daemon.channel], [], [], 0)[0]:
            message = daemon.channel.receive()
            if message is None:
                daemon.hang_up()
            else:
                self._heed(message, daemon, daemon.channel)

    def _heed(self, message: Message, daemon: Offspring, channel: Channel) -> None:
        if message.kind == "mount":
            self._mount(channel, **message.facts)
        elif message.kind == "prepared":
            daemon.is_prepared = True
            if daemon is self._daemon:
                self._go(daemon)
        elif message.kind == "ready":
            daemon.serving_since = self._clock()
            self._become_ready(daemon, **message.facts)
        elif message.kind == "stopping":
            self._manager.stopping()

    def _mount(self, channel: Channel, options: list[str], max_background: int) -> None:
        try:
            self._device = LentDevice.make(self._hello.mount_point, options, max_background)
        except (OSError, ValueError) as error:
            with contextlib.suppress(OSError):
                channel.send("refused", reason=str(error))
        else:
            self._device.lend("mounted", channel)

    def _go(self, daemon: Offspring) -> None:
        if self._device is not None and daemon.channel is not None:
            self._device.lend("go", daemon.channel)

    def _become_ready(self, daemon: Offspring, status: str, **facts: Any) -> None:
        now = self._clock()
        if self._facts is None:
            self._facts = facts
            self._standby_at = math.inf if self._device is None else now + _STANDBY_AFTER_S
            self._manager.ready(status)
            if not self._hello.is_foreground:
                _close_stderr()
        else:
            self._standby_at = now
            log.info("process %d serves the mount, which waited %.2f s", daemon.pid, now - self._died_at)

    # -- lives -----------------------------------------------------------------------------

    def _look_after_daemon(self) -> None:
        if self._code is not None:
            return
        if self._daemon is None:
            self._look_for_another()
            return
        code = self._daemon.exit_code()
        if code is not None:
            self._bury(self._daemon, code)
        elif self._clock() >= self._kill_at:
            self._daemon.send(signal.SIGKILL)
            self._kill_at += _STOP_S

    def _bury(self, daemon: Offspring, code: int) -> None:
        self._listen(daemon)  # it may have said something before it died
        daemon.hang_up()
        self._daemon = None
        if self._device is None or self._facts is None:
            self._code = code
        elif code == 0 or self._is_stopping or not self._device.is_mounted():
            self._code = max(code, 0)
        else:
            self._died_at = self._clock()
            served_s = 0.0 if daemon.serving_since is None else self._died_at - daemon.serving_since
            pause_s = self._pauses.after(served_s)
            self._start_at = self._died_at + pause_s
            when = f" in {pause_s:g} s" if pause_s else ""
            log.warning("process %d %s; another takes the mount over%s", daemon.pid, say_cause(code), when)
            if not pause_s:
                self._look_for_another()

    def _look_for_another(self) -> None:
        """The standby, or a new process."""
        if self._device is None or not self._device.is_mounted():
            log.info("unmounted while no daemon served")
            self._code = 0
        elif self._clock() >= self._start_at:
            self._daemon, self._standby = self._standby or self._start(), None
            if self._daemon is not None and self._daemon.is_prepared:
                self._go(self._daemon)

    def _look_after_standby(self) -> None:
        if self._code is not None:
            return
        if self._standby is None:
            if self._daemon is not None and self._clock() >= self._standby_at:
                self._standby_at = math.inf
                self._standby = self._start()
            return
        code = self._standby.exit_code()
        if code is not None:
            pid, self._standby = self._standby.pid, None
            pause_s = max(1.0, self._standby_pauses.after(0.0))
            self._standby_at = self._clock() + pause_s
            log.warning("process %d, the standby, %s; the next one starts in %g s", pid, say_cause(code), pause_s)

    def _start(self) -> Offspring | None:
        """A later daemon, told what the first one found out."""
        try:
            daemon = Offspring.start(self._hello.arguments)
        except OSError as error:
            self._start_at = self._standby_at = self._clock() + max(1.0, self._pauses.after(0.0))
            log.error("no daemon can be started: %s", error)  # noqa: TRY400  the errno says it all
            return None
        if daemon.channel is not None:
            with contextlib.suppress(OSError):  # it died: that is seen next
                daemon.channel.send("take over", hello=vars(self._hello), facts=self._facts)
        return daemon


def _close_stderr() -> None:
    """Whoever waits for the end of it need not wait for the mount's."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 2)
    os.close(null)
