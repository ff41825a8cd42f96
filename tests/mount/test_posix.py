"""What objects carry beside their content, where programs change files: as another client of the bucket finds it."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.mount.test_writes import Bucket, bucket_on
from tests.support.mounts import SOON_S, mounted
from tests.support.processes import wait_until
from tests.support.servers import Server

OURS = {"s3mount-write", "s3mount-spool"}


def attributes(server: Server, bucket: Bucket, key: str) -> tuple[str, dict[str, str]]:
    """Content type and the user's metadata."""
    answer: dict[str, Any] = server.client.head_object(Bucket=bucket.name, Key=key)
    return answer["ContentType"], {name: value for name, value in answer["Metadata"].items() if name not in OURS}


def test_metadata_of_others_is_kept(weed: Server, work: Path) -> None:
    """An append, a patch and a rename keep the metadata and the content type that another client gave an object."""
    with bucket_on(weed, work, "--rw") as bucket:
        theirs = {"Metadata": {"project": "b-7"}, "ContentType": "text/csv"}
        weed.client.put_object(Bucket=bucket.name, Key="a", Body=b"head", **theirs)
        with (bucket.path / "a").open("ab", buffering=0) as file:
            file.write(b" tail")
            os.fsync(file.fileno())
        assert bucket.get("a") == b"head tail"
        with (bucket.path / "a").open("r+b") as file:
            file.write(b"H")
        (bucket.path / "a").rename(bucket.path / "b")
        assert bucket.get("b") == b"Head tail"
        assert attributes(weed, bucket, "b") == ("text/csv", {"project": "b-7"})


T = 1_000_000_000
MIB = 1 << 20


def shown(path: Path) -> tuple[int, int, int, int]:
    found = path.lstat()
    return found.st_mode & 0o7777, found.st_uid, found.st_gid, int(found.st_mtime)


def tree_of(directory: Path) -> Path:
    """Files of some modes, owners and times, with a large one."""
    root = directory / "source"
    root.mkdir()
    for number, (name, content) in enumerate([("small", b"1"), ("tool", b"#!/bin/sh\n"), ("large", bytes(9 * MIB))]):
        (root / name).write_bytes(content)
        (root / name).chmod((0o640, 0o755, 0o600)[number])
        os.chown(root / name, 10 + number, 20 + number)
        os.utime(root / name, (T, T + number))
    return root


def copied_by_cp(root: Path, target: Path) -> None:
    subprocess.run(["cp", "-rp", root, target], check=True)


def copied_by_tar(root: Path, target: Path) -> None:
    target.mkdir()
    packed = subprocess.run(["tar", "-C", root, "-c", "."], check=True, capture_output=True)
    subprocess.run(["tar", "-C", target, "-xp"], input=packed.stdout, check=True)


def copied_by_python(root: Path, target: Path) -> None:
    shutil.copytree(root, target)
    for each in root.iterdir():
        os.chown(target / each.name, each.stat().st_uid, each.stat().st_gid)


def copied_as_rsync_does(root: Path, target: Path) -> None:
    """Under another name first, attributes by path, then a rename."""
    target.mkdir()
    for each in root.iterdir():
        aside = target / f".{each.name}.Xy12"
        aside.write_bytes(each.read_bytes())
        os.chown(aside, each.stat().st_uid, each.stat().st_gid)
        shutil.copystat(each, aside)
        aside.rename(target / each.name)


def test_copies_keep_modes_owners_and_times(weed: Server, work: Path) -> None:
    """What cp -p, tar, shutil and programs that rename as rsync does copy has mode, owner and time after a remount."""
    root = tree_of(work)
    ways = [copied_by_cp, copied_by_tar, copied_by_python, copied_as_rsync_does]
    with bucket_on(weed, work, "--rw", "--posix-metadata") as bucket:
        for way in ways:
            way(root, bucket.path / way.__name__)
    with mounted(bucket.name, work / "again", "--read-only", "--posix-metadata", url=weed.url) as mount:
        for way in ways:
            for each in root.iterdir():
                assert shown(mount.path / way.__name__ / each.name) == shown(each), (way, each.name)
        assert (mount.path / "copied_by_cp/large").read_bytes() == bytes(9 * MIB)
    for name, mode, owner in ("small", "0100640", 10), ("tool", "0100755", 11), ("large", "0100600", 12):
        for way in ways:
            found = attributes(weed, bucket, f"{way.__name__}/{name}")[1]
            said = {"mode": mode, "uid": str(owner), "gid": str(owner + 10), "mtime": str(T + owner - 10)}
            assert found == said, (way, name)
    assert bucket.uploads() == []


def test_attributes_of_files_at_rest(weed: Server, work: Path) -> None:
    """touch -d, chmod and chown of a file are in its metadata soon, and a mount on another host shows them."""
    with (
        bucket_on(weed, work, "--rw", "--posix-metadata") as bucket,
        mounted(bucket.name, work / "2", "--read-only", "--posix-metadata", url=weed.url) as other,
    ):
        theirs = {"Metadata": {"project": "b-7", "mode": "33261"}, "ContentType": "text/csv"}
        weed.client.put_object(Bucket=bucket.name, Key="a", Body=b"content", **theirs)
        path = bucket.path / "a"
        number = path.stat().st_ino
        assert shown(path)[0] == 0o755
        with path.open("rb") as reader:
            subprocess.run(["touch", "-d", f"@{T}", path], check=True)
            subprocess.run(["chmod", "u-x,o-rx", path], check=True)
            os.chown(path, 7, 8)
            said = {"project": "b-7", "mode": "0100650", "uid": "7", "gid": "8", "mtime": str(T)}
            wait_until(lambda: attributes(weed, bucket, "a") == ("text/csv", said), SOON_S, "the metadata")
            assert reader.read() == b"content"
        assert (shown(path), path.stat().st_ino, path.read_bytes()) == ((0o650, 7, 8, T), number, b"content")
        wait_until(lambda: shown(other.path / "a") == (0o650, 7, 8, T), SOON_S, "the other mount")
        assert (other.path / "a").read_bytes() == b"content"
        path.chmod(0o600)
    assert attributes(weed, bucket, "a")[1]["mode"] == "0100600"  # what was set just before the end
