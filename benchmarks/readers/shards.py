"""Shards with an index, shuffled inside each: what MosaicML's MDS and its kind ask of a file.

usage: python -m benchmarks.readers.shards make FILE SIZE SAMPLE        a shard of samples of one size
       python -m benchmarks.readers.shards read SOURCE PROCESSES KEY...

A shard is: the number of samples, 4 bytes; the offsets where each begins and the last one ends, 4 bytes each; the
samples.  A reader that wants one asks for its two offsets, and then for its bytes.
"""

import os
import random
import struct
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.readers.processes import Figures, read_in_processes, report
from benchmarks.readers.sources import import_library, open_source


def make(file: str, size: str, sample: str) -> None:
    n = (int(size) - 8) // (int(sample) + 4)
    head = 4 + 4 * (n + 1)
    ends = [head + index * int(sample) for index in range(n + 1)]
    Path(file).write_bytes(struct.pack(f"<{n + 2}I", n, *ends) + os.urandom(n * int(sample)))


def read(text: str, processes: str, *keys: str) -> None:
    import_library(text)

    def make_reader(index: int) -> Callable[[], Figures]:
        source = open_source(text)
        share = keys[index :: int(processes)]

        def run() -> Figures:
            n_bytes, samples = 0, 0
            for key in share:
                (n,) = struct.unpack("<I", source.read_at(key, 0, 4))
                for sample in random.Random(key).sample(range(n), n):
                    begin, end = struct.unpack("<2I", source.read_at(key, 4 + 4 * sample, 8))
                    n_bytes += len(source.read_at(key, begin, end - begin))
                samples += n
            return {"bytes": n_bytes, "samples": samples}

        return run

    report(read_in_processes(int(processes), make_reader))


if __name__ == "__main__":
    {"make": make, "read": read}[sys.argv[1]](*sys.argv[2:])
