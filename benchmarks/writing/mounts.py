"""Who writes: mounts and libraries, and what they cost while they do."""

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import contenders
from benchmarks.reading.contestants import Contestant, Link, Maker

#: How often the spool is looked at: a peak that is shorter is missed.
_EVERY_S = 0.05


def s3mount(*flags: str, name: str = "s3mount") -> Maker:
    """Ours with --rw and these flags; its spool is `spool` in its directory."""

    @contextlib.contextmanager
    def make(link: Link, bucket: str, work: Path) -> Iterator[Contestant]:
        spool = ("--spool-dir", str(work / "spool"))
        with contenders.s3mount(bucket, link.url, work, "--rw", *spool, *flags, ca=link.ca) as mount:
            yield Contestant(name, f"path:{mount.path}", mount)

    return make


@contextlib.contextmanager
def s3fs_fuse(link: Link, bucket: str, work: Path) -> Iterator[Contestant]:
    """Debian's, with the parts in parallel that its manual offers."""
    tuning = ("parallel_count=16", "multipart_size=8")
    with contenders.s3fs(bucket, link.url, work, *tuning, ca=link.ca, mode="rw") as mount:
        yield Contestant("s3fs-fuse", f"path:{mount.path}", mount)


@dataclass
class Disk:
    """Attributes: the most bytes that files of a spool had, deleted ones too."""

    peak: int = 0


@contextlib.contextmanager
def watched_spool(directory: Path, daemon: int) -> Iterator[Disk]:
    """How much disk a daemon's spool takes during the block."""
    disk, is_over = Disk(), threading.Event()

    def look() -> None:
        while not is_over.wait(_EVERY_S):
            disk.peak = max(disk.peak, _bytes_of(directory, daemon))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield disk
    finally:
        is_over.set()
        thread.join()


def _bytes_of(directory: Path, daemon: int) -> int:
    blocks: dict[int, int] = {}
    for descriptors in [Path(f"/proc/{daemon}/fd"), *directory.rglob(".")]:
        with contextlib.suppress(OSError):
            for each in descriptors.iterdir():
                with contextlib.suppress(OSError):
                    found = each.stat()
                    if str(directory) in os.path.realpath(each) and each.is_file():
                        blocks[found.st_ino] = found.st_blocks
    return sum(blocks.values()) * 512
