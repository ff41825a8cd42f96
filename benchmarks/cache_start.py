"""Does a large disk cache delay the start of a mount?

usage: python -m benchmarks.cache_start [BLOCKS] [DIRECTORY]         prints one JSON object

Makes a cache directory of BLOCKS files (a million if not said; their content is a hole, which a scan does not
see), and mounts an empty bucket with it, with the kernel's memory of the files dropped, and without it.  Told
are the seconds from the start of the command to the first answer of the mount, what a statvfs by another
process takes while the scan runs, and of the scan alone: seconds, CPU seconds and bytes of memory a block.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import trio

from benchmarks.cache_latency import PROBE
from benchmarks.disk_cache import cpu_s, rss
from s3mount.cache.disk import DiskCache, DiskCacheConfig
from s3mount.core.lru import N_FOLDERS, PAGE
from tests.support.mounts import mounted, run_command
from tests.support.servers import seaweedfs

_PROBE_S = 15.0


def make_blocks(directory: Path, n: int) -> int:
    """Files with the names and sizes of blocks. Returns how many."""
    DiskCache(DiskCacheConfig((directory,)), "start")
    each = n // N_FOLDERS
    for folder in range(N_FOLDERS):
        at = os.open(directory / "v1" / f"{folder:02x}", os.O_RDONLY | os.O_DIRECTORY)
        for _ in range(each):
            name = (bytes([folder]) + os.urandom(19)).hex()
            fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=at)
            os.truncate(fd, 2 * PAGE)
            os.close(fd)
        os.close(at)
    return each * N_FOLDERS


def forget_files() -> None:
    """The kernel forgets inodes and names, too; what starting Python needs is read again."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3", encoding="ascii")
    run_command("--help")


def start(bucket: str, url: str, work: Path, name: str, *flags: str) -> dict[str, float]:
    """Seconds until a mount answers, and how it answers then."""
    forget_files()
    began = time.perf_counter()
    with mounted(bucket, work / name, *flags, url=url) as mount:
        os.statvfs(mount.path)
        figures = {"start_s": time.perf_counter() - began}
        command = [sys.executable, "-c", PROBE, mount.path, str(_PROBE_S)]
        return figures | json.loads(subprocess.check_output(command))


async def scan(directory: Path) -> dict[str, float]:
    """The first look at everything."""
    forget_files()
    before, began, spent = rss(), time.perf_counter(), cpu_s()
    cache = DiskCache(DiskCacheConfig((directory,), min_free_percent=0), "start")
    async with cache.running():
        await cache.scanned()
        (found,) = cache.statistics().values()
        took_s, used_s = time.perf_counter() - began, cpu_s() - spent
        bytes_per_block = (rss() - before) / found.blocks
    return {"blocks": found.blocks, "scan_s": took_s, "scan_cpu_s": used_s, "bytes_per_block": bytes_per_block}


def main(n: int, parent: str | None) -> None:
    with tempfile.TemporaryDirectory(dir=parent) as temporary:
        work = Path(temporary)
        n = make_blocks(work / "cache", n)
        with seaweedfs(work / "weed") as server:
            bucket = server.make_bucket()
            figures = {
                "without": start(bucket, server.url, work, "without"),
                f"{n} blocks": start(bucket, server.url, work, "with", "--cache", str(work / "cache")),
            }
        print(json.dumps(figures | {"scan": trio.run(scan, work / "cache")}))


if __name__ == "__main__":
    main(int(sys.argv[1] if len(sys.argv) > 1 else "1000000"), sys.argv[2] if len(sys.argv) > 2 else None)
