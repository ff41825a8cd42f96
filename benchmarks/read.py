"""The reading numbers: ours, its peers and the raw client, against one server in one run.

usage: python -m benchmarks.read [--repeats N] [--only NAME,...] [--json FILE] [--plots DIR] [--quick] [--without-peers]

Needs root, /dev/fuse and what `.ci/prepare test,bench` installs.  Absolute figures depend on the
machine; the ratios are what to look at.  docs/performance.md says what each part measures.
"""

import argparse
import json
import mmap
import os
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.reading.crowd import readers, start
from benchmarks.reading.formats import load, shards, slices, tars
from benchmarks.reading.ground import PEERS, Ground
from benchmarks.reading.jumps import jumps
from benchmarks.reading.sequential import direct, far, plain, tls
from benchmarks.reading.small import epoch, small
from s3mount.units import GIB

_PARTS: dict[str, Callable[[Ground], None]] = {
    "plain": plain, "tls": tls, "far": far, "small": small, "epoch": epoch, "random": jumps, "shards": shards,
    "slices": slices, "direct": direct, "load": load, "tars": tars, "readers": readers, "start": start,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.read")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--only", default=",".join(_PARTS), metavar="NAME,...", help=f"some of {','.join(_PARTS)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="every value, the aims and whether they are met")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="pictures of the curves, as SVG")
    parser.add_argument("--quick", action="store_true", help="small sizes: to see that everything runs")
    parser.add_argument("--without-peers", action="store_true", help="ours, the raw client and the local disk")
    options = parser.parse_args()
    chosen = options.only.split(",")
    if not set(chosen) <= set(_PARTS):
        parser.error(f"--only takes some of {','.join(_PARTS)}")
    if not options.without_peers and not PEERS.exists():
        parser.error(f"{PEERS} is missing: .ci/prepare test,bench makes it; or --without-peers")
    if not options.quick:
        _touch_memory()
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="s3mount-bench-") as temporary:
        work = Path(temporary).resolve()
        with Ground(work, options.repeats, options.quick, not options.without_peers) as ground:
            for name in chosen:
                started = time.perf_counter()
                _PARTS[name](ground)
                seconds[name] = round(time.perf_counter() - started, 1)
                ground.table.print_new()
                if options.json:
                    _write(options.json, options, ground, seconds)
            ground.table.print_summary()
    print("\nseconds:", ", ".join(f"{name} {took:g}" for name, took in seconds.items()))
    if options.plots:
        from benchmarks.reading.plots import draw  # noqa: PLC0415  matplotlib

        draw(ground.table, options.plots)


def _write(path: Path, options: argparse.Namespace, ground: Ground, seconds: dict[str, float]) -> None:
    about = {
        "machine": {"cpus": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()},
        "repeats": options.repeats, "quick": options.quick, "seconds": seconds, "rows": ground.table.as_json(),
    }  # fmt: skip
    path.write_text(json.dumps(about, indent=2), encoding="utf-8")


def _touch_memory() -> None:
    """Use memory once: that of a new virtual machine is slow at its first touch (measured: five times)."""
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with mmap.mmap(-1, min(available // 2, 8 * GIB), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE):
        pass


if __name__ == "__main__":
    main()
