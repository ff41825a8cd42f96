"""One mount's keeper: mounts, lends the device to one daemon after the other, and ends when the mount is gone.

    starting ── ready ──▶ serving ── it died or hangs, the mount lives ──▶ between ── pause ──▶ serving (the next one)
       │ it ended            │ it ended with 0, or the mount is gone          │ the mount is gone
       └─────────────────────┴──────────────▶ end ◀───────────────────────────┘

The first daemon checks what users get wrong: its exit code is the command's.  Later ones are told what it found out.
INVARIANT: when `run` returns no daemon can be killed and nothing is mounted, but what a killed libfuse mounted.
"""

import logging
import math
import select
import signal
import time
from collections.abc import Callable
from typing import Any

from s3mount.logs import Log, close_stderr
from s3mount.mounter import renewal
from s3mount.mounter.channel import Hello, Message
from s3mount.mounter.crew import Crew
from s3mount.mounter.keeping import KEPT
from s3mount.mounter.lending import LentDevice
from s3mount.mounter.offspring import Offspring, end_of
from s3mount.mounter.sdnotify import ServiceManager
from s3mount.mounter.signals import HANDED_ON, Signals, Terminal
from s3mount.mounter.watchdog import Step, Watchdog

log = logging.getLogger(__name__)

#: Seconds from a stop to the kill, unless the daemon says that it needs more: for uploads.
_STOP_S = 15.0
#: Seconds from the kill of a daemon that hangs until it is not waited for: it may be stuck in the kernel.
_DIE_S = 2.0
_NOT_ANSWERING = 8  # ExitCode


