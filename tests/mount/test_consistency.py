"""Other clients change the bucket while programs read, and what reading costs."""

import errno
import hashlib
import os
import threading
from collections import Counter
from pathlib import Path

import pytest

from s3mount.units import KIB, MIB
from tests.mount import readers
from tests.support.content import make_content
from tests.support.mounts import SOON_S, mounted
from tests.support.processes import wait_until
from tests.support.proxy import Proxy, Request, proxy
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server]

_N_VERSIONS = 1000
_N_READERS = 3
_ESTALE = os.strerror(errno.ESTALE)


def _size_of(version: int) -> int:
    """From one GET to several, never twice the same, seldom full blocks.

    A large one comes after a large one: that one lives long enough to be read by several GETs.
    """
    return (16 * KIB, 300 * KIB + 5, MIB + 64 * KIB + 1, MIB + 128 * KIB + 3)[version % 4] + version


def test_a_thousand_replacements_without_a_mixed_read(weed: Server, work: Path) -> None:
    """An open file is one version of the object until it is closed: a reader gets bytes of that version or ESTALE,
    never a mixture.

    Three processes read one key all the time while it is replaced a thousand times.  Each block of 4 KiB carries its
    version; each version has a size of its own.
    """
    bucket = weed.make_bucket()
    stop = work / "stop"
    weed.client.put_object(Bucket=bucket, Key="k", Body=readers.versioned(0, _size_of(0)))
    with mounted(bucket, work, "--part-size", "5MiB", url=weed.url) as mount:
        programs = [readers.start("follow", mount.path / "k", stop) for _ in range(_N_READERS)]
        for version in range(1, _N_VERSIONS + 1):
            weed.client.put_object(Bucket=bucket, Key="k", Body=readers.versioned(version, _size_of(version)))
        stop.touch()
        answers = [readers.answer(program) for program in programs]
        assert mount.warnings() == []
    rounds = sum((Counter(answer["rounds"]) for answer in answers), Counter())  # type: ignore[call-overload, index]
    assert rounds.keys() == {"whole", "ESTALE"}  # and neither mixed nor another error; both show that there were races
    seen = {(version, size) for answer in answers for version, size in answer["seen"]}  # type: ignore[index]
    assert len(seen) >= 50
    assert all(size == _size_of(version) for version, size in seen)
    assert any(size < MIB for _, size in seen)
    assert any(size > MIB for _, size in seen)


def test_the_check_for_mixed_reads() -> None:
    """Content with a block of another version, or in another place, is not taken for whole."""
    one, two = readers.versioned(1, 3 * readers.BLOCK), readers.versioned(2, 3 * readers.BLOCK)
    assert readers.version_of(one) == 1
    assert readers.version_of(one[:-5]) == 1
    assert readers.version_of(one[: readers.BLOCK] + two[readers.BLOCK :]) is None
    assert readers.version_of(two[: -readers.BLOCK] + one[-readers.BLOCK :]) is None
    assert readers.version_of(one[readers.BLOCK :]) is None
    assert readers.version_of(b"") is None


def test_a_replacement_is_seen_by_the_next_open(weed: Server, work: Path) -> None:
    """What another client wrote, replaced or deleted is seen within a second, unless a TTL allows more."""
    bucket = weed.make_bucket()
    put = weed.client.put_object
    put(Bucket=bucket, Key="k", Body=b"one")
    with mounted(bucket, work, url=weed.url) as mount:
        path = mount.path / "k"
        assert path.read_bytes() == b"one"
        for content in (b"two, and longer", b"3", b"four"):
            put(Bucket=bucket, Key="k", Body=content)
            wait_until(lambda now=content: _has(path, now), SOON_S, "the new content")  # type: ignore[misc]
            assert path.stat().st_size == len(content)
        weed.client.delete_object(Bucket=bucket, Key="k")
        wait_until(lambda: not path.exists(), SOON_S, "the file going")
        put(Bucket=bucket, Key="k", Body=b"new")
        assert path.read_bytes() == b"new"  # that a name is missing is not remembered
        assert mount.warnings() == []


