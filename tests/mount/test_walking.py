"""Whole trees and large directories through the kernel: what a walk costs, and that it is complete.

The bucket is in memory and exact: LIST is what `FakeStore` answers, and there is nothing else to ask.
A key is never asked for by HEAD or GET here, so that every request that is not a LIST is a fault.
"""

import glob
import math
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import quote
from xml.sax.saxutils import escape

import pytest
import trio

from tests.support.content import make_content
from tests.support.fake_store import FakeStore
from tests.support.mounts import Mount, aws_environment, mounted
from tests.support.processes import wait_until
from tests.support.proxy import Fault, error_answer, proxy
from tests.support.scripted import Call, Scripted, answer, scripted
from tests.support.servers import Server, make_client

pytestmark = [pytest.mark.mount, pytest.mark.server]

BUCKET = "walked-bucket"
INDEFINITE = ("--metadata-ttl", "indefinite")
_TREE = [f"data/d{directory:03}/f{file:02}" for directory in range(200) for file in range(50)]
_NAMES = [f"{number:05}.bin" for number in range(20_000)]
_PAGES = math.ceil(len(_NAMES) / 1000)
#: LISTs of a walk beyond 1.2 of its pages: the name `data` and its listing, the two directories before the
#: third shows that it is a walk, the page on which a serial listing ends, and one page read ahead in vain.
_AROUND_A_WALK = 6


class ListedBucket:
    """A script: the answers to LIST, from a `FakeStore`."""

    def __init__(self, keys: list[str]) -> None:
        self._store = FakeStore()
        for key in keys:
            self._store.put(key, b"x", mtime_s=1_600_000_000)

    def __call__(self, call: Call) -> bytes:
        if not call.is_list:
            return error_answer(404, "NoSuchKey")
        query = call.query
        page = trio.run(
            partial(
                self._store.list_page,
                query.get("prefix", ""),
                delimiter=query.get("delimiter", ""),
                token=query.get("continuation-token"),
                max_keys=int(query.get("max-keys", "1000")),
                start_after=query.get("start-after", ""),
            )
        )
        items = [
            f"<Contents><Key>{quote(found.key)}</Key><LastModified>2020-09-13T12:26:40.000Z</LastModified>"
            f"<ETag>{escape(found.etag)}</ETag><Size>{found.size}</Size></Contents>"
            for found in page.objects
        ]
        items += [f"<CommonPrefixes><Prefix>{quote(each)}</Prefix></CommonPrefixes>" for each in page.prefixes]
        more = "" if page.next_token is None else f"<NextContinuationToken>{page.next_token}</NextContinuationToken>"
        xml = (
            '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><EncodingType>url</EncodingType>'
            f"<Name>{BUCKET}</Name><IsTruncated>{'true' if more else 'false'}</IsTruncated>{more}{''.join(items)}"
            "</ListBucketResult>"
        )
        return answer(200, xml.encode(), Content_Type="application/xml")


@pytest.fixture(scope="module")
def tree() -> ListedBucket:
    """200 directories of 50 files."""
    return ListedBucket(_TREE)


@pytest.fixture(scope="module")
def large() -> ListedBucket:
    """One directory of 20,000 files."""
    return ListedBucket([f"big/{name}" for name in _NAMES])


@contextmanager
def counted(
    bucket: Callable[[Call], bytes], work: Path, *flags: str, env: dict[str, str] | None = None
) -> Iterator[tuple[Mount, Scripted]]:
    """A mount of a bucket, whose server has forgotten the requests of the start."""
    with scripted(bucket) as server, mounted(BUCKET, work, *flags, url=server.url, env=env) as mount:
        server.reset()
        yield mount, server


def spent(server: Scripted) -> int:
    """LISTs since the last call; nothing else was asked."""
    with server.lock:
        calls = list(server.calls)
        server.calls.clear()
    assert [call.target for call in calls if not call.is_list] == []
    return len(calls)


# -- walks --------------------------------------------------------------------------------------


def by_os_walk(top: Path) -> set[str]:
    return {os.path.join(at, name) for at, _, names in os.walk(top) for name in names}


