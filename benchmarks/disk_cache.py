"""The disk cache alone, without FUSE and S3: reads a second, bytes a second, CPU, memory.

usage: python -m benchmarks.disk_cache [DIRECTORY]        prints one JSON object

`cold` is with the kernel's pages of the blocks dropped, `warm` with all of them in memory.  The event
loop's latency is measured beside the puts: how late a task that sleeps 1 ms wakes up.
"""

import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio

from s3mount.cache.disk import DiskCache
from s3mount.cache.disk_config import DiskCacheConfig
from s3mount.core.attrs import ObjectId
from s3mount.core.cells import CachedContent
from s3mount.core.epochs import CachePolicy
from s3mount.core.lru import PAGE, BlockIndex, KnownBlock  # noqa: F401  used by the process that measures memory
from s3mount.core.ranges import ByteRange
from s3mount.units import GIB, KIB, MIB

_IN_FLIGHT = 16
_READS = 20_000
_SMALL = 115_000
_N_SMALL = 4_000
_ORIGIN = "benchmark"


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def forget_pages(directory: Path) -> None:
    os.sync()
    for path in directory.glob("v1/??/*"):
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def read_bytes() -> int:
    """What this process had read from disks so far."""
    text = Path("/proc/self/io").read_text(encoding="ascii")
    return int(text.partition("\nread_bytes:")[2].split()[0])


async def at_once(jobs: list[Callable[[], Awaitable[None]]]) -> tuple[float, float]:
    """Seconds and CPU seconds of some jobs, 16 in flight."""
    waiting = iter(jobs)

    async def one_after_the_other() -> None:
        for job in waiting:
            await job()

    began, used = time.perf_counter(), cpu_s()
    async with trio.open_nursery() as nursery:
        for _ in range(_IN_FLIGHT):
            nursery.start_soon(one_after_the_other)
    return time.perf_counter() - began, cpu_s() - used


def content_of(cache: DiskCache, name: str, size: int) -> CachedContent:
    content = cache.content(ObjectId(name, "e"), size)
    if content is None:
        raise RuntimeError("not cached")
    return content


async def reads(cache: DiskCache, spans: list[tuple[CachedContent, ByteRange]]) -> dict[str, float]:
    def job(content: CachedContent, span: ByteRange) -> Callable[[], Awaitable[None]]:
        async def read() -> None:
            view = cache.get_nowait(content, span)
            if view is None:
                view = await cache.get(content, span)
            if view is None or len(view) != span.length:
                raise RuntimeError("a miss")

        return read

    from_disk = read_bytes()
    took, used = await at_once([job(*each) for each in spans])
    n_bytes = sum(span.length for _, span in spans)
    return {
        "reads_per_s": round(len(spans) / took),
        "GB_per_s": round(n_bytes / took / 1e9, 3),
        "cpu_us_per_read": round(used / len(spans) * 1e6, 1),
        "cpu_s_per_GB": round(used / n_bytes * 1e9, 3),
        "disk_bytes_per_read": round((read_bytes() - from_disk) / len(spans)),
    }


async def puts(cache: DiskCache, name: str, n: int, size: int) -> dict[str, float]:
    """As fast as the disk takes them: waits only when the queue is full."""
    data = os.urandom(size)
    late: list[float] = []
    began, used = time.perf_counter(), cpu_s()
    async with trio.open_nursery() as nursery:

        async def measure_loop() -> None:
            while True:
                at = trio.current_time()
                await trio.sleep(0.001)
                late.append(trio.current_time() - at - 0.001)

        nursery.start_soon(measure_loop)
        for number in range(n):
            cache.put(content_of(cache, f"{name}{number}", size), 0, data)
            if sum(each.queued_bytes for each in cache.statistics().values()) > 32 * MIB:
                await cache.drained()
            elif number % 8 == 0:
                await trio.lowlevel.checkpoint()
        await cache.drained()
        nursery.cancel_scope.cancel()
    took, used = time.perf_counter() - began, cpu_s() - used
    late.sort()
    return {
        "GB_per_s": round(n * size / took / 1e9, 3),
        "blocks_per_s": round(n / took),
        "cpu_s_per_GB": round(used / (n * size) * 1e9, 3),
        "loop_late_p99_ms": round(late[len(late) * 99 // 100] * 1e3, 2),
        "loop_late_worst_ms": round(late[-1] * 1e3, 2),
    }


def index_of_a_million() -> dict[str, float]:
    """In a process of its own, so that nothing else is counted."""
    code = (
        "import os, time; from benchmarks.disk_cache import *; n = 1_000_000; index = BlockIndex(1); r = rss();"
        "[index.add(KnownBlock(os.urandom(20), 8 * MIB + PAGE, i)) for i in range(n)]; grown = rss() - r;"
        "t = cpu_s(); index.take(1, float('inf')); s = cpu_s() - t;"
        "print(json.dumps({'bytes_per_block': grown / n, 'sort_oldest_ms': s * 1e3}))"
    )
    environment = {**os.environ, "PYTHONMALLOC": "malloc"}  # as the daemon runs
    return dict(json.loads(subprocess.check_output([sys.executable, "-c", code], env=environment)))


def rss() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmRSS:")[2].split()[0]) * KIB


async def main(directory: Path) -> dict[str, object]:
    results: dict[str, object] = {"index": index_of_a_million()}
    config = DiskCacheConfig((directory / "cache",), max_bytes=6 * GIB, policy=CachePolicy.LRU)
    cache = DiskCache(config, _ORIGIN)
    draw = random.Random(1)
    async with cache.running():
        await cache.scanned()
        results["put 8 MiB"] = await puts(cache, "large", 256, 8 * MIB)
        results["put 115 kB"] = await puts(cache, "small", _N_SMALL, _SMALL)
        large = [content_of(cache, f"large{number}", 8 * MIB) for number in range(256)]
        small = [content_of(cache, f"small{number}", _SMALL) for number in range(_N_SMALL)]
        pages = [(draw.choice(large), ByteRange(at, at + 4096)) for at in _page_offsets(draw)]
        files = [(content, ByteRange(0, _SMALL)) for content in draw.sample(small, len(small))]
        parts = [(content, ByteRange(at, at + MIB)) for content in large for at in range(0, 8 * MIB, MIB)]
        for name, spans in (("4 KiB", pages), ("115 kB", files), ("1 MiB", parts)):
            forget_pages(directory / "cache")
            results[f"get {name}, cold"] = await reads(cache, spans)
            await reads(cache, spans)
            results[f"get {name}, warm"] = await reads(cache, spans)
        results["put 8 MiB, evicting"] = await puts(cache, "more", 1024, 8 * MIB)
        results["statistics"] = [each.__dict__ for each in cache.statistics().values()]
    return results


def _page_offsets(draw: random.Random) -> list[int]:
    return [draw.randrange(8 * MIB // 4096) * 4096 for _ in range(_READS)]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as where:
        print(json.dumps(trio.run(main, Path(where)), indent=1))
