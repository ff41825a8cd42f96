"""What a line of the log says in each format, and what is left out of many that are alike."""

import io
import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from s3mount.errors import StoreFailure
from s3mount.journal import is_journal
from s3mount.log_limits import BURST, WINDOW_S, LogLimit
from s3mount.log_lines import JsonLines, TextLines, facts_of, journal_entry
from s3mount.logs import LogConfig, logging_to
from tests.support.namespaces import in_namespace, over

FAILURE = StoreFailure("S3 failed", bucket="b", key="k\n\x1b[31m", operation="GetObject", request_id="ID1")


def record(level: int, words: str, *args: object, **extra: object) -> logging.LogRecord:
    return logging.getLogger("s3mount.test").makeRecord("s3mount.test", level, "f", 1, words, args, None, extra=extra)


def with_facts(each: logging.LogRecord) -> Any:
    each.facts = facts_of(each)
    return each


def lines_of(directory: Path) -> list[str]:
    (path,) = directory.iterdir()
    return path.read_text(encoding="utf-8").splitlines()


def test_the_facts_of_an_error() -> None:
    """A line about an error of S3 has operation, bucket, key and request id beside it, and the errno a program got."""
    each = record(logging.WARNING, "%s: %s", "read", FAILURE, call="read", errno="EIO")
    assert facts_of(each) == {
        "operation": "GetObject", "bucket": "b", "key": "k\n\x1b[31m", "request_id": "ID1", "call": "read",
        "errno": "EIO",
    }  # fmt: skip
    assert facts_of(record(logging.INFO, "%d bytes", 3)) == {}


def test_json() -> None:
    """A line of JSON is one line and one object, whatever is in a key, with level, time, logger, message and facts."""
    line = JsonLines().format(with_facts(record(logging.WARNING, "%s", FAILURE, errno="EIO")))
    assert "\n" not in line
    assert "\x1b" not in line
    found = json.loads(line)
    assert (found["level"], found["logger"], found["errno"], found["key"]) == (
        "WARNING",
        "s3mount.test",
        "EIO",
        FAILURE.key,
    )
    assert found["message"] == str(FAILURE)
    assert found["time"].endswith("+00:00")


def test_a_journal_entry() -> None:
    """An entry has its priority and facts as fields; a value with a newline is given with its length."""
    entry = journal_entry(with_facts(record(logging.ERROR, "%s", FAILURE, call="read")))
    lines = entry.split(b"\n")
    assert b"PRIORITY=3" in lines
    assert b"S3MOUNT_REQUEST_ID=ID1" in lines
    assert b"S3MOUNT_CALL=read" in lines
    assert b"SYSLOG_IDENTIFIER=s3mount" in lines
    value = b"k\n\x1b[31m"
    assert b"S3MOUNT_KEY\n" + len(value).to_bytes(8, "little") + value + b"\n" in entry


def test_a_priority_before_every_line() -> None:
    """On the journal's stderr each line has its priority before it, those of a traceback, too."""
    each = record(logging.WARNING, "a\nb")
    each.trace = "c"
    assert [line[:3] for line in TextLines(has_priority=True).format(each).split("\n")] == ["<4>"] * 3


def test_which_file_is_the_journal(work: Path) -> None:
    """Only the very file that systemd names is the journal."""
    with (work / "f").open("w") as file:
        found = os.fstat(file.fileno())
        assert is_journal(file.fileno(), f"{found.st_dev}:{found.st_ino}")
        assert not is_journal(file.fileno(), f"{found.st_dev}:{found.st_ino + 1}")
        assert not is_journal(file.fileno(), "")


SAY = """
import logging, sys
from s3mount.errors import StoreFailure
from s3mount.logs import LogConfig, logging_to
with logging_to(LogConfig(None, journal_stream=sys.argv[1]), is_foreground=True) as log:
    assert log.descriptor == 2
    log = logging.getLogger("s3mount.x")
    log.warning("%s", StoreFailure("no", key="k", request_id="R"), extra={"errno": "EIO"})
    log.info("x" * 1_000_000)
"""


def test_the_journal_gets_entries(work: Path) -> None:
    """Where stderr is the journal, entries with fields go to its socket, long ones cut, and nothing to stderr."""
    (work / "say.py").write_text(SAY)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.bind(str(work / "journal"))
        journal.settimeout(30)
        there = "/run/systemd/journal/socket"
        script = f"mkdir -p /run/systemd/journal && touch {there}\n{over(work / 'journal', there)}"
        command = f'exec 2>{work}/stderr; {sys.executable} {work}/say.py "$(stat -L -c %d:%i /dev/stderr)"\n'
        result = in_namespace(f"mount -t tmpfs tmpfs /run\n{script}{command}")
        assert result.returncode == 0, (work / "stderr").read_text()
        first, second = journal.recv(1 << 20).split(b"\n"), journal.recv(1 << 20)
    assert {b"PRIORITY=4", b"S3MOUNT_KEY=k", b"S3MOUNT_REQUEST_ID=R", b"S3MOUNT_ERRNO=EIO"} <= set(first)
    assert second.startswith(b"MESSAGE=xxx")
    assert 1000 < len(second) < 100_000
    assert (work / "stderr").read_text() == ""


