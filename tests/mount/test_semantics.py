"""What the mount shows of a bucket: names, attributes, refusals.

Each docstring quotes a promise of docs/semantics.md.  moto where the rule is about keys that
SeaweedFS cannot store (`//`, `.`, `..`, NUL, backslash, markers with content).
"""

import contextlib
import errno
import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.mounts import SOON_S, Mount, mounted
from tests.support.processes import wait_until
from tests.support.proxy import proxy
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server]


@contextlib.contextmanager
def _mount_of(server: Server, work: Path, keys: dict[str, bytes], *flags: str) -> Iterator[tuple[Mount, str]]:
    """A fresh bucket with these objects, mounted."""
    bucket = server.make_bucket()
    for key, content in keys.items():
        server.client.put_object(Bucket=bucket, Key=key, Body=content)
    with mounted(bucket, work, *flags, url=server.url) as mount:
        yield mount, bucket


def _errno_of(call: Callable[..., Any], *arguments: Any) -> str:
    try:
        call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "no error"


def _tree(path: Path) -> set[str]:
    """Every file below a directory, and every directory with a slash at its end."""
    found = set()
    for directory, names, files in os.walk(path):
        below = Path(directory).relative_to(path)
        found |= {f"{below / name}/" for name in names} | {str(below / name) for name in files}
    return found


# -- names --------------------------------------------------------------------------------------


def test_a_key_is_a_path(weed: Server, work: Path) -> None:
    """A key is a path: its parts between slashes are directories, and need no objects of their own."""
    keys = {key: key.encode() for key in ("top", "a/one", "a/b/two", "a/b/c/d/three")}
    with _mount_of(weed, work, keys) as (mount, _):
        assert _tree(mount.path) == {"a/", "a/b/", "a/b/c/", "a/b/c/d/", *keys}
        for key, content in keys.items():
            assert (mount.path / key).read_bytes() == content
        assert mount.warnings() == []


def test_a_directory_lives_by_its_keys(moto_server: Server, work: Path) -> None:
    """A directory exists exactly as long as some key lies below it."""
    with _mount_of(moto_server, work, {"dir/only": b"x", "other": b"x"}) as (mount, bucket):
        assert (mount.path / "dir").is_dir()
        moto_server.client.delete_object(Bucket=bucket, Key="dir/only")
        wait_until(lambda: not (mount.path / "dir").exists(), SOON_S, "the directory going")
        assert os.listdir(mount.path) == ["other"]
        moto_server.client.put_object(Bucket=bucket, Key="dir/again", Body=b"x")
        wait_until((mount.path / "dir").is_dir, SOON_S, "the directory coming back")


@pytest.mark.parametrize("server", ["weed", "moto_server"])
def test_markers(request: pytest.FixtureRequest, server: str, work: Path) -> None:
    """A key that ends in a slash makes a directory, and is never listed as a file."""
    keys = {"empty/": b"", "full/": b"", "full/file": b"x", "deep/er/": b""}
    with _mount_of(request.getfixturevalue(server), work, keys) as (mount, _):
        assert _tree(mount.path) == {"empty/", "full/", "full/file", "deep/", "deep/er/"}
        assert os.listdir(mount.path / "empty") == []
        assert mount.warnings() == []


def test_a_marker_with_content(moto_server: Server, work: Path) -> None:
    """The content of a directory marker cannot be read, and a warning in the log says so."""
    with _mount_of(moto_server, work, {"marked/": b"content", "marked/file": b"x"}) as (mount, _):
        assert _tree(mount.path) == {"marked/", "marked/file"}
        assert _errno_of((mount.path / "marked").read_bytes) == "EISDIR"
        assert mount.stop() == 0  # so that the log is whole
        [line] = mount.warnings()
        assert "'marked/'" in line
        assert "marker with content" in line


def test_a_directory_hides_a_file(moto_server: Server, work: Path) -> None:
    """A directory hides a file of the same name until the last key below it is gone."""
    with _mount_of(moto_server, work, {"a": b"file", "a/b": b"x", "a-1": b"", "a.txt": b""}) as (mount, bucket):
        assert _tree(mount.path) == {"a/", "a/b", "a-1", "a.txt"}
        as_directory = (mount.path / "a").stat()
        assert _errno_of((mount.path / "a").read_bytes) == "EISDIR"
        moto_server.client.delete_object(Bucket=bucket, Key="a/b")
        wait_until((mount.path / "a").is_file, SOON_S, "the file being seen")
        assert (mount.path / "a").read_bytes() == b"file"
        assert (mount.path / "a").stat().st_ino != as_directory.st_ino
        assert _tree(mount.path) == {"a", "a-1", "a.txt"}
        moto_server.client.put_object(Bucket=bucket, Key="a/c", Body=b"x")
        wait_until((mount.path / "a").is_dir, SOON_S, "the directory being seen")
        assert _tree(mount.path) == {"a/", "a/c", "a-1", "a.txt"}


