"""Many small objects, shuffled: W processes read their shares until they end or the time is over.

usage: python -m benchmarks.readers.samples SOURCE MANIFEST PROCESSES SECONDS [again]

MANIFEST is a file of keys, one a line.  With `again` a share is read over and over.
"""

import itertools
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.readers.processes import Figures, read_in_processes, report
from benchmarks.readers.sources import import_library, open_source


def main(text: str, manifest: str, processes: str, seconds: str, again: str = "") -> None:
    import_library(text)
    keys = Path(manifest).read_text(encoding="ascii").split()
    random.Random(1).shuffle(keys)

    def make_reader(index: int) -> Callable[[], Figures]:
        source = open_source(text)
        share = keys[index :: int(processes)]

        def read() -> Figures:
            until, n_bytes, n = time.perf_counter() + float(seconds), 0, 0
            for key in itertools.cycle(share) if again else share:
                n_bytes += source.read(key)
                n += 1
                if time.perf_counter() > until:
                    break
            return {"bytes": n_bytes, "files": n}

        return read

    report(read_in_processes(int(processes), make_reader))


if __name__ == "__main__":
    main(*sys.argv[1:])
