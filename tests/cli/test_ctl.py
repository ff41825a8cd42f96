"""`s3mountctl` without a mount: what it says to a daemon, and what it shows of the answers."""

import json
import os
import pty
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from s3mount.cli.client import ask
from s3mount.cli.display import PlainLines
from s3mount.cli.mounts import NotThere
from s3mount.cli.tables import cache_lines, format_age, result_line, upload_line, warm_line
from s3mount.units import MIB
from tests.support.ctl import run_ctl

EVIL = "a\x1b[31m\nb\x07"
WARM: dict[str, Any] = {
    "files": 10, "n_bytes": 10 * MIB, "is_listed": True, "done_files": 4, "done_bytes": 4 * MIB, "cached_files": 2,
    "cached_bytes": 2 * MIB, "failed": 0, "left_out": 0, "elapsed_s": 2.0,
}  # fmt: skip


@contextmanager
def daemon(work: Path, behave: Callable[[socket.socket], None]) -> Iterator[Path]:
    """Something that accepts one connection."""
    path = work / "sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, suppress(BrokenPipeError):  # the client has what it wants
                behave(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield path
        thread.join()


def test_events_come_as_they_are(work: Path) -> None:
    """A client gets each event up to the last, whatever pieces they come in, and sends what it was told."""
    heard = []

    def behave(connection: socket.socket) -> None:
        heard.append(json.loads(connection.makefile().readline()))
        text = b'{"event": "progress"}\n{"event": "result", "path": "\\udcff"}\n{"event": "late"}\n'
        for at in range(0, len(text), 7):
            connection.sendall(text[at : at + 7])

    with daemon(work, behave) as path:
        events = list(ask(path, "warm", {"paths": ["\udcff"]}))
    assert heard == [{"verb": "warm", "args": {"paths": ["\udcff"]}}]
    assert events == [{"event": "progress"}, {"event": "result", "path": "\udcff"}]


def test_a_daemon_that_goes_away(work: Path) -> None:
    """A daemon that ends in the middle, one that is silent and one that is not there are each told as such."""

    def behave(connection: socket.socket) -> None:
        connection.makefile().readline()
        connection.sendall(b'{"event": "progress"}\n')

    def stop_short(connection: socket.socket) -> None:
        connection.makefile().readline()
        connection.sendall(b'{"event": "progress"}\n{"event": "res')

    for each in (behave, stop_short):
        with daemon(work, each) as path, pytest.raises(NotThere, match="went away"):
            list(ask(path, "warm", {}))
        last = path.rename(work / "last")
    path = last
    with pytest.raises(NotThere, match="does not answer: Connection refused"):
        list(ask(path, "warm", {}))
    path.unlink()
    is_over = threading.Event()
    with daemon(work, lambda _: is_over.wait() and None) as path:
        with pytest.raises(NotThere, match=r"has not answered for 0\.2 s"):
            list(ask(path, "warm", {}, silence_s=0.2))
        is_over.set()


def test_nothing_heavy_is_imported() -> None:
    """Starting the command imports click and nothing else that is not the standard library's or its own."""
    script = (
        "import sys; before = set(sys.modules); import s3mount.cli.ctl\n"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert set(found.stdout.split()) - sys.stdlib_module_names == {"s3mount", "click"}


def test_lines_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    """What a terminal would obey, or what would look like another line, is printed escaped."""
    PlainLines("warm").line([f"{EVIL}: gone"], {}, is_error=True)
    assert capsys.readouterr().err == "a\\x1b[31m\\nb\\x07: gone\n"


def test_progress_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal progress is a line now and then, not one for each event."""
    now = [0.0]
    display = PlainLines("warm", lambda: now[0])
    for _ in range(100):
        now[0] += 0.25
        display.progress(WARM)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0].endswith("4 of 10 files, 4 MiB of 10 MiB on disk; 2 files there before; 1 MiB/s, 6 s to go")


def test_a_bar_on_a_terminal() -> None:
    """On a terminal there is a bar with the share, the rate and the time left; failures stand above it, escaped."""
    script = (
        "import sys\nfrom s3mount.cli.display import display_for\n"
        f"with display_for('warm', as_json=False) as display:\n    event = {WARM!r}\n"
        f"    display.progress(event)\n    display.line([{EVIL!r} + ': gone'], event, is_error=True)\n"
        "    display.progress(event)\n    display.line(['done'], event)\n"
    )
    reading, terminal = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
    process = subprocess.Popen([sys.executable, "-c", script], stderr=terminal, stdout=subprocess.PIPE, env=env)
    os.close(terminal)
    shown = b""
    try:
        while piece := os.read(reading, 65536):
            shown += piece
    except OSError:
        pass  # the terminal's other end is closed
    os.close(reading)
    result, _ = process.communicate()
    text = shown.decode()
    assert (process.returncode, result) == (0, b"done\n")
    assert "40%" in text
    assert "1 MiB/s, 6 s to go" in text
    assert "a\\x1b[31m\\nb\\x07: gone" in text
    assert "\x1b[31m\n" not in text
    assert "\x07" not in text


def test_results_in_words() -> None:
    """Each result says what was done and what was not; sizes and ages have units."""
    facts = WARM | {"failed": 3, "left_out": 2, "is_listed": False}
    assert warm_line(facts) == (
        "4 of at least 10 files, 4 MiB of at least 10 MiB on disk; 2 files there before, 3 failed, 2 left out"
    )
    assert result_line("evict", {"bytes": 3 * MIB}) == "3 MiB removed"
    assert result_line("evict", {"blocks": 7, "files": 3, "failed": 1}) == "7 blocks of 3 files removed, 1 failed"
    assert result_line("refresh", {}) == "done"
    assert result_line("uploads", {"uploads": 3, "aborted": 2, "failed": 1}).endswith("left, 2 aborted, 1 failed")
    left = {"key": "a/b", "age_s": 7200, "upload_id": "x7", "is_aborted": True}
    assert upload_line(left) == "a/b  2.0 h  x7  aborted"
    assert [format_age(seconds) for seconds in (5, 90, 7200, 200_000)] == ["5 s", "1.5 min", "2.0 h", "2.3 d"]
    counters = dict.fromkeys(("written", "evicted", "dropped", "refused", "corrupt", "bypassed", "late"), 0)
    directory = {
        "path": "/c", "n_bytes": MIB, "blocks": 3, "hits": 9, "misses": 1, "hit_rate": 0.9, "errors": {"read EIO": 2},
        "level": None, **counters,
    }  # fmt: skip
    text = "\n".join(cache_lines({"directories": [directory]}))
    assert "1 MiB in 3 blocks" in text
    assert "9 of 10 reads (90.0%)" in text
    assert "does not answer" in text
    assert "2 read EIO" in text


@pytest.mark.parametrize("arguments", [["warm"], ["cache", "/", "nonsense"], ["evict", "/", "x", "--all"], ["nothing"]])
def test_usage(arguments: list[str]) -> None:
    """What cannot be meant ends the command with 2 and a hint."""
    ran = run_ctl(*arguments)
    assert ran.returncode == 2
    assert "Usage: s3mountctl" in ran.stderr


def test_the_list_of_commands_is_readable() -> None:
    """On a terminal of 80 columns the help says of each command in whole words what it does."""
    shown = run_ctl("--help").stdout.partition("Commands:")[2].splitlines()
    assert len([line for line in shown if line]) == 13
    assert not [line for line in shown if "..." in line]