@pytest.mark.parametrize("server", ["weed", "moto_server"])
def test_siblings_that_sort_between(request: pytest.FixtureRequest, server: str, work: Path) -> None:
    """A directory is found by its name also when keys such as `dir-1/x` or `dir.txt` sort before `dir/`."""
    keys = {f"dir-{number}/x": b"" for number in range(150)} | {"dir/x": b"in dir", "dir.txt": b"txt"}
    with _mount_of(request.getfixturevalue(server), work, keys) as (mount, _):
        assert (mount.path / "dir/x").read_bytes() == b"in dir"  # by look-up, before any listing
        assert (mount.path / "dir").is_dir()
        assert (mount.path / "dir.txt").read_bytes() == b"txt"
        assert (mount.path / "dir-149/x").read_bytes() == b""
        assert set(os.listdir(mount.path)) == {key.removesuffix("/x") for key in keys}


_HIDDEN = ["bad//x", "/lead", "./x", "../x", ".", "..", "up/../x", "up/./x", "nul\0x", "sub/nul\0/x"]


def test_impossible_components(moto_server: Server, work: Path) -> None:
    """A key with a component that is empty, `.`, `..` or holds a NUL byte is hidden from that component on."""
    keys = dict.fromkeys([*_HIDDEN, "bad/ok", "up/ok", "ok", "..."], b"x")
    with _mount_of(moto_server, work, keys) as (mount, _):
        assert _tree(mount.path) == {"bad/", "bad/ok", "up/", "up/ok", "sub/", "ok", "..."}
        assert os.listdir(mount.path / "sub") == []


def test_hidden_keys_are_logged_once(moto_server: Server, work: Path) -> None:
    """Hidden keys are logged once for each directory, not at each listing."""
    with _mount_of(moto_server, work, dict.fromkeys(["bad//x", "bad/ok", "up/../x", "ok", "..", "."], b"x")) as opened:
        mount, _ = opened
        first = _tree(mount.path)
        assert _tree(mount.path) == first
        assert _tree(mount.path) == first
        assert mount.stop() == 0  # so that the log is whole
        lines = mount.warnings()
    assert len(lines) == 3
    for directory, example in (("''", "'.'"), ("'bad/'", "'bad//'"), ("'up/'", "'up/../'")):
        [line] = [line for line in lines if f" in {directory} " in line]
        assert example in line


def test_unicode(weed: Server, work: Path) -> None:
    """Names are UTF-8 and are kept byte for byte: two normal forms of one letter are two files."""
    names = ["é", "e\u0301", "שלום", "数据集", "😀", "Ångström ﬁ", "\u200b", "한글"]
    with _mount_of(weed, work, {f"dïr/{name}": name.encode() for name in names}) as (mount, _):
        assert sorted(os.listdir(mount.path / "dïr")) == sorted(names)
        for name in names:
            assert (mount.path / "dïr" / name).read_bytes() == name.encode()


_ODD = [
    "new\nline",
    "tab\t",
    " spaces ",
    "%41",
    "a+b&c=d?e#f",
    "\"'<>`",
    "\x01\x1b[31m",
    "\x7f",
    "*?[]",
    "~",
    "-rf",
    "a:b",
]


def test_odd_characters(weed: Server, moto_server: Server, work: Path) -> None:
    """A name may hold every character but a slash and NUL: a newline, a quote, a backslash, a control character."""
    with _mount_of(weed, work / "weed", {f"odd/{name}": name.encode() for name in _ODD}) as (mount, _):
        assert sorted(os.listdir(mount.path / "odd")) == sorted(_ODD)
        for name in _ODD:
            assert (mount.path / "odd" / name).read_bytes() == name.encode()
        assert mount.warnings() == []
    with _mount_of(moto_server, work / "moto", {"back\\slash": b"x", "sub\\dir/x": b"y"}) as (mount, _):
        assert _tree(mount.path) == {"back\\slash", "sub\\dir/", "sub\\dir/x"}
        assert (mount.path / "sub\\dir/x").read_bytes() == b"y"


def test_long_keys(moto_server: Server, work: Path) -> None:
    """A key of 1,024 bytes, the longest that S3 has, is a file like any other."""
    deep = "/".join(["é" * 100] * 5) + "/" + "n" * 19
    flat = "f" * 1024
    assert len(deep.encode()) == len(flat) == 1024
    with _mount_of(moto_server, work, {deep: b"deep", flat: b"flat"}) as (mount, _):
        assert (mount.path / deep).read_bytes() == b"deep"
        assert (mount.path / flat).read_bytes() == b"flat"
        assert {deep, flat} <= _tree(mount.path)


