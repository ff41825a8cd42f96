"""Names that programs change on real mounts: renames, removals, links, and what other mounts and clients see."""

import ctypes
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.mount.test_writes import Bucket, bucket_on, errno_of
from tests.support.mounts import SOON_S, mounted
from tests.support.processes import wait_until
from tests.support.servers import Server

AT_FDCWD = -100
RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2
MIB = 1 << 20
libc = ctypes.CDLL(None, use_errno=True)


@pytest.fixture
def rw(weed: Server, work: Path) -> Iterator[Bucket]:
    """A new bucket, where everything may be written."""
    with bucket_on(weed, work, "--rw") as bucket:
        yield bucket


@pytest.fixture(params=["weed", "moto_server"])
def either(request: pytest.FixtureRequest, work: Path) -> Iterator[Bucket]:
    """The same on each kind of server: one keeps the conditions of copies, the other ignores them."""
    with bucket_on(request.getfixturevalue(request.param), work, "--rw") as bucket:
        yield bucket


def renameat2(old: Path, new: Path, flags: int) -> str:
    result = libc.renameat2(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), flags)
    return errno.errorcode[ctypes.get_errno()] if result else "no error"


def test_files_are_renamed(either: Bucket) -> None:
    """A file has its new name, content, inode number and mode at once, replaced or not, and S3 has it only there."""
    path = either.path
    (path / "d").mkdir()
    for name in "abc":
        (path / name).write_text(name)
    (path / "a").chmod(0o600)
    number = (path / "a").stat().st_ino
    os.rename(path / "a", path / "d/n")
    found = (path / "d/n").stat()
    assert (found.st_ino, found.st_mode & 0o777) == (number, 0o600)
    os.replace(path / "b", path / "c")
    assert (path / "c").read_text() == "b"
    assert sorted(os.listdir(path)) == ["c", "d"]
    assert either.listed() == ["c", "d/", "d/n"]
    assert either.get("d/n") == b"a"


def test_flags_of_rename(either: Bucket) -> None:
    """RENAME_NOREPLACE refuses a name that is taken with EEXIST, RENAME_EXCHANGE is EINVAL, and kinds do not mix."""
    path = either.path
    (path / "a").write_text("a")
    (path / "b").write_text("b")
    (path / "d/e").mkdir(parents=True)
    (path / "f").mkdir()
    assert renameat2(path / "a", path / "b", RENAME_NOREPLACE) == "EEXIST"
    assert renameat2(path / "a", path / "c", RENAME_NOREPLACE) == "no error"
    assert renameat2(path / "b", path / "c", RENAME_EXCHANGE) == "EINVAL"
    assert errno_of(os.rename, path / "c", path / "d") == "EISDIR"
    assert errno_of(os.rename, path / "d", path / "c") == "ENOTDIR"
    assert errno_of(os.rename, path / "f", path / "d") == "ENOTEMPTY"
    assert errno_of(os.rename, path / "d", path / "d/e/g") == "EINVAL"
    assert errno_of(os.rmdir, path / "d") == "ENOTEMPTY"
    assert errno_of(os.rmdir, path / "c") == "ENOTDIR"
    assert errno_of(os.unlink, path / "d") == "EISDIR"
    assert either.listed() == ["b", "c", "d/", "d/e/", "f/"]


def test_an_open_file_is_renamed(rw: Bucket) -> None:
    """A file renamed before its close is in S3 under the new name, whole, and what is written after it is added."""
    path = rw.path
    (path / "model").write_bytes(b"old")
    with open(path / "tmp", "wb", buffering=0) as file:
        file.write(b"x" * (9 * MIB))
        number = os.fstat(file.fileno()).st_ino
        os.replace(path / "tmp", path / "model")
        assert rw.get("model") == b"x" * (9 * MIB)
        file.write(b"end")
        assert os.fstat(file.fileno()).st_ino == number
    assert rw.get("model") == b"x" * (9 * MIB) + b"end"
    assert (path / "model").stat().st_ino == number
    assert rw.listed() == ["model"]


