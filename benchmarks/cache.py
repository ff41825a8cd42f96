"""The numbers of the disk cache: from disk against local files, filling against no cache, in one run.

usage: python -m benchmarks.cache [--repeats N] [--only NAME,...] [--json FILE] [--quick]

Needs root and /dev/fuse, and nothing of the peers.  Server, daemon and readers share the machine, and the disk may be
a slow one: ratios are between rows of this run, measured in turns; `disk` says what the disk did meanwhile.
docs/performance.md says what each part measures.
"""

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.caching.fill import disk, fill, warm
from benchmarks.caching.hits import files, random, streams
from benchmarks.caching.loop import loop
from benchmarks.caching.place import Place
from benchmarks.reading.ground import Ground

_PARTS: dict[str, Callable[[Place], None]] = {
    "disk": disk, "files": files, "streams": streams, "random": random, "fill": fill, "warm": warm, "loop": loop,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cache")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--only", default=",".join(_PARTS), metavar="NAME,...", help=f"some of {','.join(_PARTS)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="every value, the aims and whether they are met")
    parser.add_argument("--quick", action="store_true", help="small sizes: to see that everything runs")
    options = parser.parse_args()
    chosen = options.only.split(",")
    if not set(chosen) <= set(_PARTS):
        parser.error(f"--only takes some of {','.join(_PARTS)}")
    repeats = 1 if options.quick else options.repeats
    seconds: dict[str, float] = {}
    with (
        tempfile.TemporaryDirectory(prefix="s3mount-bench-") as temporary,
        Ground(Path(temporary).resolve(), repeats, options.quick, has_peers=False) as ground,
    ):
        place = Place(ground)
        for name in chosen:
            started = time.perf_counter()
            _PARTS[name](place)
            seconds[name] = round(time.perf_counter() - started, 1)
            ground.table.print_new()
            if options.json:
                _write(options, ground, seconds)
        ground.table.print_summary()
    print("\nseconds:", ", ".join(f"{name} {took:g}" for name, took in seconds.items()))


def _write(options: argparse.Namespace, ground: Ground, seconds: dict[str, float]) -> None:
    about = {
        "machine": {"cpus": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()},
        "repeats": ground.repeats, "quick": options.quick, "seconds": seconds, "rows": ground.table.as_json(),
    }  # fmt: skip
    options.json.write_text(json.dumps(about, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
