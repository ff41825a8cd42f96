"""S3 goes away under a mount and comes back, or throttles several mounts at once."""

import hashlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from s3mount.units import MIB
from tests.mount import readers
from tests.mount.test_unmounting import is_waiting
from tests.support.content import make_content
from tests.support.mounts import aws_environment, mounted, run_command
from tests.support.processes import wait_until
from tests.support.proxy import Fault, Proxy, Request, error_answer, proxy
from tests.support.servers import Server
from tests.support.throttle import TokenBucket

pytestmark = [pytest.mark.mount, pytest.mark.server]

_LARGE = make_content("outage", 64 * MIB)
#: One kind of S3's absence each: it closes connections, it fails, it says that it is too busy.
_ABSENCES = {
    "closed": Fault(drop=True),
    "500": Fault(answer=error_answer(500, "InternalError")),
    "503": Fault(answer=error_answer(503, "SlowDown")),
}
#: Seconds; noticed after 5, and probes are at most 5 apart.
_LONG_S = 12.0
_MOUNTS, _FILES = 4, 200


@pytest.fixture(scope="module")
def bucket(weed: Server) -> str:
    """A file of eight GETs, and a directory of small ones for each of several mounts."""
    name = weed.make_bucket()
    weed.client.put_object(Bucket=name, Key="large", Body=_LARGE)
    for number in range(_MOUNTS * _FILES):
        key = f"small-{number % _MOUNTS}/{number:03}"
        weed.client.put_object(Bucket=name, Key=key, Body=key.encode())
    return name


def _digest_of(directory: int) -> str:
    keys = [f"small-{directory}/{number:03}" for number in range(_MOUNTS * _FILES) if number % _MOUNTS == directory]
    return hashlib.sha256("".join(keys).encode()).hexdigest()


@pytest.fixture
def front(weed: Server) -> Iterator[Proxy]:
    """The server's proxy for one test."""
    with proxy(weed.url) as running:
        yield running


class _Away:
    """S3 is away from the second GET on, for `_LONG_S`."""

    def __init__(self, front: Proxy, fault: Fault) -> None:
        self.begun = threading.Event()
        self.refused = 0
        self._fault = fault
        self._gets = 0
        self._until = float("inf")
        self._lock = threading.Lock()
        front.decide = self._decide

    def _decide(self, request: Request) -> Fault | None:
        with self._lock:
            now = time.perf_counter()
            self._gets += request.method == "GET" and not request.is_list
            if self._gets == 2 and not self.begun.is_set():
                self._until = now + _LONG_S
                self.begun.set()
            if not self.begun.is_set() or now >= self._until:
                return None
            self.refused += 1
            return self._fault


@pytest.mark.parametrize("absence", _ABSENCES)
def test_an_outage_in_the_middle_of_a_file(front: Proxy, bucket: str, work: Path, absence: str) -> None:
    """A read waits while S3 does not answer, 90 s at most, and gets its bytes: no program sees an error.

    The log has one WARNING when an outage is noticed, and one INFO when it is over.
    """
    with mounted(bucket, work, url=front.url) as mount:
        away = _Away(front, _ABSENCES[absence])
        with open(mount.path / "large", "rb", buffering=0) as file:
            read = b"".join(iter(lambda: file.read(MIB), b""))
        assert away.begun.is_set()
        assert hashlib.sha256(read).digest() == hashlib.sha256(_LARGE).digest()
        assert away.refused < 150  # 8 GETs that begin, and then probes or 10 a second
        assert mount.stop() == 0
        [warning] = mount.warnings()
        assert "S3 has not answered for" in warning
        assert "(--on-outage)" in warning
        assert mount.log.count("S3 answers again") == 1


def test_error_does_not_wait(front: Proxy, bucket: str, work: Path) -> None:
    """With --on-outage error the same read is EIO after AWS_MAX_ATTEMPTS."""
    with mounted(bucket, work, "--on-outage", "error", url=front.url) as mount:
        front.decide = lambda request: None if request.is_list else _ABSENCES["500"]
        with pytest.raises(OSError, match="Input/output error"):
            (mount.path / "large").read_bytes()
        assert mount.stop() == 0
        assert "S3 has not answered" not in mount.log
        assert "asked 4 times" in mount.warnings()[0]


