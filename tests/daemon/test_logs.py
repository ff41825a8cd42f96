"""Where the log goes, what it never holds, and that it never holds up the daemon."""

import contextlib
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from s3mount.daemon.exits import ExitCode
from tests.support.mounts import COMMAND, aws_environment, clean_up, mounted, run_command
from tests.support.namespaces import PUBLIC_FUSE_DEV, in_namespace, over
from tests.support.processes import wait_until
from tests.support.proxy import error_answer
from tests.support.refusals import processes_of, refusal
from tests.support.scripted import Call, Scripted, ScriptedBucket, scripted

pytestmark = [pytest.mark.mount]

BUCKET = "scripted-bucket"
MANY = 30_000


@pytest.fixture
def server() -> Iterator[Scripted]:
    """A bucket with one file."""
    bucket = ScriptedBucket(BUCKET)
    bucket.objects["a.txt"] = b"hello"
    with scripted(bucket) as running:
        yield running


@contextlib.contextmanager
def in_background(server: Scripted, mnt: Path, *flags: str) -> Iterator[subprocess.CompletedProcess[str]]:
    """A mount in the background while the block runs; gone with its daemon afterwards."""
    mnt.mkdir(exist_ok=True)
    try:
        yield run_command(BUCKET, str(mnt), "--endpoint-url", server.url, "--force-path-style", *flags)
    finally:
        clean_up(mnt)
        wait_until(lambda: not processes_of(mnt), 60, "the daemon ending")


def test_log_directory(server: Scripted, work: Path) -> None:
    """The directory is created, the file is the mount's own and not for everybody, and holds start and end."""
    directory = work / "var" / "log"
    with in_background(server, work / "mnt", "-l", str(directory)) as result:
        assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
        mounter = os.getsid(processes_of(work / "mnt")[0])
    (path,) = directory.iterdir()
    assert path.name == f"s3mount-{mounter}.log"
    assert stat.S_IMODE(path.stat().st_mode) & ~0o640 == 0
    lines = path.read_text().splitlines()
    assert any(f"mounted s3://{BUCKET}/ (us-east-1) on {work}/mnt" in line for line in lines)
    assert "unmounted after" in lines[-1]
    assert all(" INFO " in line for line in lines), "without --debug, and with nothing wrong"


def test_a_failed_start_is_in_the_log_too(server: Scripted, work: Path) -> None:
    """The line of the terminal also stands in the file, where the person on call looks."""
    mnt = work / "mnt"
    mnt.mkdir()
    arguments = [BUCKET, str(mnt), "--endpoint-url", server.url, "--force-path-style", "-l", str(work / "logs")]
    server.script = lambda _: error_answer(403, "AccessDenied", "not you")
    line = refusal(mnt, ExitCode.ACCESS, *arguments)
    (path,) = (work / "logs").iterdir()
    assert f" ERROR s3mount.cli.serving: {line.removeprefix('s3mount: ')}\n" in path.read_text()


def test_no_log_in_the_foreground(server: Scripted, work: Path) -> None:
    """--no-log keeps a working daemon silent from start to end."""
    command = [COMMAND, BUCKET, str(work / "mnt"), "-f", "--no-log", "--endpoint-url", server.url, "--force-path-style"]
    (work / "mnt").mkdir()
    with subprocess.Popen(command, env=aws_environment(), stderr=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            wait_until((work / "mnt" / "a.txt").exists, 30, "mounting")
            process.terminate()
            assert process.communicate(timeout=30) == (b"", b"")
        finally:
            process.kill()
            clean_up(work / "mnt")
    assert process.returncode == 0


def test_no_log_in_the_background(server: Scripted, work: Path) -> None:
    """--no-log also keeps warnings off the terminal."""
    (work / "mnt").mkdir()
    (work / "mnt" / "mine").touch()
    with in_background(server, work / "mnt", "--no-log") as result:
        assert (result.returncode, result.stderr) == (0, "")


def test_syslog(server: Scripted, work: Path) -> None:
    """In the background records go to /dev/log with program, pid and priority; warnings also to the terminal."""
    mnt = work / "mnt"
    mnt.mkdir()
    (mnt / "mine").touch()
    arguments = f"{BUCKET} {mnt} --endpoint-url {server.url} --force-path-style"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(work / "log"))
        sock.settimeout(30)
        script = PUBLIC_FUSE_DEV + "touch /dev/log\n" + over(work / "log", "/dev/log")
        result = in_namespace(f"{script}{COMMAND} {arguments}\numount {mnt}\n")
        received = []
        while not received or "unmounted after" not in received[-1]:
            received.append(sock.recv(65536).decode().rstrip("\0\n"))
    assert result.returncode == 0, result.stderr
    assert len(result.stderr.splitlines()) == 1, "the warning, and no copy of the log"
    assert all(line.partition(">")[2].startswith("s3mount[") for line in received)
    by_priority = {line.partition(">")[0].lstrip("<"): line for line in received}
    daemon_warning, daemon_info = "28", "30"  # RFC 5424: facility daemon (3) * 8 + severity
    assert "is not empty" in by_priority[daemon_warning]
    assert any(line.startswith(f"<{daemon_info}>") and "mounted s3://" in line for line in received)
    wait_until(lambda: not processes_of(mnt), 60, "the daemon ending")