class Timer:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_many_alike_are_few_lines() -> None:
    """Of a cause some lines are admitted, the rest is counted and told once when its time is over."""
    timer = Timer()
    limit = LogLimit(timer)
    admitted = [limit.admits(record(logging.WARNING, "%s", StoreFailure(str(number)))) for number in range(100)]
    assert admitted == [True] * BURST + [False] * (100 - BURST)
    assert list(limit.due()) == []
    timer.now = WINDOW_S
    limit.check_invariants()
    assert [(each.n_lines, each.words) for each in limit.due()] == [(100 - BURST, "%s")]
    assert list(limit.due()) == []
    assert limit.admits(record(logging.WARNING, "%s", StoreFailure("again")))
    assert list(limit.rest()) == []


def test_causes_are_told_apart() -> None:
    """Another message, errno or kind of error is another cause; what only informs, and debugging, is not limited."""
    limit = LogLimit(Timer())
    for number in range(BURST):
        assert limit.admits(record(logging.WARNING, "%d", number))
    assert not limit.admits(record(logging.WARNING, "%d", 5))
    assert limit.admits(record(logging.WARNING, "%d more", 5))
    assert limit.admits(record(logging.WARNING, "%d", 5, errno="EIO"))
    assert limit.admits(record(logging.ERROR, "%d", 5))
    for level, extra in ((logging.INFO, {}), (logging.DEBUG, {"errno": "ENOENT"})):
        assert all(limit.admits(record(level, "the same", **extra)) for _ in range(100))


def test_causes_are_bounded() -> None:
    """A hundred thousand causes do not fill the memory, and what was left out of one is told all the same."""
    limit = LogLimit(Timer())
    for _ in range(BURST + 5):
        limit.admits(record(logging.WARNING, "flood"))
    for number in range(5000):
        limit.admits(record(logging.WARNING, f"cause {number}"))
    assert len(limit._windows) <= 1001
    assert [each.n_lines for each in limit.rest()] == [5]


@pytest.fixture
def quiet_root() -> Iterator[None]:
    """The root logger as it was."""
    level = logging.getLogger().level
    yield
    logging.getLogger().setLevel(level)


def test_what_was_left_out_is_in_the_log(work: Path, quiet_root: None) -> None:
    """A hundred failures of one cause are ten lines and one that says ninety were left out."""
    with logging_to(LogConfig(work / "log"), is_foreground=True):
        for number in range(100):
            logging.getLogger("s3mount.x").warning("failed: %d", number)
    lines = lines_of(work / "log")
    assert len(lines) == BURST + 1
    assert lines[-1].endswith(f"WARNING s3mount.x: {100 - BURST} more lines were left out: failed: %d")


def test_a_file_is_opened_anew(work: Path, quiet_root: None) -> None:
    """After the file was moved away and the log told so, lines go to a new one of that name; the descriptor stays."""
    with logging_to(LogConfig(work / "log"), is_foreground=True) as log:
        descriptor = log.descriptor
        assert descriptor is not None
        (path,) = (work / "log").iterdir()
        path.rename(work / "old")
        log.reopen()
        logging.getLogger("s3mount.x").info("after")
        os.write(descriptor, b"past the log\n")
    lines = lines_of(work / "log")
    assert sorted(line.rpartition(" ")[2] for line in lines) == ["after", "log"]
    assert (work / "old").read_text() == ""


def test_a_directory_that_is_gone_keeps_the_old_file(work: Path, quiet_root: None) -> None:
    """Where no new file can be made the old one goes on, and says so."""
    with logging_to(LogConfig(work / "log"), is_foreground=True) as log:
        (work / "log").rename(work / "moved")
        log.reopen()
    assert "goes on in its old file" in lines_of(work / "moved")[0]


def test_levels_in_turn(work: Path, quiet_root: None) -> None:
    """The level goes from info to debug to warning to info, and each change is a line."""
    with logging_to(LogConfig(work / "log"), is_foreground=True) as log:
        for expected in ("debug", "warning", "info"):
            log.cycle_level()
            assert log.level == expected
    assert [line.rpartition(" ")[2] for line in lines_of(work / "log")] == ["debug", "warning", "info"]


def test_json_has_tracebacks() -> None:
    """A traceback is a field of its line, so that the log stays one object a line."""
    script = (
        "import logging\nfrom s3mount.logs import LogConfig, logging_to\n"
        "with logging_to(LogConfig(None, is_json=True), is_foreground=True):\n    try:\n        1 / 0\n"
        "    except ZeroDivisionError:\n        logging.getLogger('x').exception('bug')\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    (line,) = map(json.loads, io.StringIO(ran.stderr))
    assert line["message"] == "bug"
    assert "ZeroDivisionError: division by zero" in line["traceback"]
