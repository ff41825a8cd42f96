"""Renames and removals at a distance: what the server copies does not come through the daemon."""

import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from boto3.s3.transfer import TransferConfig

from benchmarks.distance import Copies
from benchmarks.reading.ground import Ground
from benchmarks.writing.mounts import s3mount
from benchmarks.writing.requests import count
from s3mount.units import GIB, KIB, MIB
from tests.support.servers import make_client

#: S3 copies that fast for one request (measured by others between 100 and 300 MB/s).
_COPIED_PER_S = 200e6
_FAR_S = 0.02


def _timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def rename(ground: Ground) -> None:
    """A directory of 1,000 files, and one large object."""
    _directory(ground)
    size = ground.scaled(GIB, 160 * MIB)
    link = ground.link(_FAR_S, "0", copies=Copies(_COPIED_PER_S, size))
    what = f"rename of {size // MIB} MiB, 20 ms, copies at 200 MB/s"
    row = ground.row("rename", what, "s3mount")
    for repeat in range(ground.repeats):
        key = ground.objects.put(f"names/large{repeat}", size)
        with ground.mounted(s3mount(), link) as who:
            path = who.path / key
            path.stat()
            before = len(ground.lines(link))
            seconds = _timed(lambda path=path: path.rename(path.with_suffix(".moved")))  # type: ignore[misc]
            asked = count(ground.lines(link)[before:])
        row.note(seconds=seconds, parts_copied=asked.part_copies, content_kib=asked.content_bytes / KIB)
        row.note(of_one_copy=seconds / (size / _COPIED_PER_S))
        again = ground.row("rename", what, "its copy by boto3, 16 threads")
        again.note(seconds=_timed(lambda key=key: _copy_large(ground, link.url, key)))  # type: ignore[misc]
    row.at_most("content_kib", 64)
    row.at_least("parts_copied", 2)
    row.at_most("of_one_copy", 0.5)


def _directory(ground: Ground) -> None:
    n = ground.scaled(1000, 50)
    link, what = ground.link(_FAR_S, "0"), f"rename of a directory of {n} files, 20 ms"
    row = ground.row("rename", what, "s3mount")
    for repeat in range(ground.repeats):
        _fill(ground, f"names/d{repeat}", n)
        with ground.mounted(s3mount(), link) as who:
            path = who.path / f"names/d{repeat}"
            before = len(ground.lines(link))
            row.note(seconds=_timed(lambda path=path: path.rename(path.with_suffix(".moved"))))  # type: ignore[misc]
            asked = count(ground.lines(link)[before:])
            row.note(copies=asked.copies, deletes=asked.deletes, content_kib=asked.content_bytes / KIB)
    row.at_most("seconds", 2)
    raw = ground.row("rename", what, "its copies by boto3, 32 threads")
    for repeat in range(ground.repeats):
        raw.note(seconds=_timed(lambda repeat=repeat: _copy(ground, link.url, f"names/d{repeat}.moved", n)))  # type: ignore[misc]


def _copy_large(ground: Ground, url: str, key: str) -> None:
    parts = TransferConfig(multipart_threshold=128 * MIB, multipart_chunksize=64 * MIB, max_concurrency=16)
    source = {"Bucket": ground.bucket, "Key": str(Path(key).with_suffix(".moved"))}
    alike = {"ChecksumAlgorithm": "CRC32C"}  # twice the work for this server
    make_client(url).copy(source, ground.bucket, f"{key}.raw", Config=parts, ExtraArgs=alike)


def _copy(ground: Ground, url: str, directory: str, n: int) -> None:
    client = make_client(url)

    def copy(number: int) -> None:
        source = {"Bucket": ground.bucket, "Key": f"{directory}/{number:05d}"}
        client.copy_object(Bucket=ground.bucket, Key=f"{directory}.raw/{number:05d}", CopySource=source)

    with ThreadPoolExecutor(32) as threads:
        list(threads.map(copy, range(n)))


def remove(ground: Ground) -> None:
    """rm -rf of a checkpoint."""
    n = ground.scaled(2000, 50)
    link, what = ground.link(_FAR_S, "0"), f"rm -rf of {n} files, 20 ms"
    row = ground.row("remove", what, "s3mount")
    for repeat in range(ground.repeats):
        _fill(ground, f"names/r{repeat}", n)
        with ground.mounted(s3mount(), link) as who:
            before, path = len(ground.lines(link)), who.path / f"names/r{repeat}"
            row.note(seconds=_timed(lambda path=path: shutil.rmtree(path)))  # type: ignore[misc]
            row.note(deletes=count(ground.lines(link)[before:]).deletes)
        left = ground.server.client.list_objects_v2(Bucket=ground.bucket, Prefix=f"names/r{repeat}/")
        row.note(left=left["KeyCount"])
    row.at_most("seconds", 5)
    row.at_most("left", 0)


def _fill(ground: Ground, directory: str, n: int) -> None:
    for number in range(n):
        ground.server.client.put_object(Bucket=ground.bucket, Key=f"{directory}/{number:05d}", Body=b"x" * 1000)