def by_find(top: Path) -> set[str]:
    run = subprocess.run(["find", top, "-type", "f"], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def by_glob(top: Path) -> set[str]:
    return {path for path in glob.glob(f"{top}/**", recursive=True) if "/f" in path.removeprefix(str(top))}


def by_rglob(top: Path) -> set[str]:
    return {str(path) for path in top.rglob("f*")}


WALKS = {"os.walk": by_os_walk, "find": by_find, "glob": by_glob, "rglob": by_rglob}
#: Times that a program lists each directory; the minimal mode lists anew for each.
LISTINGS_OF = {"rglob": 2}


def listed_by_boto3(server: Scripted, prefix: str) -> set[str]:
    pages = make_client(server.url).get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
    return {found["Key"] for page in pages for found in page["Contents"]}


@pytest.mark.parametrize(
    ("how", "flags"),
    [("os.walk", INDEFINITE), ("os.walk", ()), ("find", ()), ("glob", INDEFINITE), ("rglob", ())],
    ids=lambda value: value if isinstance(value, str) else "indefinite" if value else "minimal",
)
def test_a_walk_costs_the_pages_of_its_subtree(
    tree: ListedBucket, work: Path, how: str, flags: tuple[str, ...]
) -> None:
    """Whatever walks, a tree comes whole by at most 1.2 LISTs for each 1,000 keys and no HEAD, with a TTL only once.

    Without one a page is good for a second, and a stall of the machine can outlast that: one of three walks must do.
    """
    n_listings = 1 if flags else LISTINGS_OF.get(how, 1)
    bound = n_listings * (1.2 * math.ceil(len(_TREE) / 1000) + _AROUND_A_WALK)
    with counted(tree, work, *flags) as (mount, server):
        expected = listed_by_boto3(server, "data/")
        costs = []
        for _ in range(3):
            spent(server)
            found = WALKS[how](mount.path / "data")
            costs.append(spent(server))
            assert {path.removeprefix(f"{mount.path}/") for path in found} == expected
            if not flags and costs[-1] <= bound:
                break
        assert costs[1:] == [0, 0] if flags else min(costs) <= bound
        assert costs[0] <= bound or not flags
        assert mount.warnings() == []


@pytest.mark.parametrize("flags", [INDEFINITE, ()], ids=["indefinite", "minimal"])
def test_a_walk_through_less_than_a_page(work: Path, flags: tuple[str, ...]) -> None:
    """100 directories of 5 files, all on the last page of their flat listing, cost no LIST each."""
    keys = {f"data/d{directory:03}/f{file}" for directory in range(100) for file in range(5)}
    costs = []
    with counted(ListedBucket(sorted(keys)), work, *flags) as (mount, server):
        for _ in range(3):  # as above
            found = by_find(mount.path / "data")
            costs.append(spent(server))
            assert {path.removeprefix(f"{mount.path}/") for path in found} == keys
    assert min(costs[:1] if flags else costs) <= _AROUND_A_WALK


# -- one large directory ------------------------------------------------------------------------


def list_names(path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(["ls", "-f1", path], stdout=subprocess.PIPE, text=True)


def names_of(program: subprocess.Popen[str]) -> list[str]:
    out, _ = program.communicate(timeout=200)
    assert program.returncode == 0
    return sorted(set(out.split()) - {".", ".."})


@pytest.mark.parametrize("flags", [INDEFINITE, ()], ids=["indefinite", "minimal"])
def test_a_large_directory_costs_its_pages(large: ListedBucket, work: Path, flags: tuple[str, ...]) -> None:
    """A directory of 20,000 names shows each once, by at most 1.2 LISTs a page, however many are asked for at once."""
    with counted(large, work, *flags) as (mount, server):
        assert names_of(list_names(mount.path / "big")) == _NAMES
        assert spent(server) <= 1.2 * _PAGES
        assert mount.warnings() == []


def test_a_reader_that_stops_stops_the_listing(large: ListedBucket, work: Path) -> None:
    """A program that reads one of 20,000 names and stops, as `ls -f | head -1`, has a few pages read, not twenty."""
    with counted(large, work) as (mount, server):
        with os.scandir(mount.path / "big") as entries:  # how far `ls` comes before it hears of `head` is chance
            assert next(entries).name in _NAMES
        os.listdir(mount.path)  # a request of the same loop comes after what was cancelled
        assert spent(server) <= 6
        assert mount.warnings() == []


def is_reading_directory(program: subprocess.Popen[str]) -> bool:
    """Whether a process waits for its directory to be read: getdents64 is system call 217 on x86-64, 61 on others."""
    return Path(f"/proc/{program.pid}/syscall").read_text(encoding="ascii").split()[0] in ("217", "61")


def test_two_readers_share_the_pages(large: ListedBucket, work: Path) -> None:
    """Two processes that list a directory at the same time cost its pages once, with a TTL."""
    may_answer = threading.Event()

    def gated(call: Call) -> bytes:
        if call.query.get("prefix") == "big/":
            may_answer.wait(120)
        return large(call)

    with counted(gated, work, *INDEFINITE) as (mount, server):
        programs = [list_names(mount.path / "big") for _ in range(2)]
        for program in programs:
            wait_until(lambda program=program: is_reading_directory(program), 60, "reading")  # type: ignore[misc]
        may_answer.set()
        assert [names_of(program) for program in programs] == [_NAMES, _NAMES]
        assert spent(server) <= 1.2 * _PAGES
        assert mount.warnings() == []


# -- opens without a listing --------------------------------------------------------------------


def test_opens_of_many_names_of_one_directory(weed: Server, work: Path) -> None:
    """300 opens in a directory that nobody listed cost 300 GETs, no HEAD, and few LISTs.

    Four misses start the listing; the eight threads that are under way meanwhile ask for two names each at most.
    """
    bucket = weed.make_bucket()
    contents = {f"f{number:03}": make_content(f"{number}", 1000) for number in range(300)}
    with ThreadPoolExecutor(8) as pool:
        for name, content in contents.items():
            pool.submit(weed.client.put_object, Bucket=bucket, Key=f"d/{name}", Body=content)
    with proxy(weed.url) as front, mounted(bucket, work, *INDEFINITE, url=front.url) as mount:
        front.reset()
        # So far away that the listing has come before a thread asks for a third name.
        front.decide = lambda request: Fault(stall_s=0.5) if "prefix=d%2Ff" in request.target else None
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda name: (mount.path / "d" / name).read_bytes(), contents))
        assert found == list(contents.values())
        assert front.count("GET", is_list=False) == len(contents)
        assert front.count("HEAD") == 0
        assert front.count(is_list=True) <= 4 + 2 * 8
        assert mount.warnings() == []


