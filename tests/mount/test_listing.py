"""Directories through the kernel: what is listed, how often, and what it costs."""

import contextlib
import ctypes
import http.client
import os
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.support.mounts import mounted
from tests.support.processes import KEY, REGION, SECRET
from tests.support.proxy import Proxy, proxy
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server]

_N_ENTRIES = 10_000
_NAMES = [f"{number:05}.bin" for number in range(_N_ENTRIES)]


class _Dirent(ctypes.Structure):
    """struct dirent of 64-bit Linux (readdir(3))."""

    _fields_ = (
        ("d_ino", ctypes.c_uint64),
        ("d_off", ctypes.c_int64),
        ("d_reclen", ctypes.c_ushort),
        ("d_type", ctypes.c_ubyte),
        ("d_name", ctypes.c_char * 256),
    )


_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.opendir.restype = ctypes.c_void_p
_LIBC.readdir.restype = ctypes.POINTER(_Dirent)
_LIBC.telldir.restype = ctypes.c_long
for _function in (_LIBC.readdir, _LIBC.telldir, _LIBC.rewinddir, _LIBC.closedir):
    _function.argtypes = [ctypes.c_void_p]
_LIBC.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]


class DirectoryStream:
    """opendir(3) and its company, which Python's own functions hide."""

    def __init__(self, path: Path) -> None:
        self._stream = _LIBC.opendir(os.fsencode(path))
        if not self._stream:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))

    def read(self) -> str | None:
        """The next name, without `.` and `..`; None at the end."""
        while entry := _LIBC.readdir(self._stream):
            name = os.fsdecode(entry.contents.d_name)
            if name not in (".", ".."):
                return name
        return None

    def __iter__(self) -> Iterator[str]:
        return iter(self.read, None)

    def tell(self) -> int:
        return int(_LIBC.telldir(self._stream))

    def seek(self, position: int) -> None:
        _LIBC.seekdir(self._stream, position)

    def rewind(self) -> None:
        _LIBC.rewinddir(self._stream)

    def close(self) -> None:
        _LIBC.closedir(self._stream)


def _put_many(server: Server, bucket: str, keys: list[str]) -> None:
    """One byte under each key, by bare signed requests: boto3 takes three times as long."""
    signer = S3SigV4Auth(Credentials(KEY, SECRET), "s3", REGION)
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc)
    with contextlib.closing(connection):
        for key in keys:
            path = f"/{bucket}/{quote(key)}"
            request = AWSRequest("PUT", server.url + path, {"X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"}, data=b"x")
            signer.add_auth(request)
            connection.request("PUT", path, body=b"x", headers=dict(request.headers))
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200


@pytest.fixture(scope="module")
def big_bucket(weed: Server) -> str:
    """A bucket with 10,000 objects under `big/`."""
    bucket = weed.make_bucket()
    with ThreadPoolExecutor(4) as pool:
        parts = [[f"big/{name}" for name in _NAMES[first::4]] for first in range(4)]
        list(pool.map(lambda keys: _put_many(weed, bucket, keys), parts))
    return bucket


def _lists_in_big(front: Proxy) -> int:
    """LISTs of the directory or of names in it; not those that resolved `big` itself."""
    return sum(request.is_list and "prefix=big%2F" in request.target for request in front.requests)


def test_ten_thousand_entries_cost_ten_lists(weed: Server, big_bucket: str, work: Path) -> None:
    """A directory of 10,000 entries is listed whole by 10 LIST requests and no HEAD."""
    with proxy(weed.url) as front, mounted(big_bucket, work, url=front.url) as mount:
        front.reset()
        assert sorted(os.listdir(mount.path / "big")) == _NAMES
        assert _lists_in_big(front) == 10
        assert front.count() <= 11  # one more to resolve `big` itself
        assert front.count("HEAD") == 0
        assert mount.warnings() == []


def test_attributes_come_with_the_listing(weed: Server, big_bucket: str, work: Path) -> None:
    """`ls -l` of 10,000 entries needs no request beyond the 10 LISTs: attributes come with them.

    An answer is good for a second, so a stall of the machine can cost more; one of three must do.
    """
    requests = []
    with proxy(weed.url) as front, mounted(big_bucket, work, url=front.url) as mount:
        for _ in range(3):
            front.reset()
            run = subprocess.run(["ls", "-lU", mount.path / "big"], capture_output=True, text=True, check=True)
            lines = run.stdout.splitlines()[1:]
            assert {tuple(line.split()[i] for i in (0, 1, 4, 8)) for line in lines} == {
                ("-rw-r--r--", "1", "1", name) for name in _NAMES
            }
            assert front.count("HEAD") == front.count("GET", is_list=False) == 0
            requests.append(_lists_in_big(front))
            if requests[-1] == 10:
                break
        assert requests[-1] == 10
        assert mount.warnings() == []