def test_names_no_key_can_have(weed: Server, work: Path) -> None:
    """A name that no key can have is refused without a request: ENOENT or ENAMETOOLONG when it is too long,
    EINVAL when it is not UTF-8.
    """
    bucket = weed.make_bucket()
    directory = "d" * 200 + "/" + "e" * 200
    weed.client.put_object(Bucket=bucket, Key=f"{directory}/file", Body=b"x")
    with proxy(weed.url) as front, mounted(bucket, work, url=front.url) as mount:
        assert (mount.path / directory / "file").read_bytes() == b"x"
        for name in ("y" * 1025, f"{directory}/{'y' * 700}"):
            assert _errno_of(os.stat, mount.path / name) in ("ENOENT", "ENAMETOOLONG")
        assert _errno_of(os.stat, mount.path / ("y" * 5000)) == "ENAMETOOLONG"
        assert _errno_of(os.stat, os.fsencode(mount.path) + b"/yyy\xff") == "EINVAL"
        assert not [request for request in front.requests if "yyy" in request.target]
        assert mount.warnings() == []


@pytest.mark.parametrize("spelling", ["s3://{bucket}/data/2024/", "{bucket} --prefix data/2024/"])
def test_a_prefix_mount(weed: Server, work: Path, spelling: str) -> None:
    """With a prefix only the keys under it exist, and names begin after it."""
    bucket = weed.make_bucket()
    for key in ("data/2024/a", "data/2024/sub/b", "data/2024-old/c", "data/d", "top"):
        weed.client.put_object(Bucket=bucket, Key=key, Body=key.encode())
    name, *flags = spelling.format(bucket=bucket).split()
    with mounted(name, work, *flags, url=weed.url) as mount:
        assert _tree(mount.path) == {"a", "sub/", "sub/b"}
        assert (mount.path / "sub/b").read_bytes() == b"data/2024/sub/b"
        assert not (mount.path / "data").exists()


# -- attributes ---------------------------------------------------------------------------------


def test_file_attributes(weed: Server, work: Path) -> None:
    """A file shows the object's size, one link, its size in 512-byte blocks rounded up, and Last-Modified in whole
    seconds as all its times.
    """
    with _mount_of(weed, work, {"f": b"x" * 1025, "empty": b""}) as (mount, bucket):
        stored = weed.client.list_objects_v2(Bucket=bucket, Prefix="f")["Contents"][0]["LastModified"]
        found = (mount.path / "f").stat()
        assert (found.st_size, found.st_nlink, found.st_blocks) == (1025, 1, 3)
        assert found.st_mtime_ns == found.st_ctime_ns == found.st_atime_ns == int(stored.timestamp()) * 10**9
        assert ((mount.path / "empty").stat().st_size, (mount.path / "empty").stat().st_blocks) == (0, 0)


def test_directory_attributes(weed: Server, work: Path) -> None:
    """A directory has two links and, since S3 keeps no time for it, the time of the mount."""
    with _mount_of(weed, work, {"d/f": b"x"}) as (mount, _):
        root, inner = mount.path.stat(), (mount.path / "d").stat()
        assert root.st_nlink == inner.st_nlink == 2
        assert root.st_mtime_ns == inner.st_mtime_ns
        assert abs(inner.st_mtime - os.stat(f"/proc/{mount.daemon_pid}").st_mtime) < 60
        assert root.st_mtime_ns % 10**9 == 0


def test_modes_and_owners(weed: Server, work: Path) -> None:
    """Every file has the mode of --file-mode, every directory that of --dir-mode, everything the owner of --uid and
    --gid.
    """
    flags = ("--uid", "1234", "--gid", "2345", "--file-mode", "0440", "--dir-mode", "0550")
    with _mount_of(weed, work, {"d/f": b"x"}, *flags) as (mount, _):
        for path, mode in (("d/f", stat.S_IFREG | 0o440), ("d", stat.S_IFDIR | 0o550), (".", stat.S_IFDIR | 0o550)):
            found = (mount.path / path).stat()
            assert (found.st_mode, found.st_uid, found.st_gid) == (mode, 1234, 2345)


