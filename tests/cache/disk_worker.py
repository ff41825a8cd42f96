"""A process that uses a cache directory, for tests that kill it or run several.

usage: python -m tests.cache.disk_worker DIR fill|mixed|keep SEED MAX_BYTES OPERATIONS

`fill` reads seeds from stdin and forks for each: starting Python takes longer than what is tested.
The child prints its process id, then puts objects one after the other and prints the number of each
when it is on disk, until it is killed; then its parent prints "dead".
`mixed` reads objects at random, compares every byte, and puts in what is missing; it prints its
counters as JSON and exits with 1 if a byte was wrong.  `keep` is the same without evicting, and exits
with 1 also if it missed an object that it had found or put in before.
"""

import itertools
import json
import os
import random
import sys
from pathlib import Path

import trio

from s3mount.cache.disk import DiskCache, DiskCacheConfig
from s3mount.core.epochs import CachePolicy
from s3mount.core.ranges import ByteRange
from s3mount.units import KIB
from tests.cache.disk_harness import ORIGIN, Source, content_of, counted

SOURCE = Source(200 * KIB + 77)
N_OBJECTS = 120


async def fill(cache: DiskCache, seed: int) -> None:
    content = SOURCE.bytes(0)
    for number in itertools.count(seed * 1_000_000):
        cache.put(content_of(cache, SOURCE, number), 0, content)
        await cache.drained()
        if counted(cache).dropped or counted(cache).refused:
            raise RuntimeError("a block was not written")
        os.write(1, b"%d\n" % number)  # in one piece: print() can be killed before the line ends


async def mixed(cache: DiskCache, seed: int, operations: int, *, keeps: bool) -> bool:
    draw = random.Random(seed)
    objects = [SOURCE.bytes(number) for number in range(N_OBJECTS)]
    seen = set()
    is_right = True
    for _ in range(operations):
        number = draw.randrange(N_OBJECTS)
        content = content_of(cache, SOURCE, number)
        start = draw.randrange(SOURCE.size)
        span = ByteRange(start, draw.randrange(start, SOURCE.size) + 1)
        found = cache.get_nowait(content, span) or await cache.get(content, span)
        if found is None:
            is_right = is_right and not (keeps and number in seen)
            cache.put(content, 0, objects[number])
            await cache.drained()
        elif found != objects[number][span.start : span.stop]:
            is_right = False
        seen.add(number)
        if not keeps and draw.random() < 0.01:
            await cache.evict(SOURCE.size)
    await cache.drained()
    cache.check_invariants()
    print(json.dumps(counted(cache).__dict__))
    return is_right


async def main(directory: str, mode: str, seed: int, max_bytes: float, operations: int) -> int:
    config = DiskCacheConfig((Path(directory),), max_bytes, min_free_percent=0, policy=CachePolicy.LRU)
    cache = DiskCache(config, ORIGIN)
    async with cache.running():
        if mode == "fill":
            await fill(cache, seed)
        await cache.scanned()
        return 0 if await mixed(cache, seed, operations, keeps=mode == "keep") else 1
    return 2


def fork_for_each_seed(directory: str, max_bytes: float) -> None:
    for line in sys.stdin:
        child = os.fork()
        if not child:
            print(os.getpid(), flush=True)
            trio.run(main, directory, "fill", int(line), max_bytes, 0)
        os.waitpid(child, 0)
        print("dead", flush=True)


if __name__ == "__main__":
    _, path, mode, seed, size, count = sys.argv
    if mode == "fill":
        fork_for_each_seed(path, float(size))
    else:
        sys.exit(trio.run(main, path, mode, int(seed), float(size), int(count)))
