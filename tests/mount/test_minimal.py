"""Real mounts in the minimal mode, the default: what each step asks S3, and that the next open is never wrong.

And who may do what: the kernel does not check permissions unless other users may come in.
"""

import errno
import hashlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from s3mount.units import KIB, MIB
from tests.mount.test_ttl import counted, is_there, put
from tests.support.content import make_content
from tests.support.mounts import COMMAND, Mount
from tests.support.namespaces import NOBODY, PUBLIC_FUSE_DEV, as_nobody, in_namespace
from tests.support.processes import wait_until
from tests.support.proxy import Proxy
from tests.support.refusals import processes_of
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server]

_ROUNDS = 50


def spent(front: Proxy) -> tuple[int, int, int]:
    """LIST, HEAD and GET requests since the last call."""
    counts = front.count(is_list=True), front.count("HEAD"), front.count("GET", is_list=False)
    front.reset()
    return counts


def age() -> None:
    """What is known becomes older than the second for which it may be used: the promise is about time."""
    time.sleep(1.1)  # noqa: TID251


@contextmanager
def holding(weed: Server, work: Path, contents: dict[str, bytes], *flags: str) -> Iterator[tuple[Mount, Proxy, str]]:
    """A mount of a bucket with these objects; all of them were listed."""
    bucket = weed.make_bucket()
    for key, content in contents.items():
        put(weed, bucket, key, content)
    with counted(weed, bucket, work, *flags) as (mount, front):
        os.listdir(mount.path)
        front.reset()
        yield mount, front, bucket
        assert mount.warnings() == []


def assert_one_head(costs: list[tuple[int, int, int]]) -> None:
    """A HEAD for each open, and a GET only of what the kernel dropped: it may at any time, but not always."""
    assert {(lists, heads) for lists, heads, _ in costs} == {(0, 1)}
    assert (0, 1, 0) in costs


# -- what it costs ------------------------------------------------------------------------------


def test_a_known_small_file_is_one_request_for_each_open(weed: Server, work: Path) -> None:
    """A known file of at most 1 MiB is one request for each open, however old the listing is: one GET, or one HEAD
    when the kernel has the content."""
    content = make_content("small", 300 * KIB)
    with holding(weed, work, {"new": content, "old": content}) as (mount, front, _):
        assert (mount.path / "new").read_bytes() == content
        assert spent(front) == (0, 0, 1)
        costs = []
        for _ in range(4):
            assert (mount.path / "new").read_bytes() == content
            costs.append(spent(front))
            age()
        assert_one_head(costs)
        assert (mount.path / "old").read_bytes() == content
        assert spent(front) == (0, 0, 1)


def test_a_known_empty_file_is_one_head_for_each_open(weed: Server, work: Path) -> None:
    """There is nothing to GET, so a HEAD says that it is still empty."""
    with holding(weed, work, {"empty": b""}) as (mount, front, _):
        for _ in range(2):
            age()
            assert (mount.path / "empty").read_bytes() == b""
            assert spent(front) == (0, 1, 0)


def test_a_known_large_file_is_asked_for_by_its_content(weed: Server, work: Path) -> None:
    """Not delivered: GETs, and the first, of its head, is the proof; delivered: one HEAD."""
    content = make_content("large", 3 * MIB)
    with holding(weed, work, {"large": content}) as (mount, front, _):
        age()
        assert (mount.path / "large").read_bytes() == content
        assert front.requests[0].headers["range"] == f"bytes=0-{MIB - 1}"
        lists, heads, gets = spent(front)
        assert (lists, heads) == (0, 0)
        assert 2 <= gets <= 4
        costs = []
        for _ in range(4):
            age()
            assert (mount.path / "large").read_bytes() == content
            costs.append(spent(front))
        assert_one_head(costs)


def test_an_unknown_path_is_one_list_for_each_component(weed: Server, work: Path) -> None:
    """One LIST for each component and the GET of the content: the look-up vouches for the open."""
    bucket = weed.make_bucket()
    with counted(weed, bucket, work) as (mount, front):
        put(weed, bucket, "a/b/c/f", b"content")
        assert (mount.path / "a/b/c/f").read_bytes() == b"content"
        assert spent(front) == (4, 0, 1)
        put(weed, bucket, "g", b"")
        assert (mount.path / "g").read_bytes() == b""
        assert spent(front) == (1, 0, 0)


