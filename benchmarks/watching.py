"""What it costs to be watched: `python -m benchmarks.watching`.

Three numbers, in CPU time, since a busy host stretches the clock and not that:

* a call at the boundary that is answered at once, as it is and with the timing and the table of openers taken out;
* a scrape, and statistics by s3mountctl, of a mount with some history: what the daemon spends for one;
* so the share of one processor that a scrape every 15 s (and every second) takes.
"""

import os
import resource
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from s3mount.fuse.boundary import Boundary
from s3mount.fuse.call_clock import CallClock
from tests.support.content import make_content
from tests.support.ctl import run_ctl
from tests.support.mounts import Mount, mounted
from tests.support.servers import seaweedfs

_CALLS = 200_000
_SCRAPES = 20
_STATS = 20
_FILES = 200


class NoClock(CallClock):
    """A clock that reads no clock."""

    def begin(self, name: str, subject: int, pid: int) -> None:
        return

    def end(self, operation: object) -> None:
        return


def own_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def call_us(boundary: Boundary) -> float:
    """CPU of one call that does nothing."""
    guard = boundary.guard
    began = own_cpu_s()
    for handle in range(_CALLS):
        with guard("read", handle, 0, 0):
            pass
    return (own_cpu_s() - began) / _CALLS * 1e6


def open_us() -> float:
    """CPU of what is noted of one open, read and close."""
    callers, pid = Boundary(60.0).callers, os.getpid()
    began = own_cpu_s()
    for handle in range(_CALLS // 10):
        callers.opened(handle, 1, pid)
        callers.delivered(handle, b"")
        callers.closed(handle)
    return (own_cpu_s() - began) / (_CALLS // 10) * 1e6


def daemon_cpu_s(mount: Mount) -> float:
    """Of all its threads that live (proc(5), schedstat), in nanoseconds and not in ticks."""
    tasks = Path(f"/proc/{mount.daemon_pid}/task").iterdir()
    return sum(int((each / "schedstat").read_text(encoding="ascii").split()[0]) for each in tasks) / 1e9


def scrape(path: Path) -> int:
    with socket.socket(socket.AF_UNIX) as client, client.makefile("rb") as answer:
        client.connect(str(path))
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        return len(answer.read())


def measured(mount: Mount, act: Any, count: int, pause_s: float) -> tuple[float, float]:
    """CPU seconds of the daemon for one act, those of its idle life taken off; and the clock's."""
    time.sleep(3)  # noqa: TID251  what is on its way to the disk
    idle_from = daemon_cpu_s(mount)
    time.sleep(10)  # noqa: TID251
    idle_per_s = (daemon_cpu_s(mount) - idle_from) / 10
    began, cpu = time.perf_counter(), daemon_cpu_s(mount)
    took = 0.0
    for _ in range(count):
        at = time.perf_counter()
        act()
        took += time.perf_counter() - at
        time.sleep(pause_s)  # noqa: TID251
    elapsed = time.perf_counter() - began
    return (daemon_cpu_s(mount) - cpu - idle_per_s * elapsed) / count, took / count


def main() -> None:
    plain = Boundary(60.0)
    plain._clock = NoClock()
    timed = Boundary(60.0)
    pairs = [(call_us(plain), call_us(timed)) for _ in range(5)]
    without, with_it = (min(column) for column in zip(*pairs, strict=True))
    print(f"a call at the boundary: {with_it:.2f} us, without timing {without:.2f} us")
    print(f"open, read and close are noted in {min(open_us() for _ in range(5)):.2f} us")
    with tempfile.TemporaryDirectory() as directory, seaweedfs(Path(directory) / "weed") as server:
        work = Path(directory)
        bucket = server.make_bucket()
        for number in range(_FILES):
            server.client.put_object(Bucket=bucket, Key=f"{number:03}", Body=make_content(str(number), 100_000))
        flags = ["--metrics", str(work / "metrics"), "--cache", str(work / "cache")]
        with mounted(bucket, work, *flags, url=server.url) as mount:
            subprocess.run(f"ls -l {mount.path} >/dev/null; cat {mount.path}/* > /dev/null", shell=True, check=True)
            size = scrape(work / "metrics")
            cpu_s, took_s = measured(mount, lambda: scrape(work / "metrics"), _SCRAPES, 1.05)
            print(f"a scrape: {cpu_s * 1e3:.1f} ms of CPU, {took_s * 1e3:.1f} ms until it is there, {size} bytes")
            print(f"every 15 s: {cpu_s / 15:.3%} of a processor; every second: {cpu_s:.2%}")
            cpu_s, took_s = measured(mount, lambda: run_ctl("stats", mount.path, "--json"), _STATS, 0.0)
            print(f"s3mountctl stats: {cpu_s * 1e3:.1f} ms of the daemon's CPU, {took_s * 1e3:.0f} ms in all")


if __name__ == "__main__":
    main()