def test_a_stuck_log_does_not_hold_up_the_daemon(work: Path) -> None:
    """When nobody takes the log away, records are dropped and the program goes on; what was queued is written."""
    code = f"""
import logging, sys
from s3mount.config import LogConfig
from s3mount.logs import logging_to
with logging_to(LogConfig(None), is_foreground=True):
    for number in range({MANY}):
        logging.getLogger("s3mount.x").info("record %d %s", number, "x" * 100)
    print("went on", flush=True)
    sys.stdin.readline()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "went on\n"  # while the pipe of stderr is full and unread
        _, log = process.communicate("\n", timeout=60)
    lines = log.splitlines()
    assert process.returncode == 0
    assert 1000 < len(lines) < MANY
    assert " INFO s3mount.x: record 0 " in lines[0]


def test_everything_logged_is_written_at_the_end(work: Path) -> None:
    """The log's thread is waited for, so that the last record before the exit is in the file."""
    code = f"""
import logging
from pathlib import Path
from s3mount.config import LogConfig
from s3mount.logs import logging_to
with logging_to(LogConfig(Path({str(work / "logs")!r})), is_foreground=False):
    for number in range(1000):
        logging.getLogger("s3mount.x").info("record %d", number)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    (path,) = (work / "logs").iterdir()
    lines = path.read_text().splitlines()
    assert [line.rpartition(" ")[2] for line in lines] == [str(number) for number in range(1000)]


@pytest.mark.parametrize("flags", [[], ["--log-json"]], ids=["text", "json"])
def test_secrets_stay_out_of_a_debug_log(work: Path, flags: list[str]) -> None:
    """--debug logs more, but no secret, session token, signature or header, whatever succeeds or fails."""
    secret, token = "SECRET" + os.urandom(12).hex(), "TOKEN" + os.urandom(12).hex()
    bucket = ScriptedBucket(BUCKET)
    bucket.secrets = {"testkey": secret}.get
    bucket.objects |= {"a.txt": b"hello", "broken.bin": bytes(2_000_000), "dir/b.txt": b"x"}
    env = aws_environment(AWS_SECRET_ACCESS_KEY=secret, AWS_SESSION_TOKEN=token, AWS_MAX_ATTEMPTS="2")

    def script(call: Call) -> bytes:
        return error_answer(403, "AccessDenied", "not you") if "broken" in call.path else bucket(call)

    with scripted(script) as server, mounted(BUCKET, work, "--debug", *flags, url=server.url, env=env) as mount:
        assert (mount.path / "a.txt").read_bytes() == b"hello"
        assert not (mount.path / "missing").exists()
        with pytest.raises(PermissionError):
            (mount.path / "broken.bin").read_bytes()
        bucket.secrets = {}.get
        with pytest.raises(PermissionError):
            (mount.path / "dir" / "c.txt").read_bytes()
        assert mount.stop() == 0
        log = mount.log
    assert ('"level": "DEBUG"' if flags else " DEBUG s3mount.") in log
    assert "AccessDenied" in log
    assert "InvalidAccessKeyId" in log
    for hidden in (
        secret,
        token,
        "Signature=",
        "X-Amz-Signature",
        "X-Amz-Credential",
        "AWS4-HMAC-SHA256",
        "Authorization",
        "X-Amz-Security-Token",
    ):
        assert hidden.lower() not in log.lower()
