"""Who is to blame for a death, by real processes that do nothing."""

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from s3mount.mounter.channel import Channel, Hello
from s3mount.mounter.crew import Crew
from s3mount.mounter.offspring import Offspring

_HELLO = Hello([], "/", "/mnt", True, None, False, True, 30.0)  # noqa: FBT003


class Bench:
    """A crew whose first daemon has the device, and the time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.process = subprocess.Popen(["sleep", "600"])
        ours, self.theirs = Channel.pair()
        self.daemon = Offspring(self.process.pid, ours)
        self.daemon.had_device = True
        self.crew = Crew(_HELLO, [], self.daemon, lambda: self.now)


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
