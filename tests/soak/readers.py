"""One soak reader: the ways in which training jobs read, in random order on random files, every byte checked.

usage: python -m tests.soak.readers DIRECTORY ORIGINALS SEED SECONDS     prints one JSON object

ORIGINALS has the same names with the right content; it is mapped, so that all readers share its pages.
"""

import json
import mmap
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from s3mount.units import KIB, MIB

SMALL, LARGE = MIB, 5 * MIB
#: Of O_DIRECT: offsets, lengths and addresses are multiples of it.
BLOCK = 4096


class WrongBytes(Exception):
    """What was read is not what was written, or ends too early."""


@dataclass
class Visit:
    """One file that is being read.

    Attributes:
        n_bytes: checked so far.
    """

    path: Path
    expected: memoryview
    dice: random.Random
    n_bytes: int = field(default=0)

    def check(self, start: int, stop: int, got: bytes | memoryview) -> None:
        if got != self.expected[start : min(stop, len(self.expected))]:
            raise WrongBytes(f"{self.path.name}: {start} to {stop}: {len(got)} bytes")
        self.n_bytes += len(got)

    def span(self, longest: int) -> tuple[int, int]:
        start = self.dice.randrange(len(self.expected))
        return start, start + self.dice.randrange(1, longest)

    def cold(self, flags: int = 0) -> int:
        """A descriptor, without what the kernel has of the file: or its pages answer everything."""
        descriptor = os.open(self.path, os.O_RDONLY | flags)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return descriptor


def whole(visit: Visit) -> None:
    with open(visit.cold(), "rb", buffering=0) as file:
        visit.check(0, len(visit.expected), file.read())


def sequential(visit: Visit) -> None:
    step, offset = visit.dice.choice([4 * KIB, 70_000, MIB]), 0
    with open(visit.cold(), "rb", buffering=0) as file:
        while piece := file.read(step):
            visit.check(offset, offset + step, piece)
            offset += len(piece)
    visit.check(offset, len(visit.expected), b"")


def random_preads(visit: Visit) -> None:
    with open(visit.cold(), "rb", buffering=0) as file:
        for _ in range(8):
            start, stop = visit.span(200_000)
            visit.check(start, stop, os.pread(file.fileno(), stop - start, start))


def strided(visit: Visit) -> None:
    length, stride = visit.dice.choice([(4 * KIB, 64 * KIB), (128 * KIB, MIB), (MIB, 3 * MIB)])
    with open(visit.cold(), "rb", buffering=0) as file:
        for start in range(0, len(visit.expected), stride)[:32]:
            visit.check(start, start + length, os.pread(file.fileno(), length, start))


def ends(visit: Visit) -> None:
    """As readers of Parquet and zip begin."""
    size = len(visit.expected)
    with open(visit.cold(), "rb", buffering=0) as file:
        for start in (max(0, size - 4 * KIB), 0):
            visit.check(start, start + 4 * KIB, os.pread(file.fileno(), 4 * KIB, start))


def mapped_at_random(visit: Visit) -> None:
    with open(visit.cold(), "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        for _ in range(8):
            start, stop = visit.span(64 * KIB)
            visit.check(start, stop, mapped[start:stop])


def mapped_in_order(visit: Visit) -> None:
    with open(visit.cold(), "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        mapped.madvise(mmap.MADV_SEQUENTIAL)
        for start in range(0, len(mapped), 256 * KIB):
            visit.check(start, start + 256 * KIB, mapped[start : start + 256 * KIB])


def shuffled_samples(visit: Visit) -> None:
    """As data sets of shards read: each sample opens the shard anew, reads its header, then its content."""
    n_samples = len(visit.expected) // (64 * KIB)
    for sample in visit.dice.sample(range(n_samples), min(n_samples, 32)):
        start = sample * 64 * KIB
        with open(visit.cold(), "rb", buffering=0) as file:
            visit.check(start, start + 8, os.pread(file.fileno(), 8, start))
            visit.check(start + 8, start + 32 * KIB, os.pread(file.fileno(), 32 * KIB - 8, start + 8))


def direct(visit: Visit) -> None:
    length = visit.dice.choice([BLOCK, 128 * KIB, 4 * MIB])
    with open(visit.cold(os.O_DIRECT), "rb", buffering=0) as file, mmap.mmap(-1, length) as buffer:
        for _ in range(4):
            start = visit.dice.randrange(len(visit.expected)) // BLOCK * BLOCK
            n_read = os.preadv(file.fileno(), [buffer], start)
            visit.check(start, start + length, buffer[:n_read])


#: The way, and the sizes of the files that are read so.
PATTERNS: dict[str, tuple[Callable[[Visit], None], int, int]] = {
    "small file": (whole, 0, SMALL),
    "whole": (whole, SMALL, sys.maxsize),
    "sequential": (sequential, 0, sys.maxsize),
    "random preads": (random_preads, 1, sys.maxsize),
    "strided": (strided, 1, sys.maxsize),
    "ends": (ends, 1, sys.maxsize),
    "mapped at random": (mapped_at_random, 1, sys.maxsize),
    "mapped in order": (mapped_in_order, 1, sys.maxsize),
    "shuffled samples": (shuffled_samples, LARGE, sys.maxsize),
    "direct": (direct, 1, sys.maxsize),
}


def mapped(path: Path) -> memoryview:
    with path.open("rb") as file:
        is_empty = path.stat().st_size == 0
        return memoryview(b"" if is_empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def main(directory: str, originals: str, seed: int, seconds: float) -> None:
    dice = random.Random(seed)
    contents = {path.name: mapped(path) for path in sorted(Path(originals).iterdir())}
    visits: Counter[str] = Counter()
    failures: list[str] = []
    n_bytes = 0
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        pattern = dice.choice(sorted(PATTERNS))
        read, smallest, largest = PATTERNS[pattern]
        name = dice.choice([name for name, content in contents.items() if smallest <= len(content) <= largest])
        visit = Visit(Path(directory) / name, contents[name], dice)
        try:
            read(visit)
        except (OSError, WrongBytes) as error:
            failures.append(f"{pattern} of {name}: {error!r}")
        visits[pattern] += 1
        n_bytes += visit.n_bytes
    print(json.dumps({"bytes": n_bytes, "visits": visits, "failures": failures}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
