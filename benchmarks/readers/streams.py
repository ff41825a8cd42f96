"""Large objects from start to end, each by one of some processes.

usage: python -m benchmarks.readers.streams SOURCE PROCESSES KEY...
"""

import sys
from collections.abc import Callable

from benchmarks.readers.processes import Figures, read_in_processes, report
from benchmarks.readers.sources import import_library, open_source


def main(text: str, processes: str, *keys: str) -> None:
    import_library(text)

    def make_reader(index: int) -> Callable[[], Figures]:
        source = open_source(text)
        share = keys[index :: int(processes)]
        return lambda: {"bytes": sum(n for key in share for n in source.stream(key))}

    report(read_in_processes(int(processes), make_reader))


if __name__ == "__main__":
    main(*sys.argv[1:])
