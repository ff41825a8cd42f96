"""Epochs of a training job: W processes, each opens, stats, reads and closes its share of all files, shuffled anew.

Tells what each epoch took of the CPU of another process (the daemon), by its threads.

usage: python -m benchmarks.epochs DIRECTORY PROCESSES EPOCHS PID     prints one JSON object for each epoch
"""

import json
import os
import random
import sys
import time
from collections import Counter
from multiprocessing import get_context
from pathlib import Path

_LARGEST = 1 << 20


def read_share(paths: list[str]) -> int:
    buffer = bytearray(_LARGEST)
    n_bytes = 0
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.fstat(fd)
        while n := os.readv(fd, [buffer]):
            n_bytes += n
        os.close(fd)
    return n_bytes


def cpu_us(pid: int) -> Counter[str]:
    """CPU of a process so far: user and system by the kernel's ticks, and of its main and other threads, exactly."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    tick_us = 1e6 / os.sysconf("SC_CLK_TCK")
    spent: Counter[str] = Counter(user_us=int(fields[11]) * tick_us, system_us=int(fields[12]) * tick_us)
    for task in Path(f"/proc/{pid}/task").iterdir():
        ran_ns = int((task / "schedstat").read_text(encoding="ascii").split()[0])
        spent["main_thread_us" if task.name == str(pid) else "other_threads_us"] += ran_ns / 1e3
    return spent


def main(directory: str, n_processes: int, n_epochs: int, pid: int) -> None:
    paths = sorted(entry.path for entry in os.scandir(directory))
    with get_context("fork").Pool(n_processes) as pool:
        pool.map(read_share, [[]] * n_processes, chunksize=1)  # the pool is up before the clock starts
        for epoch in range(n_epochs):
            random.Random(epoch).shuffle(paths)
            shares = [paths[start::n_processes] for start in range(n_processes)]
            before, started = cpu_us(pid), time.perf_counter()
            n_bytes = sum(pool.map(read_share, shares, chunksize=1))
            elapsed, spent = time.perf_counter() - started, cpu_us(pid)
            per_file = {name: (spent[name] - before[name]) / len(paths) for name in spent}
            figures = {"files_per_s": len(paths) / elapsed, "bytes": n_bytes, "files": len(paths), **per_file}
            print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]))
