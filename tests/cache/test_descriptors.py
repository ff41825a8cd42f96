"""Descriptors of blocks: open while somebody reads, and closed once."""

import os
from pathlib import Path

import pytest

from s3mount.cache.descriptors import OpenBlock, OpenBlocks
from s3mount.core.blockfile import BlockHeader
from s3mount.core.ranges import ByteRange


def test_a_read_outlives_the_eviction(work: Path) -> None:
    """A block that is evicted while it is read is read to its end; its descriptor is closed by the reader."""
    (work / "f").write_bytes(b"content")
    opened = OpenBlocks(1)
    fds = [os.open(work / "f", os.O_RDONLY) for _ in range(2)]
    first, second = (OpenBlock(bytes([n]), fd, BlockHeader(ByteRange(0, 7), b"")) for n, fd in enumerate(fds))
    opened.add(first)
    (work / "f").unlink()
    assert opened.removed() == [first.name]
    opened.drop(first.name)
    assert os.pread(first.fd, 7, 0) == b"content"
    assert opened.pin(first.name) is None
    opened.unpin(first)
    opened.add(second)
    opened.unpin(second)
    opened.check_invariants()
    opened.close()
    for fd in fds:
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(fd)


def test_a_disk_that_cannot_be_looked_at_pins_nothing(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When open files cannot be looked at, all of them can be closed afterwards."""
    before = len(os.listdir("/proc/self/fd"))
    opened = OpenBlocks(8)
    for number in range(4):
        (work / str(number)).touch()
        header = BlockHeader(ByteRange(0, 1), b"")
        block = OpenBlock(b"%d" % number, os.open(work / str(number), os.O_RDONLY), header)
        opened.add(block)
        opened.unpin(block)

    def fail(_: int) -> os.stat_result:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fstat", fail)
        with pytest.raises(OSError, match="Input/output"):
            opened.removed()
    opened.close()
    assert len(os.listdir("/proc/self/fd")) == before
