"""Renames and removals on a mount with --rw, at 20 ms per request: seconds, and requests by kind.

usage: python -m benchmarks.names [--repeats N] [--quick]

    rename   a directory of 1,000 files: at most 2 s
    rm       rm -rf of a directory of 2,000 files: at most 5 s
    raw      the copies of the rename by themselves, 32 at once by boto3's client, without a mount
"""

import argparse
import os
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks import keysets
from benchmarks.contenders import s3mount
from benchmarks.distance import Front
from benchmarks.run import Run
from tests.support.servers import make_client

_DELAY_S = 0.02
_RENAMED, _REMOVED = 1000, 2000
#: nginx writes its log when a request is over.
_LOG_LATE_S = 0.2


def _counted(front: Front, call: Callable[[], object]) -> tuple[float, Counter[str]]:
    """Seconds that a call took, and its requests by kind."""
    before, began = len(front.requests()), time.perf_counter()
    call()
    seconds = time.perf_counter() - began
    time.sleep(_LOG_LATE_S)  # noqa: TID251  another process
    kinds: Counter[str] = Counter()
    for line in front.requests()[before:]:
        method, _, _, uri, *_ = line.split(" ")
        kinds["LIST" if "list-type=2" in uri else method] += 1
    return seconds, kinds


def measure(run: Run) -> None:
    """All of it, each time on new keys."""
    front = run.front(run.server.url.removeprefix("http://"), _DELAY_S)
    renamed, removed = run.count(_RENAMED), run.count(_REMOVED)
    for n in range(run.repeats):
        for name, count in ((f"d{n}", renamed), (f"r{n}", removed)):
            keysets.store(run.server.url, run.bucket, [f"{name}/{each:05}" for each in range(count)])
        with s3mount(run.bucket, front.url, run.directory(), "--rw") as mount:
            row = f"rename of a directory of {renamed:,} files"
            rename = partial(os.rename, mount.path / f"d{n}", mount.path / f"n{n}")
            _row(run, front, row, rename, cpu_s=mount.cpu_s)
            run.aim(row, seconds=2.0)
            row = f"rm -rf of a directory of {removed:,} files"
            _row(run, front, row, partial(_remove, mount.path / f"r{n}"), cpu_s=mount.cpu_s)
            run.aim(row, seconds=5.0)
        copies = partial(_copy, front, run.bucket, f"n{n}/", f"raw{n}/", renamed)
        _row(run, front, f"the same {renamed:,} copies by boto3, 32 threads", copies, cpu_s=time.process_time)


def _row(run: Run, front: Front, row: str, call: Callable[[], object], cpu_s: Callable[[], float]) -> None:
    before = cpu_s()
    seconds, kinds = _counted(front, call)
    run.note(row, seconds=seconds, cpu_s=cpu_s() - before, **kinds)


def _remove(path: Path) -> None:
    subprocess.run(["rm", "-rf", path], check=True)


def _copy(front: Front, bucket: str, old: str, new: str, count: int) -> None:
    client = make_client(front.url)

    def copy(number: int) -> None:
        source = {"Bucket": bucket, "Key": f"{old}{number:05}"}
        client.copy_object(Bucket=bucket, Key=f"{new}{number:05}", CopySource=source)

    with ThreadPoolExecutor(32) as threads:
        list(threads.map(copy, range(count)))


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.names")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a tenth of the files, once")
    options = parser.parse_args()
    repeats, divisor = (1, 10) if options.quick else (options.repeats, 1)
    with tempfile.TemporaryDirectory() as work, Run(Path(work), repeats, divisor) as run:
        measure(run)
        run.report()


if __name__ == "__main__":
    main()
