"""What programs get, and what the log says, when S3 refuses, breaks or is silent."""

import hashlib
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from s3mount.units import MIB
from tests.mount import readers
from tests.mount.test_unmounting import is_waiting
from tests.support.content import make_content
from tests.support.mounts import Mount, mounted
from tests.support.processes import wait_until
from tests.support.proxy import Fault, Request, error_answer, proxy
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server]

_CONTENTS = {"dir/small": b"hello", "dir/large": make_content("large", 12 * MIB)}
_KEYS = tuple(_CONTENTS)
#: A name that no probe and no listing proved a moment ago, so that looking it up asks S3.
_UNSEEN = "directory"
#: Nothing waits for S3: what AWS_MAX_ATTEMPTS and --request-deadline do not give is an error.
_ERROR = ("--on-outage", "error")


@pytest.fixture(scope="module")
def bucket(weed: Server) -> str:
    """A bucket with a file of one GET and a file of several."""
    name = weed.make_bucket()
    for key, content in _CONTENTS.items():
        weed.client.put_object(Bucket=name, Key=key, Body=content)
    return name


def _read(path: Path, how: str = "direct") -> object:
    """One read in a process of its own: the errno's name, or the SHA-256 of the first 4 KiB."""
    return readers.answer(readers.start("read_at", path, "0", "4096", how))


def _on_get(fault: Fault) -> Callable[[Request], Fault | None]:
    return lambda request: fault if request.method == "GET" and not request.is_list else None


def _on_list(fault: Fault) -> Callable[[Request], Fault | None]:
    """For LISTs of names, not for the probes of the bucket."""
    return lambda request: fault if request.is_list and "prefix=dir" in request.target else None


def _assert_logged_once(mount: Mount, bucket: str, key: str, operation: str, request_id: str = "") -> None:
    """Ends the mount, because only then its log is whole."""
    assert mount.stop() == 0
    lines = mount.warnings()
    assert len(lines) == 1, lines
    line = lines[0]
    assert f"bucket={bucket}" in line
    assert f"key={key!r}" in line
    assert re.search(rf"\boperation={operation}\b", line)
    assert f"request-id={request_id}" in line if request_id else True


@pytest.mark.parametrize("key", _KEYS)
def test_denied(weed: Server, bucket: str, work: Path, key: str) -> None:
    """A GET that S3 denies is EACCES, and is logged once with bucket, key, operation and request id."""
    with proxy(weed.url) as front, mounted(bucket, work, url=front.url) as mount:
        front.decide = _on_get(Fault(answer=error_answer(403, "AccessDenied")))
        assert _read(mount.path / key) == "EACCES"
        front.decide = None
        assert _read(mount.path / key) == hashlib.sha256(_CONTENTS[key][:4096]).hexdigest()
        _assert_logged_once(mount, bucket, key, "GetObject", "PROXY")


def test_denied_listing(weed: Server, bucket: str, work: Path) -> None:
    """A LIST that S3 denies is EACCES, and is logged once with bucket, key, operation and request id."""
    with proxy(weed.url) as front, mounted(bucket, work, url=front.url) as mount:
        directory = os.open(mount.path / "dir", os.O_DIRECTORY)  # its name is known, its content is not
        front.decide = _on_list(Fault(answer=error_answer(403, "AccessDenied")))
        with pytest.raises(PermissionError):
            os.listdir(directory)
        os.close(directory)
        _assert_logged_once(mount, bucket, "dir/", "ListObjectsV2", "PROXY")


def test_a_buffered_read_is_asked_twice(weed: Server, bucket: str, work: Path) -> None:
    """A buffered read that fails is asked for once more by the kernel itself, so it can cost two requests and lines."""
    with proxy(weed.url) as front, mounted(bucket, work, url=front.url) as mount:
        front.decide = _on_get(Fault(answer=error_answer(403, "AccessDenied")))
        front.reset()
        assert _read(mount.path / "dir/large", "buffered") == "EACCES"
        assert mount.stop() == 0
        assert 1 <= len(mount.warnings()) <= 2
        assert front.count("GET", is_list=False) <= 3


