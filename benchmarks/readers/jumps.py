"""Reads at random offsets of one large object, from a number of threads.

usage: python -m benchmarks.readers.jumps SOURCE KEY SIZE LENGTH IN_FLIGHT SECONDS [direct]

Offsets are multiples of the length (of 4 KiB, for O_DIRECT's sake), none twice.  Latencies are of single reads.
"""

import mmap
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from benchmarks.readers.processes import Figures, read_in_processes, report
from benchmarks.readers.sources import import_library, open_source

Read = Callable[[int], int]


def main(text: str, key: str, size: str, length: str, in_flight: str, seconds: str, how: str = "") -> None:
    import_library(text)
    slots = int(size) // int(length)
    # More than any distance lets through in the time.
    offsets = [slot * int(length) for slot in random.Random(1).sample(range(slots), min(slots, 20_000))]

    def make_reader(_: int) -> Callable[[], Figures]:
        if text.startswith("path:"):
            path, flags = f"{text.removeprefix('path:')}/{key}", os.O_DIRECT if how == "direct" else 0
            reads = [_open(path, flags, int(length)) for _ in range(int(in_flight))]
        else:
            source = open_source(text)
            reads = [lambda offset: len(source.read_at(key, offset, int(length)))] * int(in_flight)
        return lambda: _jump(reads, offsets, int(length), float(seconds))

    report(read_in_processes(1, make_reader))


def _open(path: str, flags: int, length: int) -> Read:
    """A descriptor and a buffer of its own for each thread."""
    descriptor = os.open(path, os.O_RDONLY | flags)
    buffer = mmap.mmap(-1, length)  # aligned to a page
    return lambda offset: os.preadv(descriptor, [buffer], offset)


def _jump(reads: list[Read], offsets: list[int], length: int, seconds: float) -> Figures:
    latencies: list[float] = []
    until = time.perf_counter() + seconds

    def work(index: int) -> None:
        for offset in offsets[index :: len(reads)]:
            started = time.perf_counter()
            if started > until:
                return
            if reads[index](offset) != length:
                raise RuntimeError(f"short read at {offset}")
            latencies.append(time.perf_counter() - started)

    started = time.perf_counter()
    with ThreadPoolExecutor(len(reads)) as pool:
        list(pool.map(work, range(len(reads))))
    elapsed = time.perf_counter() - started
    latencies.sort()
    return {
        "reads": len(latencies), "bytes": len(latencies) * length, "iops": len(latencies) / elapsed,
        "p50_ms": statistics.median(latencies) * 1000, "p99_ms": latencies[len(latencies) * 99 // 100] * 1000,
    }  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
