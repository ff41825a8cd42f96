"""The command line of a benchmark of parts: which parts, how often, and where the figures go."""

import argparse
import json
import mmap
import os
import platform
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.reading.ground import PEERS, Ground
from benchmarks.reading.table import Table
from s3mount.units import GIB

Parts = Mapping[str, Callable[[Ground], None]]


def run(module: str, parts: Parts, draw: Callable[[Table, Path], None] | None = None) -> None:
    """Run what the command line says.

    Args:
        module: as it is started.
        draw: makes the pictures of --plots, if there are any.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--only", default=",".join(parts), metavar="NAME,...", help=f"some of {','.join(parts)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="every value, the aims and whether they are met")
    if draw is not None:
        parser.add_argument("--plots", type=Path, metavar="DIR", help="pictures of the curves, as SVG")
    parser.add_argument("--quick", action="store_true", help="small sizes: to see that everything runs")
    parser.add_argument("--without-peers", action="store_true", help="ours, the raw client and the local disk")
    options = parser.parse_args()
    chosen = options.only.split(",")
    if not set(chosen) <= set(parts):
        parser.error(f"--only takes some of {','.join(parts)}")
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
                parts[name](ground)
                seconds[name] = round(time.perf_counter() - started, 1)
                ground.table.print_new()
                if options.json:
                    _write(options.json, options, ground, seconds)
            ground.table.print_summary()
    print("\nseconds:", ", ".join(f"{name} {took:g}" for name, took in seconds.items()))
    if draw is not None and options.plots:
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