def test_directories_are_renamed(rw: Bucket) -> None:
    """A directory is renamed with everything in it: files that are open, read or written, and directories entered."""
    path = rw.path
    (path / "d/s").mkdir(parents=True)
    for n in range(30):
        (path / f"d/{n}").write_text(str(n))
    inside = os.open(path / "d/s", os.O_RDONLY | os.O_DIRECTORY)
    with open(path / "d/s/w", "wb", buffering=0) as file, open(path / "d/7", "rb") as reading:
        file.write(b"1")
        numbers = {name: (path / "d" / name).stat().st_ino for name in ("7", "s", "s/w")}
        os.rename(path / "d", path / "n")
        file.write(b"2")
        assert reading.read() == b"7"
        assert os.listdir(inside) == ["w"]
        assert {name: (path / "n" / name).stat().st_ino for name in numbers} == numbers
    os.close(inside)
    assert os.listdir(path) == ["n"]
    assert rw.get("n/s/w") == b"12"
    assert [key for key in rw.listed() if not key.startswith("n/")] == []
    assert {int(name) for name in os.listdir(path / "n") if name != "s"} == set(range(30))
    (path / "d").mkdir()
    assert os.listdir(path / "d") == []


def test_a_tree_is_removed(rw: Bucket) -> None:
    """rm -rf of directories and files leaves nothing, here and in S3, and the directory can be made again."""
    for n in range(60):
        rw.put(f"d/{n % 3}/{n}", b"x")
    subprocess.run(["rm", "-rf", rw.path / "d"], check=True)
    assert os.listdir(rw.path) == []
    wait_until(lambda: rw.listed() == [], SOON_S, "the last marker")
    (rw.path / "d/0").mkdir(parents=True)
    assert [os.listdir(rw.path), os.listdir(rw.path / "d"), os.listdir(rw.path / "d/0")] == [["d"], ["0"], []]


def test_removed_while_it_is_open(rw: Bucket) -> None:
    """A file that is removed while it is open is read and written on; its directory, removed, still answers."""
    (rw.path / "d").mkdir()
    rw.put("d/large", b"y" * (12 * MIB))
    with open(rw.path / "d/large", "rb", buffering=0) as reading, open(rw.path / "d/w", "w+b", buffering=0) as writing:
        writing.write(b"123")
        os.unlink(rw.path / "d/large")
        os.unlink(rw.path / "d/w")
        directory = os.open(rw.path / "d", os.O_RDONLY)
        assert os.listdir(rw.path / "d") == []
        os.rmdir(rw.path / "d")
        assert (os.fstat(reading.fileno()).st_nlink, os.fstat(writing.fileno()).st_nlink) == (0, 0)
        assert reading.read(12 * MIB) == b"y" * (12 * MIB)
        writing.seek(1)
        assert writing.read() == b"23"
        assert os.fstat(directory).st_nlink == 0
        assert os.listdir(directory) == []
        os.close(directory)
    wait_until(lambda: rw.listed() == [], SOON_S, "the DELETEs")


def test_links_race(weed: Server, work: Path) -> None:
    """Of eight threads on two mounts that link one name at once exactly one wins, and the content is its own."""
    name = weed.make_bucket()
    (work / "1").mkdir()
    (work / "2").mkdir()
    with mounted(name, work / "1", "--rw", url=weed.url) as one, mounted(name, work / "2", "--rw", url=weed.url) as two:
        mounts = [one.path, two.path] * 4
        for n, path in enumerate(mounts):
            (path / f"source-{n}").write_text(str(n))

        def link(n: int, round_: int) -> str:
            return errno_of(os.link, mounts[n] / f"source-{n}", mounts[n] / f"commit-{round_}")

        for round_ in range(5):
            with ThreadPoolExecutor(8) as threads:
                outcomes = list(threads.map(link, range(8), [round_] * 8))
            assert sorted(outcomes) == ["EEXIST"] * 7 + ["no error"]
            winner = outcomes.index("no error")
            assert (two.path / f"commit-{round_}").read_text() == str(winner)


def test_a_link_of_what_is_not_saved(either: Bucket) -> None:
    """A hard link of a file that is being written is a copy of what was written; cp -l and ln make such links."""
    path = either.path
    with open(path / "a", "wb", buffering=0) as file:
        file.write(b"1")
        os.link(path / "a", path / "b")
        file.write(b"2")
    assert (either.get("a"), either.get("b")) == (b"12", b"1")
    subprocess.run(["cp", "-l", path / "a", path / "c"], check=True)
    assert errno_of(os.link, path / "a", path / "c") == "EEXIST"
    assert (path / "c").read_bytes() == b"12"
    assert (path / "c").stat().st_nlink == 1