def test_an_outage_longer_than_the_window(front: Proxy, bucket: str, work: Path) -> None:
    """When S3 is away for longer than the window, the read fails with what S3 said, and its request id."""
    with mounted(bucket, work, "--on-outage", "wait:6", url=front.url) as mount:
        directory = os.open(mount.path, os.O_DIRECTORY)
        front.decide = lambda request: _ABSENCES["500"] if request.method == "GET" else None
        for call in (lambda: os.stat("new", dir_fd=directory), (mount.path / "large").read_bytes):
            began = time.perf_counter()
            with pytest.raises(OSError, match="Input/output error"):
                call()
            assert time.perf_counter() - began > 5
        os.close(directory)
        front.decide = None
        assert (mount.path / "large").read_bytes() == _LARGE
        assert mount.stop() == 0
        assert any("EIO: S3 answered 500 InternalError; asked" in line and "PROXY" in line for line in mount.warnings())


def test_a_killed_reader_is_gone(front: Proxy, bucket: str, work: Path) -> None:
    """A program killed while its buffered read waits for S3 is gone at once, and the mount can be stopped."""
    flags = ("--on-outage", "wait:1h", "--metadata-ttl", "indefinite")
    with mounted(bucket, work, *flags, url=front.url) as mount:
        assert "large" in os.listdir(mount.path)
        front.decide = lambda request: None if request.is_list else _ABSENCES["closed"]
        front.reset()
        reader = readers.start("read_at", mount.path / "large", str(60 * MIB), "4096")
        wait_until(lambda: front.count("GET", is_list=False) > 0, 30, "the read that fails")
        reader.kill()
        reader.communicate(timeout=60)
        assert reader.returncode == -signal.SIGKILL
        assert mount.stop() == 0


def test_readers_killed_in_any_call(front: Proxy, bucket: str, work: Path) -> None:
    """While S3 is away programs that are killed in a look-up, a listing, an open, or a direct read are gone when the
    window is over at the latest; none stays in D, and a new one gets an error.
    """
    calls = {
        "stat": ("stat", "new"),
        "list": ("ls", "small-3"),
        "open": ("cat", "small-0/000"),
        "direct": ("dd", "if=large", "iflag=direct", "bs=1M", "skip=60", "count=1", "of=/dev/null"),
    }
    with mounted(bucket, work, "--on-outage", "wait:6", url=front.url) as mount:
        assert "000" in os.listdir(mount.path / "small-0")
        with (mount.path / "large").open("rb"):
            front.decide = lambda request: _ABSENCES["closed"]
            programs = [
                subprocess.Popen(command, cwd=mount.path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                for command in calls.values()
            ]
            for program in programs:
                wait_until(lambda pid=program.pid: is_waiting(pid), 30, "a call that waits")  # type: ignore[misc]
            for program in programs:
                program.kill()
            assert [program.wait(30) for program in programs] == [-signal.SIGKILL] * len(programs)
            with pytest.raises(OSError, match="Input/output error"):
                os.stat(mount.path / "new")
        assert mount.stop() == 0


def test_nothing_is_waited_for_before_the_mount_is_there(front: Proxy, bucket: str, work: Path) -> None:
    """A start without S3 fails as ever: --on-outage is for a mount that was there."""
    front.decide = lambda request: _ABSENCES["closed"]
    (work / "mnt").mkdir()
    arguments = [bucket, str(work / "mnt"), "--endpoint-url", front.url, "--force-path-style", "--on-outage", "wait:1h"]
    result = run_command(*arguments, timeout_s=100)
    assert result.returncode == 7
    assert len(result.stderr.splitlines()) == 1


def test_four_mounts_behind_a_throttling_server(front: Proxy, bucket: str, work: Path) -> None:
    """Four mounts behind a server that takes 100 requests a second share it: no program gets an error, none starves."""
    environment = aws_environment(AWS_MAX_ATTEMPTS="10")
    limit = TokenBucket(front.decide, per_s=100.0)
    with ExitStack() as stack:
        mounts = [
            stack.enter_context(mounted(bucket, work / str(number), url=front.url, env=environment))
            for number in range(_MOUNTS)
        ]
        front.decide = limit
        programs = [
            readers.start("read_many", mount.path / f"small-{number}", "32") for number, mount in enumerate(mounts)
        ]
        wait_until(lambda: any(program.poll() is not None for program in programs), 200, "the first reader's end")
        read = [sum(key.startswith(f"small-{number}/") for key in list(limit.keys)) for number in range(_MOUNTS)]
        found = [readers.answer(program, 200) for program in programs]
        assert found == [_digest_of(number) for number in range(_MOUNTS)]
        assert limit.refused > 0
        assert min(read) > 0, read
        for mount in mounts:
            assert mount.stop() == 0
            assert mount.warnings() == []
