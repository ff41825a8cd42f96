"""Asks a mount for the attributes of an open file, again and again, past what the kernel has of them.

usage: python -m benchmarks.readers.attributes PATH        a latency in ms a line, until its input ends
"""

import contextlib
import ctypes
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

#: <linux/fcntl.h>, statx(2).
_AT_EMPTY_PATH, _AT_STATX_FORCE_SYNC = 0x1000, 0x2000
_STATX_BASIC_STATS = 0x7FF
_STATX_BYTES = 256
_EVERY_S = 0.002


@contextlib.contextmanager
def asking(path: Path) -> Iterator[list[float]]:
    """Latencies of the block, in ms, once it is over."""
    latencies_ms: list[float] = []
    command = [sys.executable, "-m", "benchmarks.readers.attributes", str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield latencies_ms
    finally:
        output, _ = process.communicate()
    latencies_ms += map(float, output.split())


def main(path: str) -> None:
    statx = ctypes.CDLL(None, use_errno=True).statx
    fd, answer = os.open(path, os.O_RDONLY), ctypes.create_string_buffer(_STATX_BYTES)
    latencies_ms = []
    while not select.select([sys.stdin], [], [], _EVERY_S)[0]:
        began = time.perf_counter()
        if statx(fd, b"", _AT_EMPTY_PATH | _AT_STATX_FORCE_SYNC, _STATX_BASIC_STATS, answer):
            raise OSError(ctypes.get_errno(), "statx")
        latencies_ms.append((time.perf_counter() - began) * 1000)
    print("\n".join(map(str, latencies_ms)))


if __name__ == "__main__":
    main(sys.argv[1])
