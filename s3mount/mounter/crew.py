"""The daemons of one mount: the one that serves, one that stands by, and those on their way out.

To start takes more than a second of CPU time.  So after a while, and at once after a death, the next daemon is
started in advance: the standby has done everything that needs no device, and waits.  A restart on demand is the same
with a new standby.

INVARIANT: no process is forgotten: who no longer serves is retired until it has been waited for.
"""

import logging
import math
import signal
from collections.abc import Callable, Sequence
from typing import Any

from s3mount.mounter.channel import Hello
from s3mount.mounter.offspring import Offspring, is_own_fault, say_cause
from s3mount.mounter.pauses import Pauses

log = logging.getLogger(__name__)

#: Seconds of service before the first standby: a mount that is used for a moment does not pay for one.
_STANDBY_AFTER_S = 10.0
#: And after memory was short: one whose own memory makes it short comes and goes this seldom.
_AGAIN_AFTER_S = 60.0
#: Seconds between two looks at those who are not the mounter's own to wait for.
_LOOK_S = 0.5
#: Seconds that a daemon may take to end which has nothing more to do.
_RETIRE_S = 15.0


class Crew:
    """Starts them, waits for them.

    Args:
        memories: descriptors of what outlives a daemon.
        first: the daemon that serves first; it was not started here.
        clock: seconds, from anywhere.

    Attributes:
        memories: as they were given.
        serving: the daemon that has the device, or will have it next; None between two.
        facts: what the first one found out; None until it is ready.
        is_to_blame: the last one that had the device died by its own fault, in something that it was asked for.
    """

    def __init__(self, hello: Hello, memories: Sequence[int], first: Offspring, clock: Callable[[], float]) -> None:
        self._hello = hello
        self.memories = memories
        self._clock = clock
        self.facts: dict[str, Any] | None = None
        self.is_to_blame = False
        first.called_at = clock()
        self.serving: Offspring | None = first
        self._next_at = 0.0
        self._pauses = Pauses()
        self.standby: Offspring | None = None
        self._standby_at = math.inf
        self._standby_pauses = Pauses()
        self._retired: list[tuple[Offspring, float]] = []

    @property
    def members(self) -> list[Offspring]:
        """All of them."""
        current = [each for each in (self.serving, self.standby) if each is not None]
        return current + [each for each, _ in self._retired]

    @property
    def filenos(self) -> list[int]:
        """Where somebody may say something."""
        return [each.channel.fileno() for each in self.members if each.channel is not None]

    @property
    def due_at(self) -> float:
        """When something is to be done here that no message and no death tells."""
        now = self._clock()
        times = [self._standby_at if self.standby is None else math.inf]
        if self.serving is None:
            times.append(min(self._next_at, now + _LOOK_S))
        if self._retired:
            times.append(now + _LOOK_S)
        return min(times)

    # -- one after the other ---------------------------------------------------------------

    def bury(self, code: int) -> None:
        """The one that serves has ended, and should not have."""
        dead = self.serving
        if dead is None:
            return
        dead.hang_up()
        self.serving = None
        if dead.had_device:
            self.is_to_blame = dead.is_condemned or is_own_fault(code)
        now = self._clock()
        served_s = 0.0 if dead.serving_since is None else now - dead.serving_since
        pause_s = self._pauses.after(served_s)
        self._next_at = now + pause_s
        when = f" in {pause_s:g} s" if pause_s else ""
        log.warning("process %d %s; another takes the mount over%s", dead.pid, say_cause(code), when)

    def promote(self) -> Offspring | None:
        """Who serves next: the standby, or a new process; None while it is too early for one, or impossible."""
        if self._clock() >= self._next_at:
            self.serving, self.standby = self.standby or self._start(), None
            if self.serving is not None:
                self.serving.called_at = self._clock()
        return self.serving

    def retire(self) -> None:
        """The one that serves does so no longer; it ends by itself, or is killed."""
        if self.serving is not None:
            if self.serving.had_device:
                self.is_to_blame = self.serving.is_condemned
            self._retired.append((self.serving, self._clock() + _RETIRE_S))
            self.serving = None
            self._next_at = self._clock()

    # -- the standby -----------------------------------------------------------------------

    def plan_standby(self, *, is_urgent: bool) -> None:
        """From now on there is one, as soon as it is needed or after a while."""
        self._standby_at = self._clock() + (0.0 if is_urgent else _STANDBY_AFTER_S)

    def renew_standby(self) -> Offspring | None:
        """A standby of whatever code is installed now; None when no process can be started."""
        self.drop_standby()
        self.standby = self._start()
        return self.standby

    def drop_standby(self) -> None:
        """There is none, until one is planned."""
        self._standby_at = math.inf
        if self.standby is not None:
            self.standby.hang_up()
            self.standby.send(signal.SIGKILL)
            self._retired.append((self.standby, self._clock()))
            self.standby = None

    def make_room(self, *, is_needed: bool) -> None:
        """Memory is short, so nobody stands by; or it is not, and somebody may after a while."""
        if is_needed:
            self.drop_standby()
        elif self.standby is None:
            self._standby_at = self._clock() + _AGAIN_AFTER_S

    def tend(self) -> None:
        """Start what is due, wait for what has ended."""
        if self.standby is None:
            if self.serving is not None and self._clock() >= self._standby_at:
                self._standby_at = math.inf
                self.standby = self._start()
        else:
            code = self.standby.exit_code()
            if code is not None:
                self._lose_standby(self.standby, code)
        for each, until in list(self._retired):
            if each.exit_code() is not None:
                each.hang_up()
                self._retired.remove((each, until))
            elif self._clock() >= until:
                each.send(signal.SIGKILL)

    def _lose_standby(self, standby: Offspring, code: int) -> None:
        standby.hang_up()
        self.standby = None
        pause_s = max(1.0, self._standby_pauses.after(0.0))
        self._standby_at = self._clock() + pause_s
        log.error(
            "process %d, the standby, %s: if the daemon dies now, calls wait until another can be started; "
            "%s; next try in %g s",
            standby.pid, say_cause(code),
            standby.reason or "see the lines above, and whether s3mount is installed properly", pause_s,
        )  # fmt: skip

    def _start(self) -> Offspring | None:
        """A later daemon, told what the first one found out."""
        try:
            daemon = Offspring.start(self._hello.arguments)
        except OSError as error:
            self._next_at = self._standby_at = self._clock() + max(1.0, self._pauses.after(0.0))
            log.error("no daemon can be started: %s", error)  # noqa: TRY400  the errno says it all
            return None
        daemon.tell("take over", self.memories, hello=vars(self._hello), facts=self.facts)
        return daemon

    def hand_on(self, number: int) -> None:
        """A signal for the one that serves, as soon as it knows what to do with it."""
        if self.serving is not None and self.serving.serving_since is not None:
            self.serving.send(number)

    def stop(self, number: int) -> None:
        """Hand a signal on to the one that serves; nobody follows it."""
        self.drop_standby()
        if self.serving is not None:
            self.serving.send(number)

    def close(self) -> None:
        """Nobody is left, but who cannot be killed."""
        self.drop_standby()
        self.retire()
        for each, _ in self._retired:
            each.send(signal.SIGKILL)
