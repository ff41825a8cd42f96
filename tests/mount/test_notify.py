"""Kernel invalidation on a real mount: it stops nothing but what it must, and the kernel does ask again."""

import contextlib
import hashlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.content import make_content
from tests.support.mounts import clean_up
from tests.support.processes import wait_until

pytestmark = pytest.mark.mount

ROOT = Path(__file__).parents[2]
#: How long a mount that hangs is waited for; for one that does not there is all the time.
HANGS_S = 1
ANSWER_S = 60
#: Larger than what `open` waits for, so that it is a read that is stalled.
LARGE = 3_000_000
#: What the stalled reader asks for, within the file's first GET.
FIRST = 512 * 1024

READER = (
    "import hashlib, os, sys\n"
    "fd = os.open(sys.argv[1], os.O_RDONLY)\n"
    f"print(hashlib.sha256(os.pread(fd, {FIRST}, 0)).hexdigest())\n"
)
OPENER = "import os, sys\nos.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)\n"


class Daemon:
    """tests/mount/notified.py, serving `path`."""

    def __init__(self, path: Path, process: subprocess.Popen[str], ending: contextlib.ExitStack) -> None:
        self.path = path
        self.process = process
        self._ending = ending
        self.device = self.next_answer()

    def command(self, line: str) -> Any:
        self.send(line)
        return self.next_answer()

    def send(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def next_answer(self, timeout_s: float = ANSWER_S) -> Any:
        """The answer to the oldest command that has none yet."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], timeout_s)[0]:
            raise TimeoutError("the daemon does not answer")
        return json.loads(self.process.stdout.readline())

    def calls(self, kind: str) -> int:
        """Calls of the kernel so far, or being answered now."""
        return int(self.command("statistics")["kernel"].get(kind, 0))

    def lists(self) -> int:
        return int(self.command("statistics")["store"].get("lists", 0))

    def stat_size(self, name: str, timeout_s: float = ANSWER_S) -> int | None:
        """The size by another process; None when it has no answer in time: it hangs then until the mount ends."""
        process = self.start("stat", "-c", "%s", self.path / name)
        try:
            out, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return None
        return int(out)

    def start(self, *command: str | Path) -> subprocess.Popen[str]:
        """A program that may hang in the mount, and so is waited for only when that has ended."""
        return self._ending.enter_context(program(*command))

    def settle(self) -> None:
        """Until the kernel has every notification."""

        def is_settled() -> bool:
            now = self.command("statistics")
            return bool(now["pending"] == now["in_hand"] == 0)

        wait_until(is_settled, ANSWER_S, "the notifications")

    def stop(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(ANSWER_S)


@contextlib.contextmanager
def notified(work: Path, *flags: str) -> Iterator[Daemon]:
    """A mount of the driver, ended with the test."""
    path = work / "mnt"
    path.mkdir()
    command = [sys.executable, "-m", "tests.mount.notified", str(path), *flags]
    with contextlib.ExitStack() as ending:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        process = ending.enter_context(subprocess.Popen(command, cwd=ROOT, text=True, start_new_session=True, **pipes))
        try:
            yield Daemon(path, process, ending)
        finally:
            if process.poll() is None:
                abort(path)
            clean_up(path, process)  # type: ignore[arg-type]


def abort(path: Path) -> None:
    """Fail every call that has no answer, so that nothing stays in state D; the mount is dead then."""
    subprocess.run(["umount", "-f", str(path)], check=False, capture_output=True)


@contextlib.contextmanager
def program(*command: str | Path) -> Iterator[subprocess.Popen[str]]:
    """A program with its output, killed at the end of the block."""
    process = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=ANSWER_S)


def stalled_read(daemon: Daemon) -> subprocess.Popen[str]:
    """A process in a buffered read of `a` that the daemon has and does not answer; `b` was never asked for."""
    daemon.command(f"put a old {LARGE}")
    daemon.command("put b seed 10")
    daemon.command("stall a")
    reader = daemon.start(sys.executable, "-c", READER, daemon.path / "a")
    wait_until(lambda: daemon.calls("reads_in_flight") > 0, ANSWER_S, "the stalled read")
    return reader


def finish(daemon: Daemon, reader: subprocess.Popen[str]) -> None:
    """The read that was stalled gives the bytes of its version, and the daemon ends as it should."""
    assert reader.poll() is None, "the read was not stalled"
    daemon.command("resume a")
    out, _ = reader.communicate(timeout=ANSWER_S)
    assert out.strip() == hashlib.sha256(make_content("old", LARGE)[:FIRST]).hexdigest()
    daemon.settle()
    assert daemon.stop() == 0


# -- a stalled read, and everything that could wait for it -------------------------------------


def expire(daemon: Daemon) -> None:
    """Stat the file until its record has expired and S3 is asked again."""
    before = daemon.lists()

    def is_asked_again() -> bool:
        assert daemon.stat_size("a") == LARGE
        return daemon.lists() > before

    wait_until(is_asked_again, ANSWER_S, "the expiry")


def evict(daemon: Daemon) -> None:
    """Make known more names than there is room for, and see that the file's record is gone."""
    for n in range(50):
        daemon.command(f"put many/{n:02} seed 10")
    listed = subprocess.run(["ls", "-l", str(daemon.path / "many")], capture_output=True, text=True, check=True)
    assert len(listed.stdout.splitlines()) == 1 + 50


def replace(daemon: Daemon) -> None:
    """Let an open with O_DIRECT find that another client replaced the file."""
    daemon.command("put a new 2000000")
    subprocess.run([sys.executable, "-c", OPENER, str(daemon.path / "a")], check=True, timeout=ANSWER_S)
    assert daemon.stat_size("a") == 2_000_000


TRIGGERS: dict[str, tuple[Callable[[Daemon], object], tuple[str, ...]]] = {
    "forget_inode": (lambda daemon: daemon.command("forget-inode a"), ()),
    "forget_name": (lambda daemon: daemon.command("forget-name a"), ()),
    "refresh": (lambda daemon: daemon.command("refresh a"), ()),
    "refresh_all": (lambda daemon: daemon.command("refresh"), ()),
    "expiry": (expire, ("--ttl", "1")),
    "eviction": (evict, ("--room", "20")),
    "replacement": (replace, ()),
}


@pytest.mark.parametrize("trigger", TRIGGERS)
def test_a_stalled_read_hangs_nobody_else(trigger: str, work: Path) -> None:
    """While a read has no answer, whatever makes the kernel forget that file leaves every other file answering."""
    act, flags = TRIGGERS[trigger]
    with notified(work, *flags) as daemon:
        reader = stalled_read(daemon)
        act(daemon)
        assert daemon.stat_size("b") == 10
        assert daemon.calls("reads_in_flight") > 0
        finish(daemon, reader)


def test_the_stall_test_sees_the_fault(work: Path) -> None:
    """A daemon that calls into the kernel on its loop hangs with the mount, and the check above sees it."""
    with notified(work, "--on-loop") as daemon:
        reader = stalled_read(daemon)
        daemon.send("forget-inode a")
        stack = Path(f"/proc/{daemon.process.pid}/stack")
        wait_until(lambda: "fuse_reverse_inval" in stack.read_text(encoding="ascii"), ANSWER_S, "the fault")
        assert daemon.stat_size("b", HANGS_S) is None
        with pytest.raises(TimeoutError):
            daemon.next_answer(HANGS_S)
        abort(daemon.path)
        assert daemon.next_answer() is None
        daemon.command("resume a")
        assert reader.wait(ANSWER_S) != 0
        daemon.stop()


@pytest.mark.parametrize("note", ["forget-inode a", "forget-name a", "refresh"])
def test_a_killed_daemon_leaves_nothing_hanging(note: str, work: Path) -> None:
    """After a note about a file whose read has no answer, kill -9 ends the daemon, and the reader gets an error."""
    with notified(work) as daemon:
        reader = stalled_read(daemon)
        daemon.command(note)
        daemon.settle()
        daemon.process.kill()
        assert daemon.process.wait(ANSWER_S) == -signal.SIGKILL
        assert reader.wait(ANSWER_S) == 1


@contextlib.contextmanager
def stuck_note(work: Path) -> Iterator[tuple[Daemon, subprocess.Popen[str]]]:
    """A note about `d/a` that waits in the kernel for a look-up of `d/x`, which the daemon has and does not answer."""
    with notified(work) as daemon:
        for key in ("d/a", "d/b", "other/c"):
            daemon.command(f"put {key} seed 10")
        assert daemon.stat_size("d/a") == 10
        daemon.command("stall list:d/x")
        lists = daemon.lists()
        lookup = daemon.start("stat", daemon.path / "d/x")
        wait_until(lambda: daemon.lists() > lists, ANSWER_S, "the stalled look-up")
        daemon.command("forget-name d/a")
        wait_until(lambda: daemon.command("statistics")["in_hand"] == 1, ANSWER_S, "the note")
        yield daemon, lookup


def test_a_note_behind_a_stalled_lookup_stops_its_directory_only(work: Path) -> None:
    """A name cannot be forgotten while its directory waits for a look-up: loop and other directories go on."""
    with stuck_note(work) as (daemon, lookup):
        assert daemon.stat_size("other/c") == 10
        assert daemon.stat_size("d/a") == 10
        assert daemon.command("statistics")["in_hand"] == 1
        daemon.command("resume list:d/x")
        assert lookup.wait(ANSWER_S) == 1
        daemon.settle()
        assert daemon.stat_size("d/b") == 10
        assert daemon.stop() == 0


def test_closing_tells_that_a_note_is_stuck(work: Path) -> None:
    """A daemon that stops with a note stuck in the kernel learns it in time to abort the connection, and ends."""
    with stuck_note(work) as (daemon, lookup):
        queued = daemon.start("stat", daemon.path / "d/b")
        assert daemon.stop() == 0
        assert lookup.wait(ANSWER_S) == queued.wait(ANSWER_S) == 1


# -- the kernel asks again ----------------------------------------------------------------------


def test_a_refresh_shows_the_new_version(work: Path) -> None:
    """With an indefinite TTL another client's version is seen after a refresh, and then at once, size and content."""
    with notified(work) as daemon:
        daemon.command("put f old 1000")
        daemon.command("put untouched seed 10")
        path = daemon.path / "f"
        assert path.read_bytes() == make_content("old", 1000)
        inode = path.stat().st_ino
        daemon.command("put f new 1500")
        assert path.stat().st_size == 1000
        assert path.read_bytes() == make_content("old", 1000)
        daemon.command("refresh f")
        daemon.settle()
        assert path.stat().st_size == 1500
        assert path.stat().st_ino != inode
        assert path.read_bytes() == make_content("new", 1500)
        assert daemon.stop() == 0


@pytest.mark.parametrize("path", ["d/f", "d", ""])
def test_a_refresh_reaches_what_is_below(path: str, work: Path) -> None:
    """A refresh of a file, of its directory, or of everything: a changed file is new and a deleted one is gone."""
    with notified(work) as daemon:
        daemon.command("put d/f old 1000")
        daemon.command("put d/stays seed 10")
        mounted = daemon.path / "d/f"
        assert mounted.stat().st_size == 1000
        daemon.command("put d/f new 1500")
        daemon.command(f"refresh {path}".rstrip())
        daemon.settle()
        assert mounted.stat().st_size == 1500
        daemon.command("delete d/f")
        assert mounted.exists()
        daemon.command(f"refresh {path}".rstrip())
        daemon.settle()
        with pytest.raises(FileNotFoundError):
            mounted.stat()
        assert (daemon.path / "d/stays").stat().st_size == 10
        assert daemon.stop() == 0


def test_a_refresh_shows_a_new_name_in_a_listed_directory(work: Path) -> None:
    """A directory that was listed is known for good, until a refresh: then the new file is in it."""
    with notified(work) as daemon:
        daemon.command("put d/a seed 10")
        assert os.listdir(daemon.path / "d") == ["a"]
        daemon.command("put d/b seed 10")
        assert os.listdir(daemon.path / "d") == ["a"]
        daemon.command("refresh d")
        daemon.settle()
        assert sorted(os.listdir(daemon.path / "d")) == ["a", "b"]
        assert daemon.stop() == 0


@pytest.mark.parametrize(
    ("name", "commands"),
    [
        ("missing", ["refresh missing"]),
        ("missing", ["refresh"]),
        ("d/missing", ["refresh d/missing"]),
        ("d/missing", ["refresh d"]),
        ("d/missing", ["refresh"]),
    ],
)
def test_the_kernel_keeps_an_absence_until_a_refresh(name: str, commands: list[str], work: Path) -> None:
    """A missing name reaches the daemon once, however often it is probed; after a refresh it is asked for again."""
    with notified(work) as daemon:
        daemon.command("put d/other seed 10")
        path = daemon.path / name
        assert not path.exists()
        asked = daemon.calls("lookups")
        for _ in range(3):
            assert not path.exists()
        assert daemon.calls("lookups") == asked
        daemon.command(f"put {name} seed 10")
        assert not path.exists()
        assert daemon.calls("lookups") == asked
        for command in commands:
            daemon.command(command)
        daemon.settle()
        assert path.stat().st_size == 10
        assert daemon.calls("lookups") > asked
        assert daemon.stop() == 0


def test_a_name_that_was_forgotten_is_asked_for_again(work: Path) -> None:
    """A note about a name, present or absent, makes the kernel ask the daemon, which still knows the answer itself."""
    with notified(work) as daemon:
        daemon.command("put f seed 10")
        for name in ("f", "missing"):
            (daemon.path / name).exists()
            asked, lists = daemon.calls("lookups"), daemon.lists()
            daemon.command(f"forget-name {name}")
            daemon.settle()
            assert (daemon.path / name).exists() == (name == "f")
            assert daemon.calls("lookups") == asked + 1
            assert daemon.lists() == lists
        assert daemon.stop() == 0
