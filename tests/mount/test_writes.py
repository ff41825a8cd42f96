"""Files that programs write on a real mount, and what another client of the bucket sees of them."""

import contextlib
import errno
import mmap
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from s3mount.fs.settling import SETTLE_S
from tests.support.mounts import SOON_S, Mount, mounted
from tests.support.processes import wait_until
from tests.support.servers import Server

MIB = 1 << 20


class Bucket:
    """A mount that may be written to, and the other client."""

    def __init__(self, mount: Mount, server: Server, name: str) -> None:
        self.mount = mount
        self.path = mount.path
        self.name = name
        self._server = server

    def get(self, key: str) -> bytes:
        """What S3 has."""
        content: bytes = self._server.client.get_object(Bucket=self.name, Key=key)["Body"].read()
        return content

    def listed(self) -> list[str]:
        return [each["Key"] for each in self._server.client.list_objects_v2(Bucket=self.name).get("Contents", [])]

    def uploads(self) -> list[str]:
        answer = self._server.client.list_multipart_uploads(Bucket=self.name)
        return [each["Key"] for each in answer.get("Uploads", [])]

    def put(self, key: str, content: bytes) -> None:
        self._server.client.put_object(Bucket=self.name, Key=key, Body=content)


@contextmanager
def bucket_on(server: Server, work: Path, *flags: str) -> Iterator[Bucket]:
    """A new bucket on a mount."""
    name = server.make_bucket()
    with mounted(name, work, *flags, url=server.url) as mount:
        yield Bucket(mount, server, name)


@pytest.fixture
def rw(weed: Server, work: Path) -> Iterator[Bucket]:
    """A new bucket, where everything may be written."""
    with bucket_on(weed, work, "--rw") as bucket:
        yield bucket


def errno_of(call: object, *arguments: object) -> str:
    try:
        call(*arguments)  # type: ignore[operator]
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "no error"


def run(code: str, *arguments: object) -> str:
    """A program of its own; what it prints."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_close_is_durable(rw: Bucket) -> None:
    """When close returns, S3 has the file, small or in many parts, byte for byte; before, it has nothing."""
    large = os.urandom(30 * MIB + 17)
    for name, content in (("empty", b""), ("small", b"x" * 1000), ("large", large)):
        with open(rw.path / name, "wb") as file:
            file.write(content)
            assert name not in rw.listed()
        assert rw.get(name) == content
        assert (rw.path / name).read_bytes() == content
    assert rw.uploads() == []


def test_fsync_is_durable_and_writing_goes_on(rw: Bucket) -> None:
    """When fsync returns, S3 has what was written so far; what is written after it is there after close."""
    with open(rw.path / "a", "wb", buffering=0) as file:
        file.write(b"one")
        os.fsync(file.fileno())
        assert rw.get("a") == b"one"
        file.write(b"two" * 3 * MIB)
        os.fsync(file.fileno())
        file.write(b"three")
    assert rw.get("a") == b"one" + b"two" * 3 * MIB + b"three"


def test_a_duplicate_does_not_end_a_write(rw: Bucket) -> None:
    """A dup, a child, a shell that inherits the descriptor: their closes publish nothing while the opener writes."""
    with open(rw.path / "a", "wb", buffering=0) as file:
        file.write(b"1")
        os.close(os.dup(file.fileno()))
        subprocess.run(["sh", "-c", "true"], pass_fds=[file.fileno()], check=True)
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        assert "a" not in rw.listed()
        file.write(b"2")
    assert rw.get("a") == b"12"


def test_a_child_writes_on(rw: Bucket) -> None:
    """What a child writes after its parent has closed the file is there when the child has ended."""
    code = """
import os, sys, time
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
os.write(fd, b"parent ")
if os.fork() == 0:
    os.read(0, 1)
    os.write(fd, b"child")
    os._exit(0)
os.close(fd)
print("closed", flush=True)
os.wait()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code, rw.path / "a"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        assert program.stdin is not None
        assert program.stdout.readline() == b"closed\n"
        assert rw.get("a") == b"parent "
        program.stdin.write(b"x")
        program.stdin.close()
        assert program.wait() == 0
    wait_until(lambda: rw.get("a") == b"parent child", SOON_S, "the child's words")


def test_shell_redirections(rw: Bucket) -> None:
    """A group of commands with one output, appends, and here-documents are whole."""
    script = f'(echo one; /bin/echo two; sh -c "echo three") > "{rw.path}/a"; echo four >> "{rw.path}/a"'
    subprocess.run(["sh", "-c", script], check=True)
    assert (rw.path / "a").read_bytes() == b"one\ntwo\nthree\nfour\n"
    assert rw.get("a") == b"one\ntwo\nthree\nfour\n"