def test_default_modes_and_owners(weed: Server, work: Path) -> None:
    """Without these flags files are 0644, directories 0755, and all belong to the user who mounted."""
    with _mount_of(weed, work, {"d/f": b"x"}) as (mount, _):
        for path, mode in (("d/f", stat.S_IFREG | 0o644), ("d", stat.S_IFDIR | 0o755), (".", stat.S_IFDIR | 0o755)):
            found = (mount.path / path).stat()
            assert (found.st_mode, found.st_uid, found.st_gid) == (mode, os.getuid(), os.getgid())


def test_archived_objects(weed: Server, work: Path) -> None:
    """An object in an archive storage class has mode 0000; opening it gives EACCES, and the log names the class and
    how to restore it.
    """
    with _mount_of(weed, work, {"near": b"x"}) as (mount, bucket):
        for key, kind in (("cold", "GLACIER"), ("colder", "DEEP_ARCHIVE"), ("warm", "STANDARD_IA")):
            weed.client.put_object(Bucket=bucket, Key=key, Body=b"x", StorageClass=kind)
        for key in ("cold", "colder"):
            assert (mount.path / key).stat().st_mode == stat.S_IFREG
            assert _errno_of((mount.path / key).read_bytes) == "EACCES"
        assert (mount.path / "near").read_bytes() == (mount.path / "warm").read_bytes() == b"x"
        assert mount.stop() == 0  # so that the log is whole
        for line, key, kind in zip(mount.warnings(), ("cold", "colder"), ("GLACIER", "DEEP_ARCHIVE"), strict=True):
            assert f"key={key!r}" in line
            assert f"storage class {kind}" in line
            assert "restore" in line


def test_statfs_and_the_mount_table(weed: Server, work: Path) -> None:
    """`mount` and `df` show the bucket as the source and fuse.s3mount as the type, with room for any file."""
    with _mount_of(weed, work, {"f": b"x"}) as (mount, bucket):
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
        [fields] = [line.split() for line in lines if f" {mount.path} " in line]
        assert (fields[0], fields[2]) == (bucket, "fuse.s3mount")
        assert {"rw", "nosuid", "nodev", "noatime"} <= set(fields[3].split(","))
        df = subprocess.run(["df", "-T", mount.path], capture_output=True, text=True, check=True).stdout
        assert df.splitlines()[1].split()[:2] == [bucket, "fuse.s3mount"]
        room = os.statvfs(mount.path)
        assert room.f_bavail * room.f_frsize > 2**50
        assert room.f_favail > 10**9
        assert room.f_namemax == 1024


# -- refusals -----------------------------------------------------------------------------------


def test_writes_are_refused(weed: Server, work: Path) -> None:
    """Whatever would change something of a mount that is --read-only fails with EROFS."""
    with _mount_of(weed, work, {"d/f": b"x"}, "--read-only") as (mount, _):
        file, new = mount.path / "d/f", mount.path / "d/new"
        assert file.read_bytes() == b"x"
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_TRUNC):
            assert _errno_of(os.open, file, flags) == "EROFS"
        assert _errno_of(os.open, new, os.O_WRONLY | os.O_CREAT) == "EROFS"
        for call, *arguments in (
            (os.mkdir, new), (os.rmdir, mount.path / "d"), (os.unlink, file), (os.rename, file, new),
            (os.chmod, file, 0o600), (os.chown, file, 1, 1), (os.utime, file), (os.truncate, file, 0),
            (os.symlink, "f", new), (os.link, file, new), (os.mknod, new), (os.setxattr, file, "user.a", b"b"),
        ):  # fmt: skip
            assert _errno_of(call, *arguments) == "EROFS", call
        assert file.read_bytes() == b"x"
        assert mount.warnings() == []


def test_extended_attributes(weed: Server, work: Path) -> None:
    """There are no extended attributes: reading them gives EOPNOTSUPP."""
    with _mount_of(weed, work, {"f": b"x"}) as (mount, _):
        assert _errno_of(os.getxattr, mount.path / "f", "user.a") == "ENOTSUP"  # Linux has one number for both
        assert _errno_of(os.listxattr, mount.path / "f") == "ENOTSUP"


def test_paths_that_lead_nowhere(weed: Server, work: Path) -> None:
    """What is not in the bucket is ENOENT, a path through a file is ENOTDIR, reading a directory is EISDIR."""
    with _mount_of(weed, work, {"d/f": b"x"}) as (mount, _):
        assert _errno_of(os.stat, mount.path / "d/missing") == "ENOENT"
        assert _errno_of(os.stat, mount.path / "missing/f") == "ENOENT"
        assert _errno_of(os.stat, mount.path / "d/f/x") == "ENOTDIR"
        assert _errno_of(os.listdir, mount.path / "d/f") == "ENOTDIR"
        assert _errno_of((mount.path / "d").read_bytes) == "EISDIR"
        assert mount.warnings() == []
