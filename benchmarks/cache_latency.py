"""How long a call waits for the event loop while the disk cache fills and evicts at full speed.

usage: python -m benchmarks.cache_latency [--seconds N] [--without CASE,...] [--first] [DIRECTORY]

Prints one JSON object for each case.  Another process calls statvfs on the mount, which the kernel never
answers itself, a thousand times a second at most.  Meanwhile two programs read all files again and again,
without the kernel's pages.  The cache holds a quarter of them, under `lru`: every block that comes
evicts.  The same with the cache off, and with nobody reading, says what of it is the server and the machine.

`loop_waited_share` is the share of the time that the loop's thread could have run but got no processor.  When
it is more than a little, the figures are those of a machine with too much to do; `--first` puts the daemon
and the process that measures before everything else there (SCHED_RR; needs root).
"""

import argparse
import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.contenders import s3mount
from s3mount.units import MIB
from tests.support.servers import Server, seaweedfs

PROBE = """
import json, os, sys, time
path, seconds = sys.argv[1], float(sys.argv[2])
took, end = [], time.perf_counter() + seconds
while (began := time.perf_counter()) < end:
    os.statvfs(path)
    took.append(time.perf_counter() - began)
    time.sleep(0.001)
took.sort()
print(json.dumps({"n": len(took), "p50_ms": took[len(took) // 2] * 1e3, "p99_ms": took[len(took) * 99 // 100] * 1e3,
                  "p99.9_ms": took[len(took) * 999 // 1000] * 1e3, "worst_ms": took[-1] * 1e3}))
"""
_READER = """
import os, random, sys
paths, buffer = [entry.path for entry in os.scandir(sys.argv[1])], bytearray(1 << 20)
while True:
    random.shuffle(paths)
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        while os.readv(fd, [buffer]):
            pass
        os.close(fd)
"""
#: Names, sizes and numbers of files.
_SETS = {"8 MiB parts": (256 * MIB, 8), "115 kB files": (115_000, 4000)}


def fill(server: Server, bucket: str) -> None:
    for name, (size, n) in _SETS.items():
        content = os.urandom(size)
        for number in range(n):
            server.client.put_object(Bucket=bucket, Key=f"{name}/{number:05}", Body=content)


@contextlib.contextmanager
def readers(path: Path, n: int) -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", _READER, str(path)]) for _ in range(n)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def waited_s(pid: int) -> float:
    """What the thread of the loop has waited for a processor so far, seconds."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text(encoding="ascii").split()[1]) / 1e9


def measure(
    bucket: str, url: str, work: Path, name: str, case: str, seconds: float, *, is_first: bool
) -> dict[str, object]:
    size, n = _SETS[name]
    flags = ["--metadata-ttl", "indefinite"]
    if case == "cache":
        room = size * n // 4 // MIB
        flags += ["--cache", str(work / "cache"), "--max-cache-size", str(room), "--cache-policy", "lru"]
    directory = Path(tempfile.mkdtemp(dir=work))
    with s3mount(bucket, url, directory, *flags) as mount, readers(mount.path / name, 0 if case == "idle" else 2):
        time.sleep(3)  # noqa: TID251  until the cache is full
        if is_first:
            subprocess.run(["chrt", "--rr", "--all-tasks", "--pid", "1", str(mount.pid)], check=True)
        spent, waited, began = mount.cpu_s(), waited_s(mount.pid), time.perf_counter()
        command = [*(["chrt", "--rr", "1"] if is_first else []), sys.executable, "-c", PROBE, mount.path, str(seconds)]
        found = json.loads(subprocess.check_output(command))
        elapsed = time.perf_counter() - began
        found |= {"daemon_cpus": (mount.cpu_s() - spent) / elapsed}
        found |= {"loop_waited_share": (waited_s(mount.pid) - waited) / elapsed}
    log = (directory / "s3mount.log").read_text(encoding="utf-8")
    kept = log.partition("disk cache ")[2].partition("\n")[0].partition(": ")[2]
    return {"what": name, "case": case, **{figure: round(value, 3) for figure, value in found.items()}, "cache": kept}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cache_latency")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--without", default="", help="cases to leave out: idle, off, cache")
    parser.add_argument("--first", action="store_true", help="before everything else on this machine")
    parser.add_argument("directory", nargs="?", help="of the cache; a temporary one is made in it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as temporary:
        work = Path(temporary)
        with seaweedfs(work / "weed") as server:
            bucket = server.make_bucket()
            fill(server, bucket)
            for name, case in itertools.product(_SETS, ("idle", "off", "cache")):
                if case not in options.without.split(","):
                    figures = measure(bucket, server.url, work, name, case, options.seconds, is_first=options.first)
                    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
