"""What kill -9 of a real mount leaves: multipart uploads, and what was appended and is in the spool."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.ctl import result_of, run_ctl
from tests.support.mounts import mounted
from tests.support.processes import wait_until
from tests.support.proxy import Fault, Request, proxy
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server]
MIB = 1 << 20
#: Writes in parts and closes nothing before it is told to.
PROGRAM = """
import sys
file = open(sys.argv[1], "wb", buffering=0)
file.write(b"x" * (20 << 20))
print("written", flush=True)
sys.stdin.readline()
file.close()
"""


def uploads_of(server: Server, bucket: str) -> list[str]:
    answer = server.client.list_multipart_uploads(Bucket=bucket)
    return sorted(each["Key"] for each in answer.get("Uploads", []))


def has_part(server: Server, bucket: str, key: str) -> bool:
    """Whether an upload of a key has a part; before the first is sent the upload is on record in its host."""
    found = server.client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])
    ids = [each["UploadId"] for each in found if each["Key"] == key]
    parts = [server.client.list_parts(Bucket=bucket, Key=key, UploadId=each) for each in ids]
    return any(each.get("Parts") for each in parts)


@contextmanager
def writing(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program in the middle of a file; its end does not matter."""
    command = [sys.executable, "-c", PROGRAM, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == b"written\n"
            yield program
        finally:
            program.kill()


def leave_upload(server: Server, bucket: str, work: Path, key: str) -> None:
    """A mount that was killed while a file was written in parts."""
    with mounted(bucket, work, "--rw", url=server.url) as mount:
        path = mount.path / key
        path.parent.mkdir(exist_ok=True)
        with writing(path):
            wait_until(lambda: has_part(server, bucket, key), 30, "the first part")
            mount.kill()
    (work / "s3mount.log").unlink()


def test_uploads_that_a_crash_left(weed: Server, work: Path) -> None:
    """After kill -9 of all processes s3mountctl uploads shows what was under way; --abort ends that and no other."""
    bucket = weed.make_bucket()
    leave_upload(weed, bucket, work, "d/model.bin")
    theirs = weed.client.create_multipart_upload(Bucket=bucket, Key="d/model.bin")["UploadId"]
    with mounted(bucket, work, "--rw", url=weed.url) as mount:
        wait_until(lambda: "1 upload left of daemons that died" in mount.log, 30, "the log")
        with writing(mount.path / "own"):
            wait_until(lambda: has_part(weed, bucket, "own"), 30, "the first part")
            shown = run_ctl("uploads", mount.path)
            assert (shown.returncode, shown.stderr) == (0, "")
            first, last = shown.stdout.splitlines()
            assert first.startswith("d/model.bin  ")
            assert last == "1 upload left, 0 aborted"
            assert uploads_of(weed, bucket) == ["d/model.bin", "d/model.bin", "own"]
            ended = run_ctl("uploads", mount.path / "d", "--abort", "--json")
            assert ended.returncode == 0
            told = json.loads(ended.stdout.splitlines()[0])
            assert (told["event"], told["key"], told["is_aborted"]) == ("upload", "d/model.bin", True)
            assert told["upload_id"] in first
            assert result_of(ended) == {"event": "result", "uploads": 1, "aborted": 1, "failed": 0}
            assert uploads_of(weed, bucket) == ["d/model.bin", "own"]
        wait_until(lambda: uploads_of(weed, bucket) == ["d/model.bin"], 30, "the own file")
        assert weed.client.get_object(Bucket=bucket, Key="own")["ContentLength"] == 20 * MIB
        weed.client.abort_multipart_upload(Bucket=bucket, Key="d/model.bin", UploadId=theirs)
        assert uploads_of(weed, bucket) == []
        again = run_ctl("uploads", mount.path, "--abort")
        assert again.stdout == "0 uploads left, 0 aborted\n"
        assert mount.stop() == 0
    assert not list(work.rglob("*.uploads"))


def test_uploads_are_aborted_at_start(weed: Server, work: Path) -> None:
    """With --abort-uploads a mount aborts at its start what dead daemons of this host left, and says so."""
    bucket = weed.make_bucket()
    leave_upload(weed, bucket, work, "model.bin")
    assert uploads_of(weed, bucket) == ["model.bin"]
    with mounted(bucket, work, "--rw", "--abort-uploads", url=weed.url) as mount:
        wait_until(lambda: "aborted 1 upload that dead daemons left" in mount.log, 30, "the log")
        assert uploads_of(weed, bucket) == []
        assert mount.warnings() == []


def test_uploads_of_a_daemon_that_was_replaced(weed: Server, work: Path) -> None:
    """When a daemon is killed and another takes over, what the first had under way can be listed and aborted."""
    bucket = weed.make_bucket()
    with mounted(bucket, work, "--rw", url=weed.url) as mount, writing(mount.path / "a"):
        wait_until(lambda: has_part(weed, bucket, "a"), 30, "the first part")
        first = mount.daemon_pid
        os.kill(first, 9)
        wait_until(lambda: mount.daemon_pid != first and "taken over" in mount.log, 60, "another daemon")
        assert result_of(run_ctl("uploads", mount.path, "--abort", "--json"))["aborted"] == 1
        assert uploads_of(weed, bucket) == []


def test_no_uploads_of_a_read_only_mount(weed: Server, work: Path) -> None:
    """A mount that is --read-only says so when it is asked for uploads, and ends the command with 2."""
    with mounted(weed.make_bucket(), work, "--read-only", url=weed.url) as mount:
        ran = run_ctl("uploads", mount.path)
        assert (ran.returncode, ran.stderr) == (2, "s3mountctl: this mount uploads nothing: it is --read-only\n")


def test_appends_that_a_crash_left(weed: Server, work: Path) -> None:
    """What was appended when a mount was killed is uploaded by the next one of its prefix or of one above, no other."""
    bucket, flags = weed.make_bucket(), ("--rw", "--cache", str(work / "cache"), "--prefix")
    weed.client.put_object(Bucket=bucket, Key="logs/a", Body=b"head")
    is_refused = True

    def decide(request: Request) -> Fault | None:
        return Fault(drop=True) if is_refused and request.method == "PUT" else None

    def content() -> bytes:
        found: bytes = weed.client.get_object(Bucket=bucket, Key="logs/a")["Body"].read()
        return found

    with proxy(weed.url) as near:
        near.decide = decide
        with mounted(bucket, work / "1", *flags, "logs/", url=near.url) as mount:
            with (mount.path / "a").open("ab") as file:
                file.write(b" tail")
            mount.kill()
        is_refused = False
        with mounted(bucket, work / "2", *flags, "data/", url=near.url) as mount:
            (mount.path / "b").write_bytes(b"other")
        assert content() == b"head"
        with mounted(bucket, work / "3", *flags, "logs/", url=near.url) as mount:
            assert (mount.path / "a").read_bytes() == b"head tail"
        assert content() == b"head tail"
