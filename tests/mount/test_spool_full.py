"""The disk of the spool is full: the program is told, nothing half is in S3, and what fits goes on."""

import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from s3mount.units import MIB
from tests.support.mounts import mounted
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server]


@contextlib.contextmanager
def small_disk(path: Path, n_bytes: int) -> Iterator[Path]:
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={n_bytes}", "tmpfs", str(path)], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill(descriptor: int, piece: bytes) -> None:
    for _ in range(64):
        os.write(descriptor, piece)


def test_a_full_spool_is_enospc(weed: Server, work: Path) -> None:
    """A file that does not fit gets ENOSPC, one that does is in S3, and one that is streamed needs no disk."""
    bucket, big = weed.make_bucket(), os.urandom(MIB)
    flags = ("--rw", "--no-spool-streamed", "--spool-dir", str(work / "disk" / "spool"))
    with small_disk(work / "disk", 24 * MIB), mounted(bucket, work, *flags, url=weed.url) as mount:
        descriptor = os.open(mount.path / "large", os.O_RDWR | os.O_CREAT)
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            fill(descriptor, big)
        os.ftruncate(descriptor, 0)
        os.close(descriptor)
        descriptor = os.open(mount.path / "small", os.O_RDWR | os.O_CREAT)
        os.pwrite(descriptor, b"fits", 100)
        os.close(descriptor)
        with (mount.path / "streamed").open("wb", buffering=0) as file:
            fill(file.fileno(), big)
    objects = weed.client.list_objects_v2(Bucket=bucket)["Contents"]
    assert {each["Key"]: each["Size"] for each in objects} == {"large": 0, "small": 104, "streamed": 64 * MIB}
    assert "Uploads" not in weed.client.list_multipart_uploads(Bucket=bucket)
