"""One soak reader: random patterns on random files, every byte checked.

usage: python -m tests.soak.readers DIRECTORY SEED SECONDS     prints one JSON object

Files are `SEED.SIZE.bin`, content by formula, so a reader can check any range by itself.
"""

import errno
import json
import mmap
import os
import random
import sys
import time
from functools import lru_cache
from pathlib import Path

from tests.support.content import make_content

#: An object that was replaced while it was open: a promise, not a fault.
_ALLOWED = {errno.ESTALE}


@lru_cache(maxsize=4)
def content_of(name: str) -> bytes:
    seed, size, _ = name.split(".")
    return make_content(seed, int(size))


def read_once(path: Path, rng: random.Random) -> int:
    """One visit of one file; returns the bytes checked."""
    expected = content_of(path.name)
    pattern = rng.choice(["whole", "steps", "random", "mmap", "head", "tail"])
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # or the page cache answers everything
        if pattern == "mmap" and expected:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                spans = [_span(rng, len(expected), 65536) for _ in range(8)]
                return sum(check(expected, start, mapped[start:stop]) for start, stop in spans)
        if pattern == "whole":
            return check(expected, 0, file.read())
        if pattern == "steps":
            step, offset = rng.choice([4096, 70_000, 1 << 20]), 0
            while piece := file.read(step):
                offset += check(expected, offset, piece)
            return offset
        start, stop = _span(rng, len(expected), 200_000)
        if pattern == "head":
            start, stop = 0, min(len(expected), 4096)
        elif pattern == "tail":
            start, stop = max(0, len(expected) - 4096), len(expected)
        return check(expected, start, os.pread(file.fileno(), stop - start, start))


def _span(rng: random.Random, size: int, longest: int) -> tuple[int, int]:
    start = rng.randrange(size + 1)
    return start, min(size, start + rng.randrange(1, longest))


def check(expected: bytes, start: int, got: bytes) -> int:
    if got != expected[start : start + len(got)]:
        raise SystemExit(f"WRONG BYTES at {start}, {len(got)} bytes")
    return len(got)


def main(directory: str, seed: int, seconds: float) -> None:
    rng = random.Random(seed)
    paths = sorted(Path(directory).iterdir())
    n_bytes = visits = stale = 0
    failures: list[str] = []
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        path = rng.choice(paths)
        try:
            n_bytes += read_once(path, rng)
            visits += 1
        except OSError as error:
            if error.errno in _ALLOWED:
                stale += 1
            else:
                failures.append(f"{path.name}: {error}")
    print(json.dumps({"bytes": n_bytes, "visits": visits, "stale": stale, "failures": failures}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
