"""The C library's heap: what many freed objects held goes back."""

import subprocess
import sys

PROGRAM = """
import sys
from s3mount.daemon.allocator import keep_memory, trim
keep_memory(512 * 2**20)

def rss():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

started = rss()
blocks = [bytes(2000) for _ in range(50_000)]
kept = blocks[-1]
held = rss() - started
del blocks
trim()
print(held, rss() - started)
"""


def test_trimming_gives_memory_back() -> None:
    """100 MB of small blocks are held after they were freed, because the heap is told so, and go back by trim()."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    held, after = map(int, done.stdout.split())
    assert held > 90e6
    assert after < 20e6