def test_a_replacement_of_the_same_size_and_second(weed: Server, work: Path) -> None:
    """A replacement is told by its ETag, not by size and time: the page cache never answers for another version."""
    bucket = weed.make_bucket()
    with mounted(bucket, work, url=weed.url) as mount:
        for number in range(3):
            content = make_content(str(number), 300 * KIB)
            weed.client.put_object(Bucket=bucket, Key="k", Body=content)
            wait_until(lambda now=content: _has(mount.path / "k", now), SOON_S, "the new content")  # type: ignore[misc]


def _has(path: Path, content: bytes) -> bool:
    """Whether a fresh open reads this; within a second it may find the version that is gone, and cannot read it."""
    try:
        return path.read_bytes() == content
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise
        return False


def test_replaced_while_open(weed: Server, work: Path) -> None:
    """An open file keeps its size and the bytes that were fetched; others fail with ESTALE once it is replaced."""
    bucket = weed.make_bucket()
    content = make_content("old", 40 * MIB)
    weed.client.put_object(Bucket=bucket, Key="k", Body=content)
    with mounted(bucket, work, "--part-size", "5MiB", url=weed.url) as mount:
        descriptor = os.open(mount.path / "k", os.O_RDONLY)
        assert os.pread(descriptor, 4096, 0) == content[:4096]
        weed.client.put_object(Bucket=bucket, Key="k", Body=make_content("new", 40 * MIB))
        with pytest.raises(OSError, match=_ESTALE):
            os.pread(descriptor, 4096, 35 * MIB)
        assert os.pread(descriptor, 4096, 0) == content[:4096]
        assert os.fstat(descriptor).st_size == len(content)
        os.close(descriptor)
        new = make_content("new", 40 * MIB)
        wait_until(lambda: _has(mount.path / "k", new), SOON_S, "the new content")
        assert mount.warnings() == []


def test_deleted_while_open(weed: Server, work: Path) -> None:
    """A file deleted while open gives the bytes that were fetched, and ESTALE for others."""
    bucket = weed.make_bucket()
    content, small = make_content("large", 40 * MIB), make_content("small", 900 * KIB)
    weed.client.put_object(Bucket=bucket, Key="large", Body=content)
    weed.client.put_object(Bucket=bucket, Key="small", Body=small)
    with mounted(bucket, work, "--part-size", "5MiB", url=weed.url) as mount:
        with (mount.path / "small").open("rb") as file, (mount.path / "large").open("rb", buffering=0) as other:
            assert other.read(4096) == content[:4096]
            for key in ("small", "large"):
                weed.client.delete_object(Bucket=bucket, Key=key)
            assert file.read() == small  # it was fetched whole by open
            with pytest.raises(OSError, match=_ESTALE):
                os.pread(other.fileno(), 4096, 35 * MIB)
            assert os.pread(other.fileno(), 4096, 0) == content[:4096]
        wait_until(lambda: os.listdir(mount.path) == [], SOON_S, "the files going")
        assert mount.warnings() == []


# -- what reading costs -------------------------------------------------------------------------


def _gets(front: Proxy) -> list[str]:
    return [request.headers["range"] for request in front.requests if not request.is_list and request.method == "GET"]


def test_a_small_file_is_one_get(weed: Server, work: Path) -> None:
    """A file of at most 1 MiB costs one GET to open and read, and after a listing no other request.

    A listing is good for a second; a stall of the machine can outlast that, so one of three files must do.
    """
    bucket = weed.make_bucket()
    for number in range(3):
        weed.client.put_object(Bucket=bucket, Key=f"{number}", Body=make_content(str(number), MIB))
    costs = []
    with proxy(weed.url) as front, mounted(bucket, work, url=front.url) as mount:
        for number in range(3):
            os.listdir(mount.path)
            front.reset()
            assert (mount.path / f"{number}").read_bytes() == make_content(str(number), MIB)
            assert _gets(front) == [f"bytes=0-{MIB - 1}"]
            costs.append(front.count())
        assert min(costs) == 1
        assert front.count("HEAD") == 0


