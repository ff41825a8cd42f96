"""Credentials that may read objects but not list, everywhere or below one prefix: known paths work.

The proxy answers as S3 does then: 403 for a LIST, and for a HEAD of an object that is not there.
"""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from s3mount.units import MIB
from tests.mount.test_ttl import put
from tests.support.content import make_content
from tests.support.mounts import Mount, mounted
from tests.support.proxy import Fault, Proxy, Request, error_answer, proxy
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server]

_DENIED = error_answer(403, "AccessDenied", "not you")
_NO_BODY = _DENIED.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
CONTENTS = {"a/b/small": b"small", "a/b/other": b"other", "a/b/large": make_content("large", 3 * MIB), "top": b"top"}


def denying(prefix: str) -> Callable[[Request], Fault | None]:
    """Denies every LIST of names that start with a prefix, and there the HEAD of what does not exist."""

    def decide(request: Request) -> Fault | None:
        parts = urlsplit(request.target)
        if request.is_list:
            asked = parse_qs(parts.query).get("prefix", [""])[0]
            return Fault(answer=_DENIED) if asked.startswith(prefix) else None
        key = unquote(parts.path).split("/", 2)[-1]
        is_refused = request.method == "HEAD" and key.startswith(prefix) and key not in CONTENTS
        return Fault(answer=_NO_BODY) if is_refused else None

    return decide


def spent(front: Proxy) -> tuple[int, int, int]:
    """LIST, HEAD and GET requests since the last call."""
    counts = front.count(is_list=True), front.count("HEAD"), front.count("GET", is_list=False)
    front.reset()
    return counts


@contextmanager
def denied(weed: Server, work: Path, prefix: str, *flags: str) -> Iterator[tuple[Mount, Proxy]]:
    """A mount of these objects with credentials that may not list what starts with a prefix."""
    bucket = weed.make_bucket()
    for key, content in CONTENTS.items():
        put(weed, bucket, key, content)
    with proxy(weed.url) as front:
        front.decide = denying(prefix)
        with mounted(bucket, work, *flags, url=front.url) as mount:
            front.reset()
            yield mount, front


def errno_of(call: Callable[..., object], *arguments: object) -> str:
    with pytest.raises(OSError) as caught:  # noqa: PT011
        call(*arguments)
    return errno.errorcode[caught.value.errno or 0]


@pytest.mark.parametrize("flags", [(), ("--metadata-ttl", "indefinite")], ids=["minimal", "indefinite"])
def test_known_paths_open_without_listing(weed: Server, work: Path, flags: tuple[str, ...]) -> None:
    """With --without-listing a nested path opens and reads: a HEAD tells what a name is, and no LIST is tried."""
    with denied(weed, work, "", "--without-listing", *flags) as (mount, front):
        assert (mount.path / "a/b/small").read_bytes() == b"small"
        assert spent(front) == (0, 3, 1)
        assert (mount.path / "a/b/other").read_bytes() == b"other"
        assert spent(front) == (0, 1, 1)
        assert (mount.path / "a/b/large").read_bytes() == CONTENTS["a/b/large"]
        assert spent(front)[:2] == (0, 1)
        assert (mount.path / "top").read_bytes() == b"top"
        assert spent(front) == (0, 1, 1)
        assert (mount.path / "a/b/small").read_bytes() == b"small"
        assert spent(front) == ((0, 0, 0) if flags else (0, 1, 0))
        assert (mount.path / "a/b/small").stat().st_size == 5


def test_a_listing_says_that_it_is_denied(weed: Server, work: Path) -> None:
    """A listing that S3 denies is EACCES, also after files of that directory were read."""
    with denied(weed, work, "", "--without-listing") as (mount, front):
        assert errno_of(os.listdir, mount.path) == "EACCES"
        assert spent(front) == (1, 0, 0)
        assert (mount.path / "a/b/small").read_bytes() == b"small"
        spent(front)
        for path in (mount.path, mount.path / "a", mount.path / "a/b"):
            assert errno_of(os.listdir, path) == "EACCES"
        lists, heads, gets = spent(front)
        assert gets == 0
        assert (lists, heads <= 2) == (3, True)  # a directory that was looked up long ago may be asked for again
        assert mount.stop() == 0  # so that the log is whole
        assert all("AccessDenied" in line or "listing is denied" in line for line in mount.warnings())


def test_a_name_that_may_not_exist_is_taken_for_a_directory(weed: Server, work: Path) -> None:
    """S3 tells nothing about a name without an object, so it is a directory, without content to read."""
    with denied(weed, work, "", "--without-listing") as (mount, _):
        assert (mount.path / "nothing").is_dir()
        assert errno_of((mount.path / "nothing").read_bytes) == "EISDIR"
        assert errno_of(os.listdir, mount.path / "nothing") == "EACCES"


@pytest.mark.parametrize("flags", [(), ("--metadata-ttl", "indefinite")], ids=["minimal", "indefinite"])
def test_one_prefix_that_may_not_be_listed(weed: Server, work: Path, flags: tuple[str, ...]) -> None:
    """Where only one prefix may not be listed, the rest of the mount is as ever, and below it known paths open."""
    with denied(weed, work, "a/b", *flags) as (mount, front):
        assert sorted(os.listdir(mount.path)) == ["a", "top"]
        assert os.listdir(mount.path / "a") == ["b"]
        assert errno_of(os.listdir, mount.path / "a/b") == "EACCES"
        front.reset()
        assert (mount.path / "a/b/small").read_bytes() == b"small"
        lists, heads, gets = spent(front)
        assert (heads, gets) == (1, 1)
        assert lists == 2  # the one for the name, and that of what would be below it
        assert (mount.path / "a/b/other").read_bytes() == b"other"
        assert spent(front) == (1, 1, 1)
        assert (mount.path / "top").read_bytes() == b"top"
        assert spent(front) == (0, 0, 1)


def test_a_permission_that_comes_later_is_used(weed: Server, work: Path) -> None:
    """A listing that S3 permits after all is answered, without a new mount."""
    with denied(weed, work, "", "--without-listing") as (mount, front):
        assert errno_of(os.listdir, mount.path) == "EACCES"
        front.decide = None
        assert sorted(os.listdir(mount.path)) == ["a", "top"]
        assert os.listdir(mount.path / "a") == ["b"]
