"""A daemon that is killed when S3 has done what a program asked for, and the program has no answer yet."""

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from s3mount.units import MIB
from tests.support.content import make_content
from tests.support.mounts import SOON_S, mounted
from tests.support.processes import wait_until
from tests.support.proxy import Fault, Request, proxy
from tests.support.servers import Server
from tests.support.takeover import wait_for_takeover


class LostAnswer:
    """A proxy's `decide`: the first answer to one kind of request is lost, and the request that repeats it waits.

    Attributes:
        is_wanted: which requests; None for none.
    """

    def __init__(self) -> None:
        self.is_wanted: Callable[[Request], bool] | None = None
        self.seen = 0
        self.may_pass = False
        self._lock = threading.Lock()

    def __call__(self, request: Request) -> Fault | None:
        if self.is_wanted is None or not self.is_wanted(request):
            return None
        with self._lock:
            self.seen += 1
            is_first = self.seen == 1
        if is_first:
            return Fault(lose_answer=True)
        wait_until(lambda: self.may_pass, 60, "the next daemon")
        return Fault(drop=True)


def puts(request: Request) -> bool:
    return request.method == "PUT"


def deletes(request: Request) -> bool:
    return request.method == "DELETE" or "delete" in request.target.partition("?")[2]


@pytest.mark.parametrize(
    ("call", "is_wanted", "keys"),
    [
        (lambda path: os.mkdir(path / "new"), puts, ["a", "d/f", "new/"]),
        (lambda path: os.mknod(path / "new"), puts, ["a", "d/f", "new"]),
        (lambda path: os.symlink("a", path / "new"), puts, ["a", "d/f", "new!s3mount-symlink"]),
        (lambda path: os.rename(path / "a", path / "new"), deletes, ["d/f", "new"]),
        (lambda path: os.rename(path / "d", path / "new"), deletes, ["a", "new/f"]),
    ],
    ids=["mkdir", "mknod", "symlink", "rename", "rename of a directory"],
)
def test_what_was_done_is_not_an_error(
    weed: Server, work: Path, call: Callable[[Path], None], is_wanted: Callable[[Request], bool], keys: list[str]
) -> None:
    """A daemon killed between S3's answer and its own has not failed the program: the call succeeds in the next one."""
    name = weed.make_bucket()
    for key in ("a", "d/f"):
        weed.client.put_object(Bucket=name, Key=key, Body=key.encode())
    lost = LostAnswer()
    with proxy(weed.url) as front, mounted(name, work, "--rw", url=front.url) as mount, ThreadPoolExecutor(1) as thread:
        os.listdir(mount.path)
        front.decide = lost
        lost.is_wanted = is_wanted
        asked = thread.submit(call, mount.path)
        wait_until(lambda: lost.seen >= 2, 60, "the second try")
        os.kill(mount.daemon_pid, signal.SIGKILL)
        lost.is_wanted = None
        lost.may_pass = True
        wait_for_takeover(mount)
        asked.result(60)
        wait_until(lambda: [each["Key"] for each in contents(weed, name)] == keys, SOON_S, "the objects")


def contents(server: Server, bucket: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = server.client.list_objects_v2(Bucket=bucket)["Contents"]
    return found


def test_a_reader_of_a_checkpoint_that_was_renamed(weed: Server, work: Path) -> None:
    """Written, renamed and opened to be read; the daemon dies, and the reader reads on."""
    name, content = weed.make_bucket(), make_content("checkpoint", 20 * MIB)
    with mounted(name, work, "--rw", url=weed.url) as mount:
        written, path = mount.path / "step.tmp", mount.path / "step.pt"
        written.write_bytes(content)
        written.rename(path)
        with path.open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            os.kill(mount.daemon_pid, signal.SIGKILL)
            wait_for_takeover(mount)
            assert b"".join(iter(lambda: file.read(MIB), b"")) == content
