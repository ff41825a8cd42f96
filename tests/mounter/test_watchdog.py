"""When a daemon is taken to hang: real questions, by a program that a test answers for, and a clock of its own."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from s3mount.mounter.channel import Channel
from s3mount.mounter.offspring import Offspring
from s3mount.mounter.watchdog import Step, Watchdog
from tests.support.processes import wait_until

TIMEOUT_S = 30.0
#: In the place of stat(1): asks until there is an answer, or a file says that there is none to be waited for.
_STAT = """#!/bin/sh
echo >> {work}/questions
while test -e {work}/silent; do sleep 0.02; done
"""


class Bench:
    """A watchdog, a daemon that ignores signals but the last, and the time."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.now = 1000.0
        self.process = subprocess.Popen(["sh", "-c", "trap '' USR1; while :; do sleep 0.05; done"])
        ours, self.theirs = Channel.pair()
        self.daemon = Offspring(self.process.pid, ours)
        self.daemon.called_at = self.daemon.serving_since = self.now
        self.dog = Watchdog("/mnt", TIMEOUT_S, lambda: self.now)

    def look(self, after_s: float = 0.0) -> Step:
        self.now += after_s
        return self.dog.look(self.daemon)

    @property
    def questions(self) -> int:
        path = self.work / "questions"
        return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.fixture
def bench(work: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """One whose mount answers."""
    (work / "stat").write_text(_STAT.format(work=work), encoding="utf-8")
    (work / "stat").chmod(0o755)
    monkeypatch.setenv("PATH", f"{work}:/usr/bin:/bin")
    made = Bench(work)
    yield made
    made.process.kill()
    made.process.wait(10)
    made.dog.close()
    (work / "silent").unlink(missing_ok=True)
    made.theirs.close()
    made.daemon.hang_up()


def silence(bench: Bench) -> None:
    """From now on nobody answers, and somebody has asked."""
    (bench.work / "silent").touch()
    before = bench.questions
    assert bench.look(5.0) is Step.NOTHING
    wait_until(lambda: bench.questions > before, 60, "the question")


def test_a_mount_that_answers_is_asked_every_five_seconds(bench: Bench) -> None:
    """A question is asked every 5 s and no sooner, and nothing is done about answers."""
    for count in range(1, 4):
        assert bench.look(5.0) is Step.NOTHING
        wait_until(lambda expected=count: bench.questions == expected, 60, "the question")  # type: ignore[misc]
        wait_until(lambda: bench.dog._prober.silent_s() == 0.0, 60, "the answer")
        assert bench.look(1.0) is Step.NOTHING
        bench.now -= 1.0
    assert bench.questions == 3


def test_silence_is_one_question(bench: Bench) -> None:
    """While nobody answers nobody else asks."""
    silence(bench)
    for _ in range(5):
        assert bench.look(5.0) is Step.NOTHING
    assert bench.questions == 1


def test_silence_ends_in_a_kill(bench: Bench) -> None:
    """After the time-out the daemon is asked for its stacks and for reasons, and a second later it is condemned."""
    silence(bench)
    assert bench.look(TIMEOUT_S) is Step.NOTHING
    message = bench.theirs.receive()
    assert message is not None
    assert message.kind == "busy?"
    assert bench.look(0.5) is Step.NOTHING
    assert bench.look(0.5) is Step.CONDEMN


def test_a_busy_daemon_is_excused(bench: Bench) -> None:
    """One that says why it is silent gets the same time again, and no more than that."""
    silence(bench)
    bench.look(TIMEOUT_S)
    bench.dog.excuse("all its calls wait for S3")
    assert bench.look(TIMEOUT_S - 1) is Step.NOTHING
    assert bench.look(1.0) is Step.NOTHING
    assert bench.look(1.0) is Step.CONDEMN


def test_a_new_daemon_gets_its_own_time(bench: Bench) -> None:
    """The silence of the one before does not count, and one that does not come to serve gets a minute."""
    silence(bench)
    bench.look(TIMEOUT_S)
    assert bench.look(1.0) is Step.CONDEMN
    bench.daemon.called_at, bench.daemon.serving_since = bench.now, None
    assert bench.look(59.0) is Step.NOTHING
    bench.daemon.serving_since = bench.now
    assert bench.look(TIMEOUT_S - 1) is Step.NOTHING
    bench.daemon.serving_since = None
    assert bench.look(0.0) is Step.NOTHING  # suspected
    assert bench.look(1.0) is Step.CONDEMN


def test_the_fourth_in_a_row_is_hopeless(bench: Bench) -> None:
    """Three daemons are condemned without an answer between them; at the fourth it is given up."""
    silence(bench)
    for expected in [Step.CONDEMN] * 3 + [Step.GIVE_UP]:
        bench.look(TIMEOUT_S)
        assert bench.look(1.0) is expected
        bench.daemon.serving_since = bench.now


def test_an_answer_begins_a_new_row(bench: Bench) -> None:
    """An answer between two hangs is as good as new."""
    for _ in range(5):
        silence(bench)
        bench.look(TIMEOUT_S)
        assert bench.look(1.0) is Step.CONDEMN
        (bench.work / "silent").unlink()
        wait_until(lambda: bench.dog._prober.silent_s() == 0.0, 60, "the answer")
        bench.daemon.serving_since = bench.now


def test_never(bench: Bench) -> None:
    """With a time-out of 0 nobody is asked, and there is nothing to look for."""
    dog = Watchdog("/mnt", 0.0, lambda: bench.now)
    bench.now += 1000.0
    assert dog.look(bench.daemon) is Step.NOTHING
    assert bench.questions == 0
    assert dog.due_at() == float("inf")
    assert bench.process.poll() is None
    assert signal.SIGUSR1
