"""The reading numbers: ours, its peers and the raw client, against one server in one run.

usage: python -m benchmarks.read [--repeats N] [--only NAME,...] [--json FILE] [--plots DIR] [--quick] [--without-peers]

Needs root, /dev/fuse and what `.ci/prepare test,bench` installs.  Absolute figures depend on the
machine; the ratios are what to look at.  docs/performance.md says what each part measures.
"""

from pathlib import Path

from benchmarks.reading.crowd import readers, start
from benchmarks.reading.formats import load, shards, slices, tars
from benchmarks.reading.jumps import jumps
from benchmarks.reading.program import Parts, run
from benchmarks.reading.sequential import direct, far, plain, tls
from benchmarks.reading.small import epoch, small
from benchmarks.reading.table import Table

_PARTS: Parts = {
    "plain": plain, "tls": tls, "far": far, "small": small, "epoch": epoch, "random": jumps, "shards": shards,
    "slices": slices, "direct": direct, "load": load, "tars": tars, "readers": readers, "start": start,
}  # fmt: skip


def _draw(table: Table, directory: Path) -> None:
    from benchmarks.reading.plots import draw  # noqa: PLC0415  matplotlib

    draw(table, directory)


if __name__ == "__main__":
    run("benchmarks.read", _PARTS, _draw)
