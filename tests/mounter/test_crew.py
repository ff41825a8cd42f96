"""The daemons of a mount, who is told what and who is to blame, by real processes that do nothing."""

import logging
import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from s3mount.logs import Log
from s3mount.mounter.channel import Channel, Hello
from s3mount.mounter.crew import Crew
from s3mount.mounter.mounter import Mounter
from s3mount.mounter.offspring import Offspring, end_of
from s3mount.mounter.renewal import Renewal
from s3mount.mounter.sdnotify import ServiceManager

_HELLO = Hello([], "/", "/mnt", True, None, False, True, 30.0)  # noqa: FBT003


class Bench:
    """A crew whose first daemon has the device, and the time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.log = Log(logging.NullHandler())
        self.process = subprocess.Popen(["sleep", "600"])
        ours, self.theirs = Channel.pair()
        self.daemon = Offspring(self.process.pid, ours)
        self.daemon.had_device = True
        self.crew = Crew(_HELLO, [], self.daemon, lambda: self.now)

    def hears(self) -> str | None:
        """What the first daemon is told next, if anything."""
        self.daemon.tell("end")
        message = self.theirs.receive()
        assert message is not None
        if message.kind == "end":
            return None
        assert self.theirs.receive() is not None
        return message.kind


@pytest.fixture
def bench() -> Iterator[Bench]:
    """Nobody is left behind."""
    made = Bench()
    yield made
    made.crew.close()
    for each in made.crew.members:
        os.waitpid(each.pid, 0)
        each.hang_up()
    made.process.kill()
    made.process.wait(10)
    made.theirs.close()
    made.daemon.hang_up()


@pytest.mark.parametrize(("code", "is_to_blame"), [(-signal.SIGSEGV, True), (-signal.SIGKILL, False)])
def test_a_start_that_fails_says_nothing_of_calls(bench: Bench, code: int, *, is_to_blame: bool) -> None:
    """What killed the last daemon that had the device stays known while later ones die before they get it."""
    bench.crew.bury(code)
    assert bench.crew.is_to_blame is is_to_blame
    for later in (1, -signal.SIGKILL):
        bench.now += 100.0
        successor = bench.crew.promote()
        assert successor is not None
        successor.send(signal.SIGKILL)
        os.waitpid(successor.pid, 0)
        bench.crew.bury(later)
        assert bench.crew.is_to_blame is is_to_blame


def test_a_standby_that_is_not_needed_is_not_waited_for(bench: Bench) -> None:
    """One that is stuck holds nobody up: it is killed, and a member until it has ended."""
    standby = bench.crew.renew_standby()
    assert standby is not None
    bench.crew.drop_standby()
    assert bench.crew.standby is None
    assert bench.crew.members == [bench.daemon, standby]
    os.waitid(os.P_PID, standby.pid, os.WEXITED | os.WNOWAIT)
    bench.crew.tend()
    assert bench.crew.members == [bench.daemon]
    assert standby.exit_code() == -signal.SIGKILL


def test_nobody_stands_by_while_memory_is_short(bench: Bench) -> None:
    """A standby goes when the daemon says that memory is short; the next comes a minute after it says it is not."""
    mounter = Mounter(_HELLO, bench.crew, ServiceManager(None), bench.log, lambda: bench.now)
    assert bench.crew.renew_standby() is not None
    bench.theirs.send("memory", is_short=True)
    mounter._listen(bench.daemon)
    assert bench.crew.standby is None
    bench.now += 1000.0
    bench.crew.tend()
    assert bench.crew.standby is None
    bench.theirs.send("memory", is_short=False)
    mounter._listen(bench.daemon)
    for after_s, is_there in [(59.0, False), (1.0, True)]:
        bench.now += after_s
        bench.crew.tend()
        assert (bench.crew.standby is not None) == is_there
    with mounter._signals:  # closes them
        pass


def test_only_one_that_serves_is_drained(bench: Bench) -> None:
    """A daemon that was called and does not serve yet is not told to drain, which it could not do, until it serves."""
    renewal = Renewal(bench.crew, ServiceManager(None))
    renewal.heed("restart", can_take_over=True)
    assert bench.crew.standby is not None
    bench.crew.standby.is_prepared = True
    renewal.go_on()
    assert bench.hears() is None
    bench.daemon.serving_since = bench.now
    renewal.go_on()
    assert bench.hears() == "drain"
    renewal.go_on()
    assert bench.hears() is None


def test_a_newcomer_that_is_called_before_it_is_asked_for(bench: Bench) -> None:
    """When the daemon dies while a new one prepares itself the new one takes over, and is not drained itself."""
    renewal = Renewal(bench.crew, ServiceManager(None))
    renewal.heed("restart", can_take_over=True)
    newcomer = bench.crew.standby
    bench.process.kill()
    bench.crew.bury(-9)
    assert bench.crew.promote() is newcomer
    assert newcomer is not None
    newcomer.is_prepared = True
    renewal.go_on()
    assert bench.crew.members == [newcomer]


def test_a_stop_waits_for_uploads(bench: Bench) -> None:
    """A daemon that says how long its stop may take is not killed before; one that says nothing, after 15 s."""
    mounter = Mounter(_HELLO, bench.crew, ServiceManager(None), bench.log, lambda: bench.now)
    mounter._obey(signal.SIGTERM)
    assert mounter._kill_at == bench.now + 15.0
    bench.theirs.send("stopping", patience_s=95.0)
    mounter._listen(bench.daemon)
    assert mounter._kill_at == bench.now + 95.0
    bench.theirs.send("stopping")
    mounter._listen(bench.daemon)
    assert mounter._kill_at == bench.now + 95.0
    with mounter._signals:  # closes them
        pass


def test_a_signal_right_after_the_start_is_handed_on(bench: Bench) -> None:
    """A daemon that has said that it is ready gets the signal, also when the mounter has not heard it yet."""
    mounter = Mounter(_HELLO, bench.crew, ServiceManager(None), bench.log, lambda: bench.now)
    bench.theirs.send("ready", status="serving", region="us-east-1", started_s=1)
    mounter._obey(signal.SIGUSR1)
    ended = os.waitid(os.P_PID, bench.process.pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None
    assert ended.si_status == signal.SIGUSR1  # it knows nothing of signals
    with mounter._signals:  # closes them
        pass


@pytest.mark.parametrize(
    ("serving_since", "code", "told"), [(1.0, 0, 0), (1.0, 9, 9), (1.0, 1, 1), (1.0, -signal.SIGKILL, 9), (None, 1, 0)]
)
def test_the_end_of_a_stop(bench: Bench, serving_since: float | None, code: int, told: int) -> None:
    """A mount that was to end ends as the daemon that served it; when that was killed first the exit code tells."""
    bench.daemon.serving_since = serving_since
    assert end_of(bench.daemon, code, is_read_only=False) == told
    assert end_of(bench.daemon, code, is_read_only=True) == max(0, code if told else 0)