def test_a_known_path_of_many_components_is_one_request(weed: Server, work: Path) -> None:
    """The directories on the way to a known file are not asked for again, open after open."""
    with holding(weed, work, {"a/b/f": b"content"}) as (mount, front, _):
        assert (mount.path / "a/b/f").read_bytes() == b"content"
        spent(front)
        costs = []
        for _ in range(4):
            age()
            assert (mount.path / "a/b/f").read_bytes() == b"content"
            costs.append(spent(front))
        assert_one_head(costs)


def test_a_stat_of_a_known_file(weed: Server, work: Path) -> None:
    """One LIST when the answer is older than a second, then nothing for a second (unless a stall outlasts that)."""
    costs = []
    with holding(weed, work, {"f": b"content"}) as (mount, front, _):
        for _ in range(3):
            age()
            assert (mount.path / "f").stat().st_size == 7
            assert spent(front) == (1, 0, 0)
            assert (mount.path / "f").stat().st_size == 7
            costs.append(spent(front))
    assert (0, 0, 0) in costs


READ_ALL = """
import sys
top, rounds, *names = sys.argv[1:]
for _ in range(int(rounds)):
    for name in names:
        with open(f"{top}/{name}", "rb") as file:
            assert file.read() == name.encode()
"""


def test_eight_processes_open_known_files(weed: Server, work: Path) -> None:
    """Each open is one request: the content's GET the first time, a HEAD later; a LIST only where a file is open
    elsewhere.
    """
    names = [f"f{number:03}" for number in range(96)]
    rounds = 3
    command = [sys.executable, "-c", READ_ALL]
    with holding(weed, work, {name: name.encode() for name in names}) as (mount, front, _):
        apart = [[*command, str(mount.path), str(rounds), *names[first::8]] for first in range(8)]
        assert [program.wait(200) for program in [subprocess.Popen(each) for each in apart]] == [0] * 8
        assert spent(front) == (0, (rounds - 1) * len(names), len(names))
        shuffled = [random.Random(seed).sample(names, len(names)) for seed in range(8)]
        together = [[*command, str(mount.path), str(rounds), *each] for each in shuffled]
        assert [program.wait(200) for program in [subprocess.Popen(each) for each in together]] == [0] * 8
        lists, heads, gets = spent(front)
        assert gets == 0
        assert max(heads, 4 * lists) <= 8 * rounds * len(names)