def test_symbolic_links(rw: Bucket, weed: Server, work: Path) -> None:
    """Symbolic links are followed, listed, renamed and removed, and another mount sees the same."""
    path = rw.path
    (path / "d").mkdir()
    (path / "d/file").write_text("content")
    os.symlink("d/file", path / "link")
    os.symlink("d", path / "directory")
    os.symlink("nowhere", path / "dangling")
    assert (path / "link").read_text() == "content"
    assert os.readlink(path / "dangling") == "nowhere"
    assert os.listdir(path / "directory") == ["file"]
    assert errno_of(os.symlink, "x", path / "link") == "EEXIST"
    (work / "other").mkdir()
    with mounted(rw.name, work / "other", url=weed.url) as other:
        assert {each.name: each.is_symlink() for each in os.scandir(other.path)} == {
            "d": False, "link": True, "directory": True, "dangling": True,
        }  # fmt: skip
        assert (other.path / "directory/file").read_text() == "content"
        assert os.lstat(other.path / "link").st_size == len("d/file")
    os.rename(path / "link", path / "d/moved")
    assert os.readlink(path / "d/moved") == "d/file"
    os.unlink(path / "d/moved")
    os.unlink(path / "directory")
    os.replace(path / "d/file", path / "dangling")
    assert (path / "dangling").read_text() == "content"
    assert not (path / "dangling").is_symlink()
    shutil.rmtree(path / "d")
    assert os.listdir(path) == ["dangling"]
    wait_until(lambda: rw.listed() == ["dangling"], SOON_S, "the DELETEs")


def test_the_layout_of_the_hub_cache(rw: Bucket) -> None:
    """The layout of the Hugging Face hub's cache works: blobs by rename, relative links, locks, refs, revisions."""
    code = """
import fcntl, os, sys
from pathlib import Path
repo = Path(sys.argv[1]) / "models--x--y"
for name in ("blobs", "refs", "snapshots/rev1", "snapshots/rev2"):
    (repo / name).mkdir(parents=True, exist_ok=True)
lock = repo / "blobs/abc.lock"
with open(lock, "w") as held:
    fcntl.flock(held, fcntl.LOCK_EX)
    number = os.fstat(held.fileno()).st_ino
    partial = repo / "blobs/abc.incomplete"
    with open(partial, "wb") as file:
        file.write(b"weights" * 1000)
    os.replace(partial, repo / "blobs/abc")
    for revision in ("rev1", "rev2"):
        pointer = repo / "snapshots" / revision / "model.bin"
        os.symlink("../../blobs/abc", pointer)
        assert pointer.resolve() == (repo / "blobs/abc").resolve(), pointer.resolve()
        assert pointer.read_bytes() == b"weights" * 1000
    assert os.stat(lock).st_ino == number
(repo / "refs/main").write_text("rev1")
lock.unlink()
os.unlink(repo / "snapshots/rev1/model.bin")
os.rmdir(repo / "snapshots/rev1")
print(sorted(os.path.relpath(os.path.join(top, name), repo) for top, _, names in os.walk(repo) for name in names))
"""
    out = subprocess.run([sys.executable, "-c", code, rw.path], check=True, capture_output=True, text=True).stdout
    assert out.strip() == "['blobs/abc', 'refs/main', 'snapshots/rev2/model.bin']"


def test_directories_of_other_hosts(weed: Server, work: Path) -> None:
    """A directory made on one mount is seen on another within a second, and of two that make one at once both go on."""
    name = weed.make_bucket()
    (work / "1").mkdir()
    (work / "2").mkdir()
    with mounted(name, work / "1", "--rw", url=weed.url) as one, mounted(name, work / "2", "--rw", url=weed.url) as two:
        assert not (two.path / "d").exists()
        (one.path / "d").mkdir()
        wait_until((two.path / "d").is_dir, SOON_S, "the directory")
        assert errno_of(os.mkdir, two.path / "d") == "EEXIST"

        def make(mount: Path) -> None:
            for n in range(10):
                (mount / f"e{n}/f/g").mkdir(parents=True, exist_ok=True)

        with ThreadPoolExecutor(2) as threads:
            list(threads.map(make, [one.path, two.path]))
        assert sorted(os.listdir(two.path)) == ["d", *(f"e{n}" for n in range(10))]