@pytest.mark.parametrize("status", [503, 500])
@pytest.mark.parametrize("key", _KEYS)
def test_broken_for_ever(weed: Server, bucket: str, work: Path, key: str, status: int) -> None:
    """A GET that S3 throttles or fails after all retries is EIO, and is logged once with bucket, key, operation and
    request id.
    """
    code = {503: "SlowDown", 500: "InternalError"}[status]
    with proxy(weed.url) as front, mounted(bucket, work, *_ERROR, url=front.url) as mount:
        front.decide = _on_get(Fault(answer=error_answer(status, code)))
        front.reset()
        assert _read(mount.path / key) == "EIO"
        assert front.count("GET", is_list=False) >= 4  # AWS_MAX_ATTEMPTS of the tests
        _assert_logged_once(mount, bucket, key, "GetObject", "PROXY")


def test_broken_listing(weed: Server, bucket: str, work: Path) -> None:
    """A LIST that S3 throttles or fails after all retries is EIO, and is logged once with bucket, key, operation and
    request id.
    """
    with proxy(weed.url) as front, mounted(bucket, work, *_ERROR, url=front.url) as mount:
        front.decide = _on_list(Fault(answer=error_answer(503, "SlowDown")))
        assert _read(mount.path / _UNSEEN) == "EIO"
        _assert_logged_once(mount, bucket, _UNSEEN, "ListObjectsV2", "PROXY")


@pytest.mark.parametrize("fault", [
    Fault(answer=error_answer(503, "SlowDown")),
    Fault(answer=error_answer(500, "InternalError")),
    Fault(drop=True),
    Fault(forward_bytes=3),
], ids=["503", "500", "no answer", "half an answer"])  # fmt: skip
def test_broken_twice(weed: Server, bucket: str, work: Path, fault: Fault) -> None:
    """What S3 does wrong twice is repeated, and no program and no log notices."""
    left = [fault, fault]
    with proxy(weed.url) as front, mounted(bucket, work, url=front.url) as mount:
        decide = _on_get(fault)
        front.decide = lambda request: left.pop() if decide(request) and left else None
        assert (mount.path / "dir/small").read_bytes() == _CONTENTS["dir/small"]
        left += [fault, fault]
        assert (mount.path / "dir/large").read_bytes() == _CONTENTS["dir/large"]
        assert left == []
        assert mount.warnings() == []


@pytest.mark.parametrize("key", _KEYS)
def test_silent(weed: Server, bucket: str, work: Path, key: str) -> None:
    """A GET that S3 does not answer within --request-deadline is ETIMEDOUT, and is logged once with bucket, key and
    operation.
    """
    with proxy(weed.url) as front, mounted(bucket, work, "--request-deadline", "2", *_ERROR, url=front.url) as mount:
        front.decide = _on_get(Fault(stall_s=30, drop=True))
        assert _read(mount.path / key) == "ETIMEDOUT"
        _assert_logged_once(mount, bucket, key, "GetObject")


def test_silent_listing(weed: Server, bucket: str, work: Path) -> None:
    """A LIST that S3 does not answer within --request-deadline is ETIMEDOUT, and is logged once with bucket, key and
    operation.
    """
    with proxy(weed.url) as front, mounted(bucket, work, "--request-deadline", "2", *_ERROR, url=front.url) as mount:
        front.decide = _on_list(Fault(stall_s=30, drop=True))
        assert _read(mount.path / _UNSEEN) == "ETIMEDOUT"
        _assert_logged_once(mount, bucket, _UNSEEN, "ListObjectsV2")


def test_one_failure_for_many_readers_is_one_line(weed: Server, bucket: str, work: Path) -> None:
    """A request that many readers wait for is logged once when it fails."""
    with proxy(weed.url) as front, mounted(bucket, work, url=front.url) as mount:
        may_answer = threading.Event()
        decide = _on_get(Fault(answer=error_answer(403, "AccessDenied")))

        def refuse_late(request: Request) -> Fault | None:
            fault = decide(request)
            if fault:
                may_answer.wait(60)
            return fault

        front.decide = refuse_late
        many = [readers.start("read_at", mount.path / "dir/small", "0", "5") for _ in range(8)]
        for program in many:
            wait_until(lambda pid=program.pid: is_waiting(pid), 60, "a reader that waits")  # type: ignore[misc]
        may_answer.set()
        assert [readers.answer(program) for program in many] == ["EACCES"] * 8
        gets = front.count("GET", is_list=False)
        assert gets < 8
        assert mount.stop() == 0
        assert len(mount.warnings()) == gets
