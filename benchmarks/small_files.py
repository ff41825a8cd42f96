"""Readers of many small files: W processes, each opens, reads and closes its share, shuffled.

usage: python -m benchmarks.small_files DIRECTORY PROCESSES     prints one JSON object
"""

import json
import random
import sys
import time
from multiprocessing import get_context
from pathlib import Path


def read_share(paths: list[str]) -> int:
    n_bytes = 0
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while piece := file.read(1 << 20):
                n_bytes += len(piece)
    return n_bytes


def main(directory: str, n_processes: int) -> None:
    paths = sorted(str(path) for path in Path(directory).iterdir())
    random.Random(1).shuffle(paths)
    shares = [paths[start::n_processes] for start in range(n_processes)]
    with get_context("fork").Pool(n_processes) as pool:
        pool.map(read_share, [[]] * n_processes, chunksize=1)  # the pool is up before the clock starts
        started = time.perf_counter()
        n_bytes = sum(pool.map(read_share, shares, chunksize=1))
        elapsed = time.perf_counter() - started
    print(json.dumps({"files_per_s": len(paths) / elapsed, "bytes": n_bytes, "files": len(paths)}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