def test_writes_anywhere(rw: Bucket) -> None:
    """pwrite, seeking back, holes and O_RDWR give the file that a local file system would have."""
    with open(rw.path / "a", "w+b", buffering=0) as file:
        file.write(b"a" * 100_000)
        os.pwrite(file.fileno(), b"PATCH", 50_000)
        os.pwrite(file.fileno(), b"END", 300_000)
        file.seek(49_999)
        assert file.read(7) == b"aPATCHa"
    expected = b"a" * 50_000 + b"PATCH" + b"a" * 49_995 + bytes(200_000) + b"END"
    assert rw.get("a") == expected
    with open(rw.path / "z", "wb") as file:  # as zipfile patches its headers
        file.write(b"head....")
        file.write(b"x" * 20 * MIB)
        file.seek(4)
        file.write(b"DONE")
    assert rw.get("z") == b"headDONE" + b"x" * 20 * MIB


def test_the_size_first(rw: Bucket) -> None:
    """ftruncate to the final size and then writing in order, as safetensors does, streams: parts go up before close."""
    size = 24 * MIB
    fd = os.open(rw.path / "a", os.O_RDWR | os.O_CREAT | os.O_EXCL)
    os.ftruncate(fd, size)
    for offset in range(0, size, MIB):
        os.write(fd, bytes([offset // MIB]) * MIB)
    wait_until(lambda: rw.uploads() == ["a"], SOON_S, "the first part")
    os.close(fd)
    assert rw.get("a") == b"".join(bytes([number]) * MIB for number in range(24))


def test_a_writable_mapping(rw: Bucket) -> None:
    """What is stored through a shared mapping is in S3 after the file is closed, and after msync and fsync."""
    with open(rw.path / "a", "w+b") as file:
        file.truncate(3 * 4096)
        with mmap.mmap(file.fileno(), 0) as memory:
            memory[4096:4100] = b"page"
            memory.flush()
            os.fsync(file.fileno())
            assert rw.get("a")[4096:4100] == b"page"
            memory[8192:8196] = b"last"
    assert rw.get("a") == bytes(4096) + b"page" + bytes(4092) + b"last" + bytes(4092)


def test_many_small_appends(rw: Bucket) -> None:
    """A hundred appends with an open each are a few PUTs; another program that opens the file reads all of them."""
    began = time.perf_counter()
    for number in range(100):
        with open(rw.path / "events", "ab") as file:
            file.write(b"%04d" % number)
    expected = b"".join(b"%04d" % number for number in range(100))
    assert run("import sys; sys.stdout.write(open(sys.argv[1]).read())", rw.path / "events").encode() == expected
    assert rw.get("events") == expected
    (line,) = [line for line in _statistics(rw) if "WriteStatistics(puts=" in line]
    puts = int(line.partition("puts=")[2].split(",")[0])
    assert puts <= 3 + (time.perf_counter() - began) / SETTLE_S, line


def _statistics(rw: Bucket) -> list[str]:
    rw.mount.process.send_signal(signal.SIGUSR1)
    wait_until(lambda: re.search(r"\d tasks?: ", rw.mount.log), 30, "statistics in the log")  # tasks come last
    return rw.mount.log.splitlines()


def test_what_was_written_is_in_the_disk_cache(weed: Server, work: Path) -> None:
    """A file of at most one part that was written is read from the disk cache, also by O_DIRECT, without a GET."""
    with bucket_on(weed, work, "--rw", "--cache", str(work / "cache")) as bucket:
        (bucket.path / "a").write_bytes(b"x" * 100_000)
        wait_until(lambda: _blocks(work / "cache"), 30, "a block on disk")
        fd = os.open(bucket.path / "a", os.O_RDONLY | os.O_DIRECT)
        with mmap.mmap(-1, 128 * 1024) as memory:
            assert os.readv(fd, [memory]) == 100_000
            assert memory[:100_000] == b"x" * 100_000
        os.close(fd)
        (line,) = [line for line in _statistics(bucket) if "requests: StoreStatistics(" in line]
        assert " gets=0," in line.replace("(gets", " gets"), line


def _blocks(directory: Path) -> bool:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()) > 100_000


def test_appends_reach_s3_without_a_reader(rw: Bucket) -> None:
    """What was appended is in S3 soon after the last close, though nobody asks for it."""
    (rw.path / "log").write_bytes(b"first\n")
    with open(rw.path / "log", "ab") as file:
        file.write(b"second\n")
    wait_until(lambda: rw.get("log") == b"first\nsecond\n", SOON_S, "the upload")


def test_own_writes_are_what_is_read(rw: Bucket) -> None:
    """A file that is written over and over is read as it was written last, by mapping, by pages and by O_DIRECT."""
    path = rw.path / "a"
    for number in range(8):
        content = bytes([number]) * (5000 + number * 777)
        path.write_bytes(content)
        assert path.read_bytes() == content
        assert path.stat().st_size == len(content)
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as memory:
            assert memory[:] == content


def test_a_file_keeps_its_number(rw: Bucket) -> None:
    """st_ino is the same from the creation through fsync and close to the next content, and so is a lock's."""
    path = rw.path / "lock"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    number = os.fstat(fd).st_ino
    os.write(fd, b"pid")
    os.fsync(fd)
    assert os.stat(path).st_ino == number
    os.close(fd)
    assert os.stat(path).st_ino == number
    path.write_bytes(b"other")
    assert os.stat(path).st_ino == number


def test_times_and_modes(rw: Bucket) -> None:
    """chmod, chown and utime succeed, and are shown."""
    path = rw.path / "a"
    path.write_bytes(b"1")
    os.utime(path, (1_000_000_000, 1_000_000_000))
    path.chmod(0o600)
    os.chown(path, 12, 34)
    found = path.stat()
    assert (found.st_mtime, found.st_mode & 0o777, found.st_uid, found.st_gid) == (1_000_000_000, 0o600, 12, 34)


def test_what_new_files_only_means(weed: Server, work: Path) -> None:
    """Without a switch new files are written; changing, removing and renaming fail with EPERM that names the switch."""
    with bucket_on(weed, work) as bucket:
        new = bucket.path / "new"
        new.write_bytes(b"1")
        assert bucket.get("new") == b"1"
        assert errno_of(os.open, new, os.O_WRONLY | os.O_TRUNC) == "EPERM"
        assert errno_of(os.open, new, os.O_WRONLY | os.O_APPEND) == "EPERM"
        assert errno_of(os.truncate, new, 0) == "EPERM"
        assert bucket.get("new") == b"1"
        wait_until(lambda: any("--allow-overwrite" in line for line in bucket.mount.warnings()), 30, "the line")


def test_a_stop_finishes_writing(weed: Server, work: Path) -> None:
    """SIGTERM waits for a program that writes: its file is whole in S3, and the log said what was waited for."""
    code = """
import sys
file = open(sys.argv[1], "wb", buffering=0)
file.write(b"x" * 9_000_000)
print("open", flush=True)
sys.stdin.readline()
file.write(b"end")
file.close()
"""
    with (
        bucket_on(weed, work, "--rw") as bucket,
        subprocess.Popen(
            [sys.executable, "-c", code, bucket.path / "a"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as program,
    ):
        assert program.stdout is not None
        assert program.stdin is not None
        program.stdout.readline()
        bucket.mount.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "waiting for files that are being written: 'a'" in bucket.mount.log, 30, "the log")
        program.stdin.write(b"\n")
        program.stdin.close()
        assert program.wait() == 0
        assert bucket.mount.process.wait(60) == 0
        assert bucket.get("a") == b"x" * 9_000_000 + b"end"


def test_what_was_acknowledged_survives_a_kill(weed: Server, work: Path) -> None:
    """After kill -9 of everything the next mount uploads what was appended and closed."""
    name = weed.make_bucket()
    weed.client.put_object(Bucket=name, Key="log", Body=b"first\n")
    with mounted(name, work, "--rw", url=weed.url) as mount:
        pid = mount.daemon_pid
        os.kill(pid, 0)
        with open(mount.path / "log", "ab") as file:
            file.write(b"second\n")
        mount.kill()
    with mounted(name, work, "--rw", url=weed.url):
        wait_until(
            lambda: weed.client.get_object(Bucket=name, Key="log")["Body"].read() == b"first\nsecond\n",
            30,
            "the upload",
        )


def test_removed_directories_stay_removed(rw: Bucket) -> None:
    """A tree that was removed is gone at once, also on a server that lists empty directories, and made anew."""
    for _ in range(3):
        (rw.path / "d/e/f").mkdir(parents=True)
        (rw.path / "d/e/f/g").write_bytes(b"1")
        shutil.rmtree(rw.path / "d")
        assert os.listdir(rw.path) == []
        assert not (rw.path / "d").exists()
    (rw.path / "d").mkdir()
    assert os.listdir(rw.path) == ["d"]


def test_stops_that_come_together(weed: Server, work: Path) -> None:
    """However often a mount is told to stop, what was removed and written is in S3, and it ends in order."""
    with bucket_on(weed, work, "--rw") as bucket:
        (bucket.path / "old").write_bytes(b"1")
        daemon = bucket.mount.daemon_pid
        (bucket.path / "old").unlink()
        (bucket.path / "new").write_bytes(b"2")
        bucket.mount.process.send_signal(signal.SIGTERM)
        while bucket.mount.process.poll() is None:
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.kill(daemon, signal.SIGTERM)
                bucket.mount.process.wait(0.002)  # a flood would only show how deep Python's handlers nest
        assert bucket.mount.process.returncode == 0
        assert bucket.listed() == ["new"]
        assert "unmounted after" in bucket.mount.log