def test_an_empty_file_is_no_get(weed: Server, work: Path) -> None:
    """An empty file costs no GET."""
    bucket = weed.make_bucket()
    weed.client.put_object(Bucket=bucket, Key="empty", Body=b"")
    with proxy(weed.url) as front, mounted(bucket, work, url=front.url) as mount:
        assert (mount.path / "empty").read_bytes() == b""
        assert _gets(front) == []


def test_a_second_reading_is_no_get(weed: Server, work: Path) -> None:
    """What the kernel has in its page cache is not fetched again while the object is the same."""
    bucket = weed.make_bucket()
    contents = {"small": make_content("small", 500 * KIB), "large": make_content("large", 3 * MIB)}
    for key, content in contents.items():
        weed.client.put_object(Bucket=bucket, Key=key, Body=content)
    with proxy(weed.url) as front, mounted(bucket, work, url=front.url) as mount:
        for key, content in contents.items():
            assert (mount.path / key).read_bytes() == content
        front.reset()
        for key, content in [*contents.items()] * 3:
            assert (mount.path / key).read_bytes() == content
        assert _gets(front) == []


def test_many_processes_open_one_cold_file(weed: Server, work: Path) -> None:
    """Any number of processes that open one file at the same time cost one GET."""
    bucket = weed.make_bucket()
    content = make_content("cold", MIB)
    weed.client.put_object(Bucket=bucket, Key="cold", Body=content)
    with proxy(weed.url) as front, mounted(bucket, work, url=front.url) as mount:
        front.reset()
        digests = readers.answer(readers.start("children_read", mount.path / "cold", "32"))
        assert digests == [hashlib.sha256(content).hexdigest()] * 32
        assert _gets(front) == [f"bytes=0-{MIB - 1}"]


def test_every_byte_is_fetched_once(weed: Server, work: Path) -> None:
    """Eight processes that read one large file at the same time cost each of its bytes once."""
    bucket = weed.make_bucket()
    content = make_content("shared", 30 * MIB + 7)
    weed.client.put_object(Bucket=bucket, Key="shared", Body=content)
    with proxy(weed.url) as front, mounted(bucket, work, "--part-size", "5MiB", url=front.url) as mount:
        programs = [readers.start("digests", mount.path / "shared") for _ in range(8)]
        for program in programs:
            assert readers.answer(program) == [hashlib.sha256(content).hexdigest()]
        spans = sorted(tuple(map(int, text.removeprefix("bytes=").split("-"))) for text in _gets(front))
        assert sum(last - first + 1 for first, last in spans) == len(content)
        assert [first for first, _ in spans] == [0, *(last + 1 for _, last in spans[:-1])]


def test_parts_are_fetched_side_by_side(weed: Server, work: Path) -> None:
    """A sequential reader of a large file has eight parts in flight ahead of it when memory allows."""
    bucket = weed.make_bucket()
    content = make_content("long", 100 * MIB)
    weed.client.put_object(Bucket=bucket, Key="long", Body=content)
    held: set[int] = set()
    are_eight = threading.Event()

    def hold(request: Request) -> None:
        """No part beyond 30 MiB is answered before eight of them were asked for."""
        start = int(request.headers.get("range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
        if start >= 30 * MIB:
            held.add(start)
            if len(held) == 8:
                are_eight.set()
            are_eight.wait(100)

    with proxy(weed.url) as front:
        front.decide = hold
        flags = ("--part-size", "5MiB", "--memory-target", "2048")
        with mounted(bucket, work, *flags, url=front.url) as mount:
            found = readers.answer(readers.start("digests", mount.path / "long"))
    assert found == [hashlib.sha256(content).hexdigest()]
    assert are_eight.is_set()
