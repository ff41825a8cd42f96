"""The service manager's protocol on real datagram sockets, alone and through the command."""

import contextlib
import math
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from s3mount.daemon.exits import ExitCode
from s3mount.mounter.keeping import kept
from s3mount.mounter.sdnotify import ServiceManager, take_kept
from tests.support.ctl import COMMAND as CTL
from tests.support.mounts import aws_environment, is_mounted, mounted
from tests.support.processes import wait_until
from tests.support.proxy import error_answer
from tests.support.refusals import refusal
from tests.support.scripted import ScriptedBucket, scripted

BUCKET = "scripted-bucket"


@contextlib.contextmanager
def manager_at(address: str) -> Iterator[socket.socket]:
    """What systemd does: a datagram socket at this NOTIFY_SOCKET."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind("\0" + address[1:] if address.startswith("@") else address)
        sock.settimeout(30)
        yield sock


def addresses(work: Path) -> list[str]:
    """Both forms of sd_notify(3): a path, and a name in the abstract namespace."""
    return [str(work / "notify"), f"@s3mount-test-{os.urandom(8).hex()}"]


def said(sock: socket.socket) -> bytes:
    """The next message that is not about descriptors to keep (tests/mount/test_kept.py)."""
    while True:
        message = sock.recv(4096)
        if not message.startswith((b"FDSTORE", b"STATUS")):
            return message


def is_silent(sock: socket.socket) -> bool:
    """Whether nothing is waiting to be received."""
    sock.setblocking(False)  # noqa: FBT003
    try:
        said(sock)
    except BlockingIOError:
        return True
    return False


@pytest.mark.parametrize("form", [0, 1], ids=["path", "abstract"])
def test_messages(work: Path, form: int) -> None:
    """READY with a status line and STOPPING arrive as one datagram each."""
    address = addresses(work)[form]
    with manager_at(address) as sock:
        manager = ServiceManager(address)
        manager.ready("serving s3://bücket/")
        manager.stopping()
        assert said(sock).decode() == "READY=1\nSTATUS=serving s3://bücket/"
        assert said(sock) == b"STOPPING=1"
        assert is_silent(sock)


@pytest.mark.parametrize("address", [None, "", "/nonexistent/notify", "@s3mount-nobody"])
def test_no_manager(address: str | None) -> None:
    """Without a manager, or with one that is gone, nothing happens."""
    manager = ServiceManager(address)
    manager.ready("serving")
    manager.stopping()


def test_signs_of_life(work: Path) -> None:
    """Three in the time after which one must have come, on the caller's clock; none from a service that is not well."""
    address = addresses(work)[0]
    with manager_at(address) as sock:
        manager = ServiceManager(address, "6000000", str(os.getpid()))
        assert manager.beat_every_s == 2
        for now, is_well in ((100.0, True), (101.9, True), (102.0, True), (104.0, False), (106.0, True)):
            manager.beat(now, is_well=is_well)
        assert [said(sock) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        assert is_silent(sock)


@pytest.mark.parametrize("usec", [None, "", "0", "-1", "²", "1e6", "9" * 5000])
@pytest.mark.parametrize("pid", [None, "7"])
def test_nobody_listens_for_signs_of_life(work: Path, usec: str | None, pid: str | None) -> None:
    """What is no time, or is meant for another process, asks for none."""
    manager = ServiceManager(str(work / "nobody"), "6000000" if pid else usec, pid)
    assert manager.beat_at == manager.beat_every_s == math.inf


HOSTILE = ["", "-1", "0", "²", "1e3", "9" * 5000, "x", "1 2"]


@pytest.mark.parametrize("count", [*HOSTILE, "1000000"])
def test_descriptors_that_nobody_passed(count: str) -> None:
    """A LISTEN_FDS that is no number, or counts what is not open, gives no descriptor and no error."""
    environ = {"LISTEN_PID": "7", "LISTEN_FDS": count, "LISTEN_FDNAMES": ":".join(f"n{n}" for n in range(70_000))}
    taken = take_kept(environ, 7)
    assert environ == {}
    assert all(os.fstat(fd) for fd in taken.values())
    assert (taken == {}) == (count in HOSTILE)


def test_descriptors_that_are_meant_for_another() -> None:
    """A process that inherited the variables takes nothing."""
    assert take_kept({"LISTEN_PID": "8", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "s3mount-device"}, 7) == {}


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b'{"mount_point": "/"}', b'{"mount_point": 1, "offer": 2, "facts": 3}']
)
def test_what_was_kept_and_makes_no_sense(work: Path, text: bytes) -> None:
    """Facts that cannot be read are a mount that is ended: every descriptor is closed."""
    device, writer = os.pipe()
    os.close(writer)
    facts = os.memfd_create("facts")
    os.write(facts, text)
    record = os.memfd_create("record")
    named = {"s3mount-device": device, "s3mount-facts": facts, "s3mount-record-1": record}
    assert kept(named, str(work / "mnt")) is None
    for fd in named.values():
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


