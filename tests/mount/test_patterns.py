"""What ways of reading cost, with the reads that the kernel really sends: requests and bytes at the proxy."""

import hashlib
import mmap
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from s3mount.core.ranges import ByteRange, Coverage
from s3mount.units import GIB, KIB, MIB
from tests.mount import readers
from tests.mount.scripted import ScriptedBucket, content_at
from tests.support.mounts import mounted
from tests.support.proxy import Proxy, proxy
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server]

_PART = 8 * MIB
_KEY = "f"


@dataclass(frozen=True)
class Read:
    """A file on a mount whose S3 is 20 ms away, and what was asked of it there."""

    path: Path
    front: Proxy

    def gets(self) -> list[ByteRange]:
        """The ranges that were asked for, in that order."""
        with self.front.lock:
            ranges = [each.headers["range"] for each in self.front.requests if "range" in each.headers]
        bounds = [text.removeprefix("bytes=").partition("-")[::2] for text in ranges]
        return [ByteRange(int(first), int(last) + 1) for first, last in bounds]

    def twice(self) -> int:
        """Bytes that were asked for more than once."""
        seen = Coverage()
        for span in self.gets():
            seen.add(span)
        return sum(span.length for span in self.gets()) - seen.length


@contextmanager
def reading(weed: Server, work: Path, size: int, *flags: str) -> Iterator[Read]:
    bucket = weed.make_bucket()
    with proxy(weed.url) as front:
        front.decide = ScriptedBucket({_KEY: size}).decide
        with mounted(bucket, work, "--memory-target", "1GiB", *flags, url=front.url) as mount:
            front.reset()
            front.delay_s = 0.02
            yield Read(mount.path / _KEY, front)
            assert mount.warnings() == []


def test_random_preads_of_a_large_file(weed: Server, work: Path) -> None:
    """A pread of 4 KiB anywhere in a large file is one GET of at most 256 KiB, and nothing is fetched ahead."""
    dice = random.Random(7)
    with reading(weed, work, 40 * GIB) as read:
        descriptor = os.open(read.path, os.O_RDONLY)
        for _ in range(100):
            offset = dice.randrange(GIB, 40 * GIB) // 4096 * 4096
            assert os.pread(descriptor, 4096, offset) == content_at(_KEY, offset, offset + 4096)
        os.close(descriptor)
        assert len(read.gets()) <= 1 + 100
        assert sum(span.length for span in read.gets()) <= MIB + 100 * 256 * KIB


@pytest.mark.parametrize("flags", [(), ("--no-kernel-tuning",)], ids=["1 MiB", "128 KiB"])
def test_a_file_read_in_order(weed: Server, work: Path, flags: tuple[str, ...]) -> None:
    """A file that is read in order costs one GET for each part and three more, and no byte of it comes twice."""
    size = 200 * MIB + 12345
    with reading(weed, work, size, *flags) as read:
        with read.path.open("rb", buffering=0) as file:
            offset = 0
            while piece := file.read(MIB):
                assert piece == content_at(_KEY, offset, offset + len(piece))
                offset += len(piece)
        assert offset == size
        assert read.twice() == 0
        assert len(read.gets()) <= -(-size // _PART) + 3


@pytest.mark.parametrize("flags", [(), ("--no-kernel-tuning",)], ids=["1 MiB", "128 KiB"])
def test_a_shuffled_shard(weed: Server, work: Path, flags: tuple[str, ...]) -> None:
    """A shard of 64 MiB whose samples are read in a random order comes by a GET for each part and a few more, at most
    1.1 bytes for each it has.
    """
    size, length, table = 64 * MIB, 50_000, 8192
    numbers = list(range((size - table) // length))
    random.Random(7).shuffle(numbers)
    with reading(weed, work, size, *flags) as read:
        descriptor = os.open(read.path, os.O_RDONLY)
        for number in numbers:
            os.pread(descriptor, 8, 4 + 4 * number)
            start = table + number * length
            assert os.pread(descriptor, length, start) == content_at(_KEY, start, start + length)
        os.close(descriptor)
        assert len(read.gets()) <= size // _PART + 8
        assert sum(span.length for span in read.gets()) <= 1.1 * size


def test_tensors_copied_by_many_threads(weed: Server, work: Path) -> None:
    """Threads that copy slices of a mapped file's tensors side by side fetch the file and at most one window
    of 64 MiB more.

    Where the threads start long after each other, the first one's window is given up and fetched again.
    """
    size, tensor, n_threads = 192 * MIB, 32 * MIB, 8
    share = tensor // n_threads
    with reading(weed, work, size, "--no-kernel-tuning") as read:
        found = readers.answer(readers.start("slices", read.path, str(tensor), str(n_threads)), 200)
        starts = sorted(start for which in range(n_threads) for start in range(which * share, size, tensor))
        digests = [[start, hashlib.sha256(content_at(_KEY, start, start + share)).hexdigest()] for start in starts]
        assert sorted(found) == digests  # type: ignore[call-overload]
        assert sum(span.length for span in read.gets()) <= size + 64 * MIB


def test_direct_preads_of_64_mib(weed: Server, work: Path) -> None:
    """A pread of 64 MiB with O_DIRECT comes in parts, also the odd tail, and no byte of it comes twice."""
    size = 200 * MIB + 12345
    start = size // _PART * _PART - 56 * MIB
    with reading(weed, work, size) as read:
        descriptor = os.open(read.path, os.O_RDONLY | os.O_DIRECT)
        with mmap.mmap(-1, 64 * MIB) as buffer:
            assert os.preadv(descriptor, [buffer], start) == size - start
            assert buffer[: size - start] == content_at(_KEY, start, size)
        os.close(descriptor)
        assert read.twice() == 0
        assert len([span for span in read.gets() if span.stop > start]) <= 8 + 4