# -- throttled ----------------------------------------------------------------------------------


def test_a_throttled_listing_completes(large: ListedBucket, work: Path) -> None:
    """A listing whose pages S3 refuses twice each, as too many, is complete, and no log tells of it."""
    refused: dict[str, int] = {}
    lock = threading.Lock()

    def throttling(call: Call) -> bytes:
        with lock:
            refused[call.target] = refused.get(call.target, 0) + 1
            is_refused = call.query.get("prefix") == "big/" and refused[call.target] <= 2
        return error_answer(503, "SlowDown", "Please reduce your request rate.") if is_refused else large(call)

    with counted(throttling, work, env=aws_environment(AWS_MAX_ATTEMPTS="5")) as (mount, server):
        assert names_of(list_names(mount.path / "big")) == _NAMES
        assert 3 * _PAGES <= spent(server) <= 3 * 1.2 * _PAGES
        assert mount.warnings() == []


def test_a_listing_throttled_for_ever_fails_and_the_next_works(large: ListedBucket, work: Path) -> None:
    """A listing whose later pages S3 always refuses is EIO after the retries; when S3 recovers it is whole."""
    is_busy = threading.Event()
    is_busy.set()

    def throttling(call: Call) -> bytes:
        if is_busy.is_set() and call.query.get("prefix") == "big/" and "continuation-token" in call.query:
            return error_answer(503, "SlowDown", "Please reduce your request rate.")
        return large(call)

    environment = aws_environment(AWS_MAX_ATTEMPTS="2")
    with counted(throttling, work, "--on-outage", "error", env=environment) as (mount, _):
        with pytest.raises(OSError, match="Input/output error"):
            os.listdir(mount.path / "big")
        is_busy.clear()
        assert sorted(os.listdir(mount.path / "big")) == _NAMES
        assert mount.stop() == 0  # so that the log is whole
        [line] = mount.warnings()
        assert "readdir: EIO: S3 answered 503 SlowDown" in line