class Mounter:
    """One mount.

    Args:
        crew: with the daemon that was started with this process.
        clock: seconds, from anywhere.
    """

    def __init__(
        self,
        hello: Hello,
        crew: Crew,
        manager: ServiceManager,
        own_log: Log,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._hello = hello
        self._manager = manager
        self._clock = clock
        self._signals = Signals()
        self._terminal = Terminal()
        self._log = own_log
        self._crew = crew
        self._watchdog = Watchdog(hello.mount_point, hello.hang_timeout_s, clock)
        self._device: LentDevice | None = None
        self._renewal = renewal.Renewal(crew, manager)
        self._predecessor: Offspring | None = None
        self._silent_at = 0.0
        self._kill_at = self._abandon_at = math.inf
        self._code: int | None = None

    def run(self) -> int:
        """Until the mount is gone; the exit code, -N for signal N."""
        with self._signals:
            while self._code is None:
                self._wait()
                for number in self._signals.take():
                    self._obey(number)
                for each in self._crew.members:
                    self._listen(each)
                self._look_after()
                self._manager.beat(self._clock(), is_well=not self._watchdog.is_suspicious)
        self._watchdog.close()
        self._crew.close()
        if self._device is not None:
            self._device.close()
            self._manager.drop(KEPT)
        return self._code

    @property
    def _is_stopping(self) -> bool:
        return self._kill_at != math.inf

    @property
    def _is_watched(self) -> bool:
        """The one that serves is ready or comes after one that was, and nothing is about to happen to it."""
        return self._abandon_at == self._kill_at == math.inf and None not in (self._device, self._crew.facts)

    def _wait(self) -> None:
        """Until something happens, or it is time to do something."""
        poll = select.poll()
        for fd in (self._signals.fileno(), *self._crew.filenos):
            poll.register(fd, select.POLLIN)
        watch_at = self._watchdog.due_at() if self._is_watched else math.inf
        next_at = min(self._kill_at, self._abandon_at, self._crew.due_at, watch_at, self._manager.beat_at)
        poll.poll(None if next_at == math.inf else max(0.0, next_at - self._clock()) * 1000 + 1)

    def _obey(self, number: int) -> None:
        """Hand it on, of stops only the first: a daemon that one reached by itself, from a terminal, heeds only one."""
        if number in HANDED_ON or (number == signal.SIGHUP and not self._terminal.is_gone()):
            if self._crew.serving is not None:
                self._listen(self._crew.serving)  # it may have become ready just before
            self._crew.hand_on(number)
            if number == signal.SIGHUP:
                self._log.reopen()
            elif number == signal.SIGUSR2:
                self._log.cycle_level()
            return
        if not self._is_stopping:
            self._kill_at = self._clock() + _STOP_S
            self._crew.stop(number)

    # -- what a daemon says ----------------------------------------------------------------

    def _listen(self, daemon: Offspring) -> None:
        while daemon.channel is not None and daemon.has_news():
            message = daemon.channel.receive()
            if message is None:
                daemon.hang_up()
            else:
                self._heed(message, daemon)

    def _heed(self, message: Message, daemon: Offspring) -> None:
        """Of kinds that are not known, a newer daemon's, nothing is needed here."""
        facts = message.facts
        if message.kind == "ready":
            self._become_ready(daemon, **facts)
        elif message.kind == "failed":
            daemon.reason = facts["reason"]
        elif message.kind == "busy":
            self._watchdog.excuse(**facts)
        elif message.kind == "status":
            self._manager.status(**facts)
        elif message.kind == "memory":
            self._crew.make_room(is_needed=facts["is_short"] and not self._renewal.is_under_way)
        elif message.kind == "stopping" and daemon is self._crew.serving:
            self._manager.stopping()
            if self._is_stopping:
                self._kill_at = max(self._kill_at, self._clock() + facts.get("patience_s", 0.0))
        elif message.kind in renewal.KINDS:
            self._renewal.heed(message.kind, can_take_over=self._device is not None)
        elif message.kind == "drained" and daemon is self._crew.serving:
            self._predecessor, self._silent_at = daemon, self._clock()
            self._crew.retire()
        else:
            self._heed_about_device(message, daemon)

    def _heed_about_device(self, message: Message, daemon: Offspring) -> None:
        if message.kind == "mount":
            self._mount(daemon, **message.facts)
        elif message.kind == "kept":
            self._silent_at, self._crew.facts = self._clock(), message.facts["facts"]
            self._device = LentDevice.kept(self._hello.mount_point, message.descriptors[0], message.facts["offer"])
        elif message.kind == "prepared":
            daemon.is_prepared = True
            if daemon is self._crew.serving and self._device is not None:
                self._device.lend("go", daemon, is_to_blame=self._crew.is_to_blame)

    def _mount(self, daemon: Offspring, options: list[str], max_background: int) -> None:
        try:
            self._device = LentDevice.make(self._hello.mount_point, options, max_background)
        except (OSError, ValueError) as error:
            daemon.tell("refused", reason=str(error))
        else:
            self._device.lend("mounted", daemon)

    def _become_ready(self, daemon: Offspring, status: str, **facts: Any) -> None:
        now = daemon.serving_since = self._clock()
        if self._crew.facts is None:
            self._crew.facts = facts
            if not self._hello.is_foreground:
                close_stderr()
        else:
            log.info("process %d serves the mount, which nobody served for %.2f s", daemon.pid, now - self._silent_at)
        self._manager.ready(status)
        if self._device is not None:
            self._crew.plan_standby(is_urgent=self._silent_at > 0 and self._predecessor is None)
            self._device.keep_with(self._manager, self._crew)
        if self._predecessor is not None:
            self._predecessor.tell("released")
        self._predecessor = None

    # -- lives -----------------------------------------------------------------------------

    def _look_after(self) -> None:
        if self._code is None and self._crew.serving is not None:
            self._look_after_daemon(self._crew.serving)
        if self._code is None and self._crew.serving is None:
            self._pass_on()
        if self._code is None:
            self._crew.tend()
            self._renewal.go_on()

    def _look_after_daemon(self, daemon: Offspring) -> None:
        code = daemon.exit_code()
        now = self._clock()
        if code is not None:
            self._bury(daemon, code)
        elif now >= self._kill_at:
            daemon.send(signal.SIGKILL)
            self._kill_at += _STOP_S
        elif now >= self._abandon_at:
            self._abandon_at = math.inf
            log.error("process %d does not end, stuck in the kernel; it is not waited for", daemon.pid)
            self._crew.retire()
        elif self._is_watched:
            self._judge(daemon)

    def _judge(self, daemon: Offspring) -> None:
        step = self._watchdog.look(daemon)
        if step is Step.CONDEMN:
            self._silent_at = self._clock()
            self._abandon_at = self._silent_at + _DIE_S
            daemon.condemn()
        elif step is Step.GIVE_UP:
            daemon.send(signal.SIGKILL)
            if self._device is not None:
                self._device.abort()
            self._code = _NOT_ANSWERING

    def _bury(self, daemon: Offspring, code: int) -> None:
        self._listen(daemon)  # it may have said something before it died
        if self._crew.serving is not daemon:
            return  # and that was that another may serve
        self._abandon_at = math.inf
        if self._device is None or self._crew.facts is None:
            self._code = code
        elif code == 0 or self._is_stopping or not self._device.is_mounted():
            self._code = end_of(daemon, code, is_read_only=self._hello.is_read_only)
        else:
            self._silent_at = self._clock()
            self._crew.bury(code)

    def _pass_on(self) -> None:
        """Nobody has the device: the next one gets it, if there is anything to serve."""
        if self._device is None or not self._device.is_mounted() or self._is_stopping:
            log.info("unmounted while no daemon served")
            self._code = 0
            return
        successor = self._crew.promote()
        if successor is not None and successor.is_prepared:
            self._device.lend("go", successor, is_to_blame=self._crew.is_to_blame)
