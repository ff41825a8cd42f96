"""Many small files by many processes, and lines by a logger that opens its file for each.

usage: python -m benchmarks.writers.files make SINK PREFIX PROCESSES N LENGTH
       python -m benchmarks.writers.files append FILE N LENGTH
"""

import os
import sys
import time
from collections.abc import Callable

from benchmarks.readers.processes import Figures, peak_rss_mib, read_in_processes, report
from benchmarks.writers.sinks import open_sink


def make(text: str, prefix: str, processes: str, n: str, length: str) -> None:
    def make_writer(index: int) -> Callable[[], Figures]:
        sink, content = open_sink(text), os.urandom(int(length))
        names = [f"{prefix}{number:05d}" for number in range(index, int(n), int(processes))]

        def run() -> Figures:
            for name in names:
                with sink.writer(name) as file:
                    file.write(content)
            return {"bytes": len(names) * int(length), "files": len(names)}

        return run

    report(read_in_processes(int(processes), make_writer))


def append(path: str, n: str, length: str) -> None:
    cpu_s, started = time.process_time(), time.perf_counter()
    for number in range(int(n)):
        with open(path, "a", encoding="ascii") as file:
            file.write(f"{number:0{int(length) - 1}d}\n")
    seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu_s
    report({
        "bytes": int(n) * int(length), "seconds": seconds, "files": int(n), "cpu_s": cpu_s, "rss_mib": peak_rss_mib(),
    })  # fmt: skip


if __name__ == "__main__":
    {"make": make, "append": append}[sys.argv[1]](*sys.argv[2:])
