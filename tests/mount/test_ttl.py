"""Real mounts with --metadata-ttl: requests counted by a proxy, and another client's changes."""

import errno
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.content import make_content
from tests.support.mounts import SOON_S, Mount, mounted
from tests.support.processes import wait_until
from tests.support.proxy import Proxy, proxy
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server]

INDEFINITE = ("--metadata-ttl", "indefinite")


@contextmanager
def counted(weed: Server, bucket: str, work: Path, *flags: str) -> Iterator[tuple[Mount, Proxy]]:
    """A mount behind a proxy that has forgotten the requests of the start."""
    with proxy(weed.url) as front, mounted(bucket, work, *flags, url=front.url) as mount:
        front.reset()
        yield mount, front


def put(weed: Server, bucket: str, key: str, content: bytes) -> None:
    weed.client.put_object(Bucket=bucket, Key=key, Body=content)


def is_there(path: Path) -> bool:
    """By stat, and ENOENT alone means no."""
    try:
        path.stat()
    except FileNotFoundError:
        return False
    return True


def read_directly(path: Path) -> bytes:
    """The content by O_DIRECT into an aligned buffer."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        with mmap.mmap(-1, 1 << 16) as buffer:
            length = os.readv(fd, [buffer])
            return buffer[:length]
    finally:
        os.close(fd)


def test_what_was_listed_costs_no_request(weed: Server, work: Path) -> None:
    """With a TTL, what was listed costs no request until it is over: no stat, no second listing, no missing name."""
    bucket = weed.make_bucket()
    contents = {f"f{n:02}": make_content(f"{n}", 10_000) for n in range(50)}
    for name, content in contents.items():
        put(weed, bucket, f"d/{name}", content)
    with counted(weed, bucket, work, *INDEFINITE) as (mount, front):
        directory = mount.path / "d"
        assert sorted(os.listdir(directory)) == sorted(contents)
        assert front.count() == front.count(is_list=True) == 1  # the root came with the probe
        assert {entry.stat().st_size for entry in os.scandir(directory)} == {10_000}
        assert [is_there(directory / f"missing-{n}") for n in range(20)] == [False] * 20
        assert not is_there(mount.path / "missing")
        assert front.count() == 1
        gets = []
        for _ in range(4):
            assert {name: (directory / name).read_bytes() for name in contents} == contents
            gets.append(front.count("GET", is_list=False))
            assert front.count() == 1 + gets[-1]
        assert gets[0] == 50
        assert any(now == before for before, now in pairwise(gets)), "the kernel may drop some pages, but not always"
        assert mount.warnings() == []


def test_an_unknown_path_is_resolved_once(weed: Server, work: Path) -> None:
    """One LIST for each component that is not known and one GET; a missing name in an unlisted directory one LIST."""
    bucket = weed.make_bucket()
    put(weed, bucket, "a/b/c/f", b"content")
    with counted(weed, bucket, work, *INDEFINITE) as (mount, front):
        for _ in range(2):
            assert (mount.path / "a/b/c/f").read_bytes() == b"content"
            assert (front.count(is_list=True), front.count("GET", is_list=False)) == (3, 1)
        for _ in range(3):
            assert not is_there(mount.path / "a/b/c/g")
            assert front.count() == 3 + 1 + 1


def test_an_absent_name_is_asked_for_each_time_without_a_negative_ttl(weed: Server, work: Path) -> None:
    """In the minimal mode each probe of a missing name asks, and one that was just added is there."""
    bucket = weed.make_bucket()
    put(weed, bucket, "a", b"1")
    with counted(weed, bucket, work) as (mount, front):
        for n in range(1, 4):
            assert not is_there(mount.path / "new")
            assert front.count(is_list=True) == n
        put(weed, bucket, "new", b"1")
        assert is_there(mount.path / "new")


def test_another_clients_changes_are_seen_after_the_ttl(weed: Server, work: Path) -> None:
    """With a TTL, what another client did is seen when it is over, however often the mount is asked meanwhile."""
    bucket = weed.make_bucket()
    for key in ("stays", "changes", "goes"):
        put(weed, bucket, key, b"old")
    with counted(weed, bucket, work, "--metadata-ttl", "2") as (mount, _):
        wait_until(lambda: sorted(os.listdir(mount.path)) == ["changes", "goes", "stays"], SOON_S, "the first listing")
        inodes = {name: (mount.path / name).stat().st_ino for name in ("stays", "changes")}
        assert not is_there(mount.path / "new")
        put(weed, bucket, "new", b"new")
        put(weed, bucket, "changes", b"newer")
        weed.client.delete_object(Bucket=bucket, Key="goes")

        def is_seen() -> bool:
            names = sorted(os.listdir(mount.path)) == ["changes", "new", "stays"]
            stats = is_there(mount.path / "new") and not is_there(mount.path / "goes")
            return names and stats and (mount.path / "changes").stat().st_size == 5

        wait_until(is_seen, SOON_S, "the changes")
        assert (mount.path / "stays").stat().st_ino == inodes["stays"]
        assert (mount.path / "changes").stat().st_ino != inodes["changes"]
        assert (mount.path / "changes").read_bytes() == b"newer"


def test_a_replaced_file_is_old_or_new_and_never_mixed(weed: Server, work: Path) -> None:
    """A small file that was replaced is never mixed, whatever the TTL: open gives the new version, or ESTALE once."""
    bucket = weed.make_bucket()
    old, new = make_content("old", 300_000), make_content("new", 350_000)
    put(weed, bucket, "f", old)
    with counted(weed, bucket, work, *INDEFINITE) as (mount, _):
        assert (mount.path / "f").stat().st_size == len(old)
        put(weed, bucket, "f", new)
        contents = []
        for _ in range(3):
            try:
                contents.append((mount.path / "f").read_bytes())
            except OSError as error:
                assert error.errno == errno.ESTALE  # noqa: PT017  the content counts as much
        assert len(contents) >= 2
        assert set(contents) == {new}
        assert (mount.path / "f").stat().st_size == len(new)
        assert [entry.stat().st_size for entry in os.scandir(mount.path)] == [len(new)]


def test_o_direct_sees_the_new_version_at_once(weed: Server, work: Path) -> None:
    """An open with O_DIRECT sees what S3 has, whatever the TTL."""
    bucket = weed.make_bucket()
    put(weed, bucket, "f", b"old" * 1000)
    with counted(weed, bucket, work, *INDEFINITE) as (mount, front):
        path = mount.path / "f"
        assert path.read_bytes() == b"old" * 1000
        put(weed, bucket, "f", b"new!" * 1000)
        front.reset()
        assert path.read_bytes() == b"old" * 1000
        assert front.count() == 0
        assert read_directly(path) == b"new!" * 1000
        assert path.read_bytes() == b"new!" * 1000
        weed.client.delete_object(Bucket=bucket, Key="f")
        with pytest.raises(FileNotFoundError):
            read_directly(path)
        assert not is_there(path)
        assert os.listdir(mount.path) == []
