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
    kept = [bytes(8 * MIB)]
    used = iter(map(float, sys.argv[2:]))
    time.process_time = lambda: next(used)
    with trio.move_on_after(float(sys.argv[1])):
        await limit.rest(kept.clear)
    print(held, allocator.resident_bytes() - started, limit.statistics().trims, len(kept))

trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
"""


def _rested(seconds: float, *used_s: float) -> list[int]:
    """Bytes held and left, trims, and what others keep, after so long.

    Args:
        used_s: seconds of the processor that each look finds.
    """
    command = [sys.executable, "-c", REST, str(seconds), *map(str, used_s)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [int(each) for each in done.stdout.split()]


def test_a_process_that_does_little_gives_holes_back() -> None:
    """100 MB of holes, below the limit, go back when the process has done little for two minutes, and not before."""
    held, after, trims, kept = _rested(130, 0, 0, 0, 0, 0)
    assert held > 90e6
    assert after < 20e6
    assert (trims, kept) == (1, 0)
    held, after, trims, kept = _rested(130, 0, 120, 240)
    assert after >= held
    assert (trims, kept) == (0, 1)


def test_holes_are_given_back_in_a_pause() -> None:
    """It stops the process for a moment, so it waits for a second in which nobody asks, for a minute at most."""
    bursts = (0, 1, 1, 1.5, 1.5, 2, 2, 2, 2)  # two seconds with work in them, and one without
    assert _rested(122.5, *bursts)[2] == 0
    assert _rested(123.5, *bursts)[2] == 1
    never = (0, 1, *(second / 2 for number in range(61) for second in (number, number + 1)))
    assert _rested(179.5, *never)[2] == 0
    assert _rested(180.5, *never)[2] == 1


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
