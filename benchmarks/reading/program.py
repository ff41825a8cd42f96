"""The command line of a benchmark of parts: which parts, how often, and where the figures go."""

import argparse
import contextlib
import json
import mmap
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from benchmarks.reading.ground import PEERS, Ground
from benchmarks.reading.table import Table
from s3mount.units import GIB

#: A tmpfs everywhere.
_MEMORY = "/dev/shm"
Parts = Mapping[str, Callable[[Ground], None]]


def run(
    module: str, parts: Parts, draw: Callable[[Table, Path], None] | None = None, *, in_memory: bool = False
) -> None:
    """Run what the command line says.

    Args:
        module: as it is started.
        draw: makes the pictures of --plots, if there are any.
        in_memory: each part has a server of its own, which keeps its objects in memory.
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
    table = Table()
    for names in [[name] for name in chosen] if in_memory else [chosen]:
        with _ground(options, table, in_memory=in_memory) as ground:
            for name in names:
                started = time.perf_counter()
                parts[name](ground)
                seconds[name] = round(time.perf_counter() - started, 1)
                table.print_new()
                if options.json:
                    _write(options.json, options, table, seconds)
    table.print_summary()
    print("\nseconds:", ", ".join(f"{name} {took:g}" for name, took in seconds.items()))
    if draw is not None and options.plots:
        draw(table, options.plots)


@contextlib.contextmanager
def _ground(options: argparse.Namespace, table: Table, *, in_memory: bool) -> Iterator[Ground]:
    with contextlib.ExitStack() as stack:

        def directory(where: str | None = None) -> Path:
            made = tempfile.TemporaryDirectory(prefix="s3mount-bench-", dir=where)
            return Path(stack.enter_context(made)).resolve()

        server_work = directory(_MEMORY) if in_memory else None
        has_peers = not options.without_peers
        ground = Ground(directory(), options.repeats, options.quick, has_peers, table, server_work)
        yield stack.enter_context(ground)


def _write(path: Path, options: argparse.Namespace, table: Table, seconds: dict[str, float]) -> None:
    about = {
        "machine": {"cpus": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()},
        "repeats": options.repeats, "quick": options.quick, "seconds": seconds, "rows": table.as_json(),
    }  # fmt: skip
    path.write_text(json.dumps(about, indent=2), encoding="utf-8")


def _touch_memory() -> None:
    """Use memory once: that of a new virtual machine is slow at its first touch (measured: five times)."""
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with mmap.mmap(-1, min(available * 3 // 4, 16 * GIB), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE):
        pass
