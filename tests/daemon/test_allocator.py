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


HOLES = """
from s3mount.daemon.allocator import HeapLimit, keep_memory, resident_bytes
MIB = 2**20
keep_memory(512 * MIB)
limit = HeapLimit(resident_bytes() + {over} * MIB)
blocks, peak, started = [], 0, resident_bytes()
for round in range(20):
    for number in range(64):  # a block of another size leaves a hole where the one before it was
        blocks.append(bytes(MIB + round * 70_000))
        limit.grew(MIB + round * 70_000)
        peak = max(peak, resident_bytes())
    del blocks[::2]
    del blocks[: len(blocks) - 32]
limit.check_invariants()
print((peak - started) // MIB, limit.statistics().trims)
"""


REST = """
import sys, time, trio, trio.testing
from s3mount.daemon import allocator
MIB = 2**20
allocator.keep_memory(512 * MIB)

async def main():
    limit = allocator.HeapLimit(10_000 * MIB)
    started = allocator.resident_bytes()
    blocks = [bytes(200_000) for _ in range(500)]
    del blocks[:-1]  # the last one keeps what is below it
    held = allocator.resident_bytes() - started
    busy_s = 120.0 if sys.argv[1] == "busy" else 0.0
    used = iter(range(10))
    time.process_time = lambda: next(used) * busy_s
    with trio.move_on_after(130):
        await limit.rest()
    print(held, allocator.resident_bytes() - started, limit.statistics().trims)

trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
"""


def _rested(kind: str) -> list[int]:
    done = subprocess.run([sys.executable, "-c", REST, kind], capture_output=True, text=True, check=True)
    return [int(each) for each in done.stdout.split()]


def test_a_process_that_does_little_gives_holes_back() -> None:
    """100 MB of holes, below the limit, go back when the process has done little for two minutes, and not before."""
    held, after, trims = _rested("idle")
    assert held > 90e6
    assert after < 20e6
    assert trims == 1
    held, after, trims = _rested("busy")
    assert after >= held
    assert trims == 0


def _holes(over_mib: int) -> tuple[int, int]:
    """The peak above the start in MiB, and the trims, of a program with at most 96 blocks of 1 to 2.3 MiB."""
    done = subprocess.run(
        [sys.executable, "-c", HOLES.format(over=over_mib)], capture_output=True, text=True, check=True
    )
    peak, trims = map(int, done.stdout.split())
    return peak, trims


def test_a_heap_full_of_holes_is_trimmed() -> None:
    """Beyond the limit the process is hardly larger than what it uses; below it nothing is trimmed."""
    peak, trims = _holes(64)
    assert trims > 0
    assert peak < 220 + 32 + 8
    assert _holes(10_000)[1] == 0