# -- what another client did --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "flags"),
    [(100 * KIB, ()), (3 * MIB, ()), (100 * KIB, ("--allow-other",))],
    ids=["small", "large", "small, allow-other"],
)
def test_the_next_open_reads_a_replacement(weed: Server, work: Path, size: int, flags: tuple[str, ...]) -> None:
    """A file that was replaced is read new by the very next open, at once, whatever the kernel had of it."""
    with holding(weed, work, {"f": b"first"}, *flags) as (mount, _, bucket):
        for number in range(_ROUNDS):
            content = make_content(str(number), size + number // 2 % 2)  # every other of one size
            put(weed, bucket, "f", content)
            for _ in range(1 + number % 3 % 2):
                assert (mount.path / "f").read_bytes() == content


MAP_EACH = """
import hashlib, mmap, sys
for path in sys.stdin:
    with open(path[:-1], "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapping:
        print(hashlib.sha256(mapping).hexdigest(), flush=True)
"""


@pytest.mark.parametrize("size", [100 * KIB, 3 * MIB], ids=["small", "large"])
def test_the_next_mapping_shows_a_replacement(weed: Server, work: Path, size: int) -> None:
    """A replacement of the same size and second is what the next open maps."""
    program = subprocess.Popen(
        [sys.executable, "-c", MAP_EACH], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert program.stdin is not None
    assert program.stdout is not None
    with holding(weed, work, {"f": make_content("", size)}) as (mount, _, bucket), program:
        for number in range(_ROUNDS):
            content = make_content(str(number), size)
            put(weed, bucket, "f", content)
            program.stdin.write(f"{mount.path}/f\n")
            assert program.stdout.readline().strip() == hashlib.sha256(content).hexdigest()
        program.stdin.close()


def test_the_next_open_of_a_deleted_file_fails(weed: Server, work: Path) -> None:
    """A deleted file is ENOENT for the very next open; one that is made again is there for the next."""
    with holding(weed, work, {"f": b"first"}) as (mount, _, bucket):
        for number in range(_ROUNDS):
            content = b"%d" % number
            put(weed, bucket, "f", content)
            assert (mount.path / "f").read_bytes() == content
            weed.client.delete_object(Bucket=bucket, Key="f")
            with pytest.raises(FileNotFoundError):
                (mount.path / "f").open("rb")
            assert not is_there(mount.path / "f")


@pytest.mark.parametrize("is_held", [False, True], ids=["closed", "open"])
def test_a_stat_is_at_most_a_second_old(weed: Server, work: Path, *, is_held: bool) -> None:
    """After a second stat shows the new size, also of a file that somebody has open; that handle shows its own."""
    with holding(weed, work, {"f": b"1"}) as (mount, _, bucket):
        handles = []
        for size in range(2, 6):
            if is_held:
                handles.append((os.open(mount.path / "f", os.O_RDONLY), size - 1))
            assert (mount.path / "f").stat().st_size == size - 1
            put(weed, bucket, "f", b"x" * size)
            age()
            assert (mount.path / "f").stat().st_size == size
            assert [os.fstat(handle).st_size for handle, _ in handles] == [size for _, size in handles]
        for handle, size in handles:
            assert len(os.pread(handle, 100, 0)) == size
            os.close(handle)


@pytest.mark.parametrize("was_read", [False, True], ids=["listed", "read"])
def test_a_file_that_became_a_directory(moto_server: Server, work: Path, *, was_read: bool) -> None:
    """A path through what was a file a second ago may fail once with ENOTDIR; the next attempt is right."""
    with holding(moto_server, work, {"x": b"file"}) as (mount, _, bucket):
        path = mount.path / "x"
        if was_read:
            assert path.read_bytes() == b"file"
        moto_server.client.delete_object(Bucket=bucket, Key="x")
        put(moto_server, bucket, "x/y", b"below")
        age()
        failures = []
        for _ in range(3):
            try:
                assert (path / "y").read_bytes() == b"below"
            except OSError as error:
                failures.append(error.errno)
        assert failures == [errno.ENOTDIR]
        assert os.listdir(path) == ["y"]
        with pytest.raises(IsADirectoryError):
            path.read_bytes()


@pytest.mark.parametrize("is_old", [False, True], ids=["at once", "later"])
def test_opening_a_file_that_became_a_directory(moto_server: Server, work: Path, *, is_old: bool) -> None:
    """An open of the name itself, or its stat after a second, is right at once."""
    with holding(moto_server, work, {"x": b"file"}) as (mount, _, bucket):
        path = mount.path / "x"
        assert path.read_bytes() == b"file"
        moto_server.client.delete_object(Bucket=bucket, Key="x")
        put(moto_server, bucket, "x/y", b"below")
        if is_old:
            age()
            assert path.is_dir()
        with pytest.raises(IsADirectoryError):
            path.read_bytes()
        assert (path / "y").read_bytes() == b"below"


def test_a_directory_that_became_a_file(moto_server: Server, work: Path) -> None:
    """What was a directory is a file for the next open, a second after its listing at the latest."""
    with holding(moto_server, work, {f"x{number}/y": b"below" for number in range(2)}) as (mount, _, bucket):
        for number in range(2):
            path = mount.path / f"x{number}"
            if number:
                assert os.listdir(path) == ["y"]
                assert (path / "y").read_bytes() == b"below"
            moto_server.client.delete_object(Bucket=bucket, Key=f"{path.name}/y")
            put(moto_server, bucket, path.name, b"file")
            with pytest.raises(OSError, match=r"No such file|Not a directory"):
                (path / "y").read_bytes()
            age()
            assert path.read_bytes() == b"file"
            with pytest.raises(NotADirectoryError):
                (path / "y").read_bytes()


def test_a_directory_that_another_client_removed(moto_server: Server, work: Path) -> None:
    """A second after its last key went, a directory is ENOENT for a listing, `cd` and access."""
    with holding(moto_server, work, {"d/f": b"x", "stays": b"x"}) as (mount, _, bucket):
        assert os.listdir(mount.path / "d") == ["f"]
        assert os.access(mount.path / "d", os.R_OK | os.X_OK)
        moto_server.client.delete_object(Bucket=bucket, Key="d/f")
        age()
        for is_first in (True, False):
            run = subprocess.run(["sh", "-c", 'cd "$0"', mount.path / "d"], capture_output=True, text=True, check=False)
            assert run.returncode != 0, is_first
            assert not os.access(mount.path / "d", os.F_OK)
            with pytest.raises(FileNotFoundError):
                os.listdir(mount.path / "d")
            with pytest.raises(FileNotFoundError):
                (mount.path / "d/f").read_bytes()


def test_with_allow_other_an_open_costs_one_request_more(weed: Server, work: Path) -> None:
    """There the kernel checks permissions, for which it wants attributes: a LIST when they are old."""
    with holding(weed, work, dict.fromkeys("abc", b"content"), "--allow-other") as (mount, front, _):
        costs = []
        for name in "abc":
            os.listdir(mount.path)
            assert (mount.path / name).read_bytes() == b"content"
            costs.append(spent(front))
        assert (1, 0, 1) in costs  # the listing and the content; a stall can outlast a second, but not always
        age()
        assert (mount.path / "a").read_bytes() == b"content"
        assert spent(front) == (1, 1, 0)


# -- permissions --------------------------------------------------------------------------------


def errno_of(call: Callable[..., object], *arguments: object) -> str:
    with pytest.raises(OSError) as caught:  # noqa: PT011
        call(*arguments)
    return errno.errorcode[caught.value.errno or 0]


@pytest.mark.parametrize(("mode", "is_executable"), [("0644", False), ("0010", True), ("0000", False)])
def test_what_root_may(weed: Server, work: Path, mode: str, *, is_executable: bool) -> None:
    """Root may read whatever the mode, execute what anybody may, and write nothing on a mount that only reads."""
    with holding(weed, work, {"d/f": b"x"}, "--file-mode", mode, "--dir-mode", "0000", "--read-only") as (mount, _, _):
        file, directory = mount.path / "d/f", mount.path / "d"
        assert [os.access(file, each) for each in (os.F_OK, os.R_OK, os.X_OK)] == [True, True, is_executable]
        assert os.access(directory, os.R_OK | os.X_OK)
        assert not os.access(file, os.W_OK)
        assert file.read_bytes() == b"x"
        assert errno_of(os.open, file, os.O_WRONLY) == "EROFS"
        assert errno_of(os.open, directory / "new", os.O_WRONLY | os.O_CREAT) == "EROFS"
        assert errno_of(os.unlink, file) == "EROFS"
        assert not os.access(directory / "absent", os.F_OK)


@pytest.mark.parametrize("mode", ["0755", "0644"])
def test_a_script_of_the_mount(weed: Server, work: Path, mode: str) -> None:
    """A script runs when its mode says so, and else is EACCES: the kernel checks that bit itself on every mount."""
    with holding(weed, work, {"script": b"#!/bin/sh\necho ran\n"}, "--file-mode", mode) as (mount, _, _):
        command = ["sh", "-c", 'exec "$0"', mount.path / "script"]  # not by this process, which serves the proxy
        for _ in range(2):
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            assert (run.returncode, run.stdout) == ((0, "ran\n") if mode == "0755" else (126, ""))
            assert ("Permission denied" in run.stderr) == (mode == "0644")
            age()


def test_what_an_ordinary_owner_may(weed: Server) -> None:
    """Who mounted may what the owner's bits of the mode say; nothing of an archived object."""
    bucket = weed.make_bucket()
    put(weed, bucket, "f", b"x")
    weed.client.put_object(Bucket=bucket, Key="cold", Body=b"x", StorageClass="GLACIER")
    path = tempfile.mkdtemp(dir="/var/tmp", prefix="s3mount-test-")
    os.chown(path, NOBODY, NOBODY)
    tell = 'for each in r w x; do if test -$each "$0"; then printf $each; fi; done; echo .'
    script = PUBLIC_FUSE_DEV
    for mode in ("0500", "0466", "0077"):
        flags = ["--endpoint-url", weed.url, "--force-path-style", "--file-mode", mode]
        script += as_nobody(COMMAND, bucket, path, *flags)
        script += as_nobody("sh", "-c", tell, f"{path}/f")
        script += as_nobody("sh", "-c", tell, f"{path}/cold")
        script += f"if {as_nobody('cat', f'{path}/cold').strip()}; then exit 90; fi\n"
        script += as_nobody("fusermount3", "-u", path)
    try:
        result = in_namespace(script)
        assert (result.returncode, result.stdout.split()) == (0, ["rx.", ".", "r.", ".", ".", "."])
        assert result.stderr.count("Permission denied") == 3
        wait_until(lambda: not processes_of(Path(path)), 60, "the daemons ending after their unmounts")
    finally:
        shutil.rmtree(path)