@pytest.mark.mount
@pytest.mark.parametrize("form", [0, 1], ids=["path", "abstract"])
def test_the_service_is_ready_when_the_mount_answers(work: Path, form: int) -> None:
    """At READY=1 the mount can be read at once; STOPPING=1 follows on SIGTERM; nothing else is said of the service."""
    address = addresses(work)[form]
    bucket = ScriptedBucket(BUCKET)
    bucket.objects["a.txt"] = b"hello"
    env = aws_environment(NOTIFY_SOCKET=address)
    with manager_at(address) as sock, scripted(bucket) as server:
        with mounted(BUCKET, work, url=server.url, env=env) as mount:
            assert said(sock).decode() == f"READY=1\nSTATUS=serving s3://{BUCKET}/ (us-east-1)"
            assert (mount.path / "a.txt").read_bytes() == b"hello"
            assert is_silent(sock)
            sock.settimeout(30)
            assert mount.stop() == 0
            assert said(sock) == b"STOPPING=1"
        assert is_silent(sock)


@pytest.mark.mount
def test_a_failed_start_is_never_ready(work: Path) -> None:
    """A service whose bucket is refused says neither READY nor STOPPING: its exit code says it."""
    address = addresses(work)[0]
    env = aws_environment(NOTIFY_SOCKET=address)
    path = work / "mnt"
    path.mkdir()
    with manager_at(address) as sock, scripted(lambda _: error_answer(403, "AccessDenied")) as server:
        arguments = [BUCKET, str(path), "--foreground", "--endpoint-url", server.url, "--force-path-style"]
        refusal(path, ExitCode.ACCESS, *arguments, env=env)
        assert is_silent(sock)


@pytest.mark.mount
def test_stopping_is_said_when_unmounted_from_outside(work: Path) -> None:
    """An unmount by somebody else ends the service as a stop does."""
    address = addresses(work)[0]
    env = aws_environment(NOTIFY_SOCKET=address)
    with manager_at(address) as sock, scripted(ScriptedBucket(BUCKET)) as server:
        with mounted(BUCKET, work, url=server.url, env=env) as mount:
            assert said(sock).startswith(b"READY=1\n")
            assert os.spawnlp(os.P_WAIT, "umount", "umount", str(mount.path)) == 0
            assert said(sock) == b"STOPPING=1"
            assert mount.process.wait(30) == 0
        assert not is_mounted(mount.path)


@pytest.mark.mount
def test_a_service_that_is_renewed(work: Path) -> None:
    """A restart is RELOADING=1, then READY=1, and no STOPPING=1, which would be the end; signs of life go on."""
    bucket = ScriptedBucket(BUCKET)
    bucket.objects["a.txt"] = b"hello"
    address = addresses(work)[0]
    env = aws_environment(NOTIFY_SOCKET=address, WATCHDOG_USEC="3000000")
    with (
        manager_at(address) as sock,
        scripted(bucket) as server,
        mounted(BUCKET, work, url=server.url, env=env) as mount,
    ):
        sock.settimeout(60)
        heard = [said(sock)]
        restart = subprocess.Popen([*CTL, "restart", str(mount.path)])
        while sum(message.startswith(b"READY=1") for message in heard) < 2 or heard[-1] != b"WATCHDOG=1":
            heard.append(said(sock))
        told = [message.partition(b"\n")[0] for message in heard if message != b"WATCHDOG=1"]
        assert told == [b"READY=1", b"RELOADING=1", b"READY=1"]
        assert restart.wait(60) == 0
        assert (mount.path / "a.txt").read_bytes() == b"hello"
        wait_until(lambda: "handed over after" in mount.log, 30, "the end of the old daemon")
        assert mount.stop() == 0
        while (last := said(sock)) == b"WATCHDOG=1":
            pass
        assert last == b"STOPPING=1"
