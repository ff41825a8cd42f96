"""Restarts on demand, and who is told what meanwhile; the daemons of these mounts are programs that wait."""

import os
import subprocess
from collections.abc import Iterator

import pytest

from s3mount.mounter.channel import Channel, Hello
from s3mount.mounter.crew import Crew
from s3mount.mounter.offspring import Offspring
from s3mount.mounter.renewal import Renewal

_HELLO = Hello(
    [], "/", "/mnt", is_foreground=True, log_directory=None, is_debug=False, is_log_off=True, hang_timeout_s=30
)


class Bench:
    """A crew, its first daemon's end of the channel, and the time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.process = subprocess.Popen(["sleep", "600"])
        ours, self.theirs = Channel.pair()
        self.daemon = Offspring(self.process.pid, ours)
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
    """One whose daemon lives; nobody is left behind."""
    made = Bench()
    yield made
    made.crew.close()
    for each in made.crew.members:
        os.waitpid(each.pid, 0)
        each.hang_up()
    made.process.wait(10)
    made.theirs.close()
    made.daemon.hang_up()


def test_only_one_that_serves_is_drained(bench: Bench) -> None:
    """A daemon that was called and does not serve yet is not told to drain, which it could not do, until it serves."""
    renewal = Renewal(bench.crew)
    renewal.begin(can_take_over=True)
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
    renewal = Renewal(bench.crew)
    renewal.begin(can_take_over=True)
    newcomer = bench.crew.standby
    bench.process.kill()
    bench.crew.bury(-9)
    assert bench.crew.promote() is newcomer
    assert newcomer is not None
    newcomer.is_prepared = True
    renewal.go_on()
    assert bench.crew.members == [newcomer]
