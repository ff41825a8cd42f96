"""A mount of a directory bucket (S3 Express One Zone), which is emulated: tests.support.directory_bucket."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.directory_bucket import NAME, DirectoryBucket, directory_bucket
from tests.support.mounts import Mount, mounted, run_command
from tests.support.processes import wait_until

MIB = 1 << 20


class Express(NamedTuple):
    """A mount, and the bucket as another client would see it."""

    mount: Mount
    path: Path
    bucket: DirectoryBucket

    def content(self, key: str) -> bytes:
        with self.bucket.objects.lock:
            return self.bucket.objects.get(key).content

    @property
    def keys(self) -> list[str]:
        with self.bucket.objects.lock:
            return sorted(self.bucket.objects.stored)

    def requests(self, *operations: str) -> list[int]:
        return [self.bucket.counts[operation] for operation in operations]


@contextmanager
def express_on(work: Path, *flags: str, objects: dict[str, bytes] | None = None) -> Iterator[Express]:
    """A bucket with these objects, mounted."""
    with directory_bucket() as (server, bucket):
        for key, content in (objects or {}).items():
            bucket.objects.put(key, content, {})
        with mounted(NAME, work, *flags, url=server.url) as mount:
            yield Express(mount, mount.path, bucket)


def test_reading(work: Path) -> None:
    """Of a directory bucket each name is listed once and found, and content is read; two sessions do for all."""
    files = {f"many/{number:04}": b"%d" % number for number in range(2_500)}
    files |= {"a/b/c": b"deep", "large": os.urandom(20 * MIB), "a-1": b"", "a.txt": b"text"}
    with express_on(work, "--read-only", objects=files) as express:
        assert sorted(os.listdir(express.path / "many")) == [f"{number:04}" for number in range(2_500)]
        assert sorted(os.listdir(express.path)) == ["a", "a-1", "a.txt", "large", "many"]
        for key in ("many/0007", "a/b/c", "large", "a-1", "a.txt"):
            assert (express.path / key).read_bytes() == files[key]
        assert not (express.path / "absent").exists()
        assert (express.path / "a/b").is_dir()
        assert express.requests("CreateSession") == [2]
        assert express.mount.warnings() == []


def test_a_rename_is_one_request(work: Path) -> None:
    """In a directory bucket a rename is one request, of a directory one for each file; inode, time and readers stay."""
    files = {"old": b"content", "there": b"other", **{f"dir/{n}/file": b"%d" % n for n in range(40)}}
    with express_on(work, "--rw", objects=files) as express:
        before = (express.path / "old").stat()
        (express.path / "old").rename(express.path / "there")
        after = (express.path / "there").stat()
        assert (before.st_ino, before.st_mtime) == (after.st_ino, after.st_mtime)
        assert (express.path / "there").read_bytes() == b"content"
        assert express.requests("RenameObject", "CopyObject", "DeleteObject") == [1, 0, 0]
        (express.path / "dir").rename(express.path / "moved")
        assert express.requests("RenameObject", "CopyObject", "DeleteObject", "DeleteObjects") == [41, 0, 0, 0]
        assert express.keys == sorted(["there", *(f"moved/{n}/file" for n in range(40))])
        assert not (express.path / "dir").exists()
        assert (express.path / "moved/7/file").read_bytes() == b"7"
        with (express.path / "moved/7/file").open("rb") as file:
            (express.path / "moved/7/file").rename(express.path / "elsewhere")
            assert file.read() == b"7"


def test_an_append_sends_what_is_new(work: Path) -> None:
    """With --incremental-upload an append, also after an fsync, sends its bytes alone; nothing else changes a file."""
    with express_on(work, "--incremental-upload", objects={"log": b"first\n"}) as express:
        with (express.path / "log").open("ab") as file:
            file.write(b"second\n")
            file.flush()
            os.fsync(file.fileno())
        assert express.content("log") == b"first\nsecond\n"
        assert express.requests("AppendObject", "PutObject", "CreateMultipartUpload") == [1, 0, 0]
        with (express.path / "new").open("wb") as file:
            for line in (b"one\n", b"two\n", b"three\n"):
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        assert express.content("new") == b"one\ntwo\nthree\n"
        assert express.requests("AppendObject", "PutObject", "CreateMultipartUpload") == [3, 1, 0]
        with (express.path / "log").open("ab") as file:
            file.write(b"third\n")
        wait_until(lambda: express.content("log").endswith(b"third\n"), 20, "the append that follows the close")
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC):
            with pytest.raises(PermissionError):
                os.open(express.path / "log", flags)
        with (express.path / "log").open("ab") as file, pytest.raises(PermissionError):
            os.truncate(file.fileno(), 1)


def test_somebody_else_appended(work: Path) -> None:
    """An append after another host's is ESTALE at the fsync, and changes nothing."""
    with express_on(work, "--incremental-upload", objects={"log": b"first\n"}) as express:
        fd = os.open(express.path / "log", os.O_WRONLY | os.O_APPEND)
        os.write(fd, b"ours\n")
        express.bucket.objects.append("log", b"theirs\n", {"x-amz-write-offset-bytes": "6"})
        with pytest.raises(OSError, match=os.strerror(errno.ESTALE)):
            os.fsync(fd)
        os.close(fd)
        assert express.content("log") == b"first\ntheirs\n"


def test_only_where_it_can_be(work: Path) -> None:
    """On a bucket that is no directory bucket --incremental-upload ends the start, and the line says what to use."""
    (work / "mnt").mkdir()
    done = run_command("ordinary-bucket", str(work / "mnt"), "--incremental-upload")
    assert done.returncode == 2
    assert "not a directory bucket" in done.stderr
    assert "--rw" in done.stderr