def test_changes_behind_the_mount_while_listing(weed: Server, big_bucket: str, work: Path) -> None:
    """Entries present all the time are listed exactly once while others come and go."""
    volatile = [f"big/{number:05}.tmp" for number in range(0, _N_ENTRIES, 97)]
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            for key in volatile:
                weed.client.put_object(Bucket=big_bucket, Key=key, Body=b"")
            for key in volatile:
                weed.client.delete_object(Bucket=big_bucket, Key=key)

    other = threading.Thread(target=churn)
    come_and_go = {key.removeprefix("big/") for key in volatile}
    listings: list[Counter[str]] = []
    with mounted(big_bucket, work, url=weed.url) as mount:
        other.start()
        try:
            while len(listings) < 2 or not any(come_and_go & each.keys() for each in listings):
                assert len(listings) < 100
                listings.append(Counter(os.listdir(mount.path / "big")))
        finally:
            stop.set()
            other.join()
        assert mount.warnings() == []
    for listing in listings:
        assert max(listing.values()) == 1
        assert sorted(listing.keys() - come_and_go) == _NAMES


def test_telldir_and_seekdir(weed: Server, big_bucket: str, work: Path) -> None:
    """A position from telldir leads back to the same entry, in any order, however far it was read."""
    with mounted(big_bucket, work, url=weed.url) as mount:
        stream = DirectoryStream(mount.path / "big")
        places = {}
        for name in stream:
            if int(name[:5]) % 777 == 0 and name != _NAMES[-1]:
                places[stream.tell()] = f"{int(name[:5]) + 1:05}.bin"
        assert len(places) == 13
        for position in [*reversed(places), *places]:
            stream.seek(position)
            assert stream.read() == places[position]
        stream.close()
        assert mount.warnings() == []


def test_rewinddir_lists_anew(weed: Server, work: Path) -> None:
    """A directory stream that is rewound shows what the bucket has then, not what it had."""
    bucket = weed.make_bucket()
    for name in ("dir/gone", "dir/stays"):
        weed.client.put_object(Bucket=bucket, Key=name, Body=b"x")
    with mounted(bucket, work, url=weed.url) as mount:
        stream = DirectoryStream(mount.path / "dir")
        assert set(stream) == {"gone", "stays"}
        weed.client.delete_object(Bucket=bucket, Key="dir/gone")
        weed.client.put_object(Bucket=bucket, Key="dir/new", Body=b"x")
        stream.rewind()
        assert set(stream) == {"new", "stays"}
        stream.close()


def test_every_opendir_lists_anew(weed: Server, work: Path) -> None:
    """A listing that starts after a change shows it: listings are not cached."""
    bucket = weed.make_bucket()
    with mounted(bucket, work, url=weed.url) as mount:
        for number in range(5):
            weed.client.put_object(Bucket=bucket, Key=f"{number}", Body=b"x")
            assert set(os.listdir(mount.path)) == {str(each) for each in range(number + 1)}
        weed.client.delete_object(Bucket=bucket, Key="0")
        assert set(os.listdir(mount.path)) == {"1", "2", "3", "4"}


def test_two_streams_do_not_disturb_each_other(weed: Server, big_bucket: str, work: Path) -> None:
    """Two streams of one directory read by turns each see every entry."""
    with mounted(big_bucket, work, url=weed.url) as mount:
        one, two = DirectoryStream(mount.path / "big"), DirectoryStream(mount.path / "big")
        by_turns = list(islice(zip(one, two, strict=True), 2500))
        assert [first for first, _ in by_turns] == _NAMES[:2500]
        assert [second for _, second in by_turns] == _NAMES[:2500]
        one.close()
        two.close()


def test_a_small_tree_is_walked_by_few_lists(weed: Server, work: Path) -> None:
    """`find` in a tree of 13 directories finds every file by at most one LIST each, and asks for nothing else."""
    bucket = weed.make_bucket()
    keys = [f"{outer}/{inner}/{name}" for outer in "abc" for inner in "xyz" for name in ("1", "2")]
    for key in keys:
        weed.client.put_object(Bucket=bucket, Key=key, Body=b"x")
    requests = []
    with proxy(weed.url) as front, mounted(bucket, work, url=front.url) as mount:
        for _ in range(3):
            front.reset()
            run = subprocess.run(
                ["find", ".", "-type", "f"], cwd=mount.path, capture_output=True, text=True, check=True
            )
            assert sorted(run.stdout.split()) == sorted(f"./{key}" for key in keys)
            assert front.count(is_list=False) == 0
            requests.append(front.count())
            if requests[-1] <= 13:
                break
    assert requests[-1] <= 13
