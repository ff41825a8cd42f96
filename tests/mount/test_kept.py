"""A mount that outlives all its processes: the service manager keeps the device, and the next start takes it over."""

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mount import readers
from tests.mount.test_takeover import cat, digest
from tests.support.mounts import COMMAND, Mount, aws_environment, clean_up, is_mounted, mounted
from tests.support.processes import running, wait_until
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server]


class Manager:
    """What systemd does: the notifications in order, and the descriptors it was given, by name."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.setblocking(False)  # noqa: FBT003
        self.kept: dict[str, int] = {}
        self.said: list[str] = []

    def listen(self) -> None:
        """All that came."""
        while True:
            try:
                message, descriptors, _, _ = socket.recv_fds(self.socket, 4096, 4)
            except BlockingIOError:
                return
            text = message.decode()
            self.said.append(text)
            name = text.partition("FDNAME=")[2]
            if text.startswith("FDSTORE=1"):
                assert name not in self.kept, "systemd keeps all of one name, up to FileDescriptorStoreMax together"
                (self.kept[name],) = descriptors
            elif text.startswith("FDSTOREREMOVE=1") and name in self.kept:
                os.close(self.kept.pop(name))

    def hears(self, text: str) -> bool:
        """Whether that was said."""
        self.listen()
        return any(line.startswith(text) for line in self.said)

    def close(self) -> None:
        for fd in self.kept.values():
            os.close(fd)
        self.socket.close()

    @contextlib.contextmanager
    def restarted(self, arguments: list[str], mount: Mount, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
        """The next process of the service, with what was kept from descriptor 3 on."""
        names = list(self.kept)
        high = [os.dup(self.kept[name]) for name in names]
        shell = " ".join(f"{3 + index}<&{fd}" for index, fd in enumerate(high))
        script = f'export LISTEN_PID=$$; exec "$@" {shell} ' + " ".join(f"{fd}<&-" for fd in high)
        listen = {"LISTEN_FDS": str(len(names)), "LISTEN_FDNAMES": ":".join(names)}
        command = ["bash", "-c", script, "bash", COMMAND, *arguments]
        log = mount.path.parent / "second.log"
        with running(command, log, env=env | listen, pass_fds=high) as process:
            for fd in high:
                os.close(fd)
            yield process


@pytest.fixture
def manager(work: Path) -> Iterator[Manager]:
    """One that listens."""
    made = Manager(work / "notify")
    yield made
    made.close()


def test_the_service_manager_keeps_the_mount(weed: Server, work: Path, manager: Manager) -> None:
    """When mounter and daemon are killed, calls wait until the service is started again, and are answered."""
    bucket = weed.make_bucket()
    weed.client.put_object(Bucket=bucket, Key="a", Body=b"one")
    weed.client.put_object(Bucket=bucket, Key="b", Body=b"two")
    env = aws_environment(NOTIFY_SOCKET=str(work / "notify"))
    with mounted(bucket, work, url=weed.url, env=env) as mount:
        wait_until(lambda: manager.hears("READY=1") and len(manager.kept) == 5, 60, "the store")
        assert cat(mount.path / "a") == "one"
        os.killpg(mount.process.pid, signal.SIGKILL)
        mount.process.wait(30)
        reader = readers.start("read_at", mount.path / "b", "0", "4096")
        manager.said.clear()
        arguments = [bucket, str(mount.path), "--foreground", "--endpoint-url", weed.url, "--force-path-style"]
        with manager.restarted(arguments, mount, env) as process:
            try:
                assert readers.answer(reader) == digest(b"two")
                wait_until(lambda: manager.hears("READY=1"), 60, "being ready")
                process.terminate()
                assert process.wait(60) == 0
                log = (work / "second.log").read_text(encoding="utf-8")
                assert "taken over" in log
                assert "mounted s3://" not in log
                assert not is_mounted(mount.path)
                manager.listen()
                assert manager.kept == {}
            finally:
                clean_up(mount.path, process)


def test_what_was_kept_of_a_mount_that_is_gone(weed: Server, work: Path, manager: Manager) -> None:
    """A device that is no longer mounted is closed, and the service mounts anew."""
    bucket = weed.make_bucket()
    weed.client.put_object(Bucket=bucket, Key="a", Body=b"one")
    env = aws_environment(NOTIFY_SOCKET=str(work / "notify"))
    with mounted(bucket, work, url=weed.url, env=env) as mount:
        wait_until(lambda: manager.hears("READY=1") and len(manager.kept) == 5, 60, "the store")
        os.killpg(mount.process.pid, signal.SIGKILL)
        mount.process.wait(30)
        subprocess.run(["umount", "-l", mount.path], check=True)
        arguments = [bucket, str(mount.path), "--foreground", "--endpoint-url", weed.url, "--force-path-style"]
        manager.said.clear()
        with manager.restarted(arguments, mount, env) as process:
            try:
                wait_until(lambda: manager.hears("READY=1"), 60, "being ready")
                assert cat(mount.path / "a") == "one"
                log = work / "second.log"
                wait_until(lambda: "mounted s3://" in log.read_text(encoding="utf-8"), 30, "the log")
            finally:
                clean_up(mount.path, process)
