"""A mount whose daemons die: who they are, what they served, and a gate that holds S3's answers."""

import contextlib
import os
import re
import shutil
import threading
from pathlib import Path

from tests.support.mounts import Mount, aws_environment, children
from tests.support.processes import wait_until
from tests.support.proxy import Request

PACKAGE = Path(__file__).parents[2] / "s3mount"


class Gate:
    """A proxy's `decide` that holds GETs of content, or all that names a key, until it is opened."""

    def __init__(self) -> None:
        self.key = ""
        self.has_arrived = threading.Event()
        self.may_pass = threading.Event()

    def __call__(self, request: Request) -> None:
        is_content = request.method == "GET" and not request.is_list
        if self.key in request.target if self.key else is_content:
            self.has_arrived.set()
            self.may_pass.wait(60)


def served_by(mount: Mount) -> list[int]:
    """The daemons that took over, in order."""
    return [int(pid) for pid in re.findall(r"process (\d+) serves the mount", mount.log)]


def wait_for_takeover(mount: Mount, count: int = 1) -> int:
    """Until so many daemons took over since the start; the pid of the last."""
    wait_until(lambda: len(served_by(mount)) >= count, 60, "the takeover")
    return served_by(mount)[count - 1]


def standby_of(mount: Mount, serving: int) -> int:
    """The daemon that stands by beside the one that serves, as soon as there is one."""
    return wait_until(lambda: set(children(mount.process.pid)) - {serving}, 60, "the standby").pop()


def has_ended(mount: Mount, pid: int) -> bool:
    """Whether a daemon is gone; how many others there are is another matter: one may stand by."""
    return pid not in children(mount.process.pid)


def open_files(pid: int) -> list[tuple[Path, str]]:
    """What a process has open, by its descriptor in /proc: others are closed while one looks."""
    found = []
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append((each, os.readlink(each)))
    return found


def is_prepared(pid: int) -> bool:
    """Whether a later daemon waits for its turn: the CRT's threads come last."""
    try:
        return len(os.listdir(f"/proc/{pid}/task")) > 2 and Path(f"/proc/{pid}/wchan").read_text() == "do_epoll_wait"
    except OSError:
        return False


class Installation:
    """A copy of the program that the mount runs, and that a test can break and mend."""

    def __init__(self, directory: Path) -> None:
        self._tree = directory / "tree" / "s3mount"
        self._broken = self._tree / "cli" / "successor.py"
        shutil.copytree(PACKAGE, self._tree, ignore=shutil.ignore_patterns("__pycache__"))
        self._text = self._broken.read_text(encoding="utf-8")
        self.env = aws_environment(PYTHONPATH=str(directory / "tree"))

    def break_it(self) -> None:
        """No later daemon can start."""
        self._broken.write_text("import sys\nsys.exit(3)\n", encoding="utf-8")

    def have_it_hang(self) -> None:
        """A later daemon stops itself when it is to serve."""
        tenant = self._tree / "daemon" / "tenant.py"
        text = tenant.read_text(encoding="utf-8")
        stopping = 'self._say("ready", status=status, region=region, started_s=self.started_s)'
        assert stopping in text
        tenant.write_text(text.replace(stopping, f"{stopping}; os.kill(os.getpid(), 19)"), encoding="utf-8")

    def mend(self) -> None:
        """As it was."""
        self._broken.write_text(self._text, encoding="utf-8")
