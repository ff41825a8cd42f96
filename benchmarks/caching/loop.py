"""How late the daemon answers while its cache fills and evicts as fast as it can."""

from pathlib import Path

from benchmarks.caching.place import N_STREAMS, Place
from benchmarks.readers.attributes import asking
from benchmarks.reading.contestants import Contestant
from benchmarks.reading.table import Row
from s3mount.units import MIB

_MOST_MS = 20.0


def loop(place: Place) -> None:
    """getattr beside streams that fill a cache too small for them; and beside the same without a cache."""
    ground = place.ground
    limit = str(place.stream_bytes // 4 // MIB)
    what = f"getattr beside {N_STREAMS} streams, cache of {limit} MiB"
    for _ in range(ground.repeats):
        off, on = (ground.row("loop", what, who) for who in ("s3mount, no cache", "s3mount"))
        with ground.mounted(place.ours(None), place.link) as who:
            _ask(place, off, who)
        directory = ground.directory("small")
        flags = ("--max-cache-size", limit, "--cache-policy", "lru")
        with ground.mounted(place.ours(directory, *flags), place.link) as who:
            _ask(place, on, who)
        on.note(blocks_left=sum(1 for _ in Path(directory).glob("v1/??/*")))
    on.at_most("p99_ms", _MOST_MS, until_cpu_full=True)


def _ask(place: Place, row: Row, who: Contestant) -> None:
    reading = place.streams(N_STREAMS)
    with asking(who.path / place.whole) as latencies_ms:
        place.measure(row, who, reading)
    asked = sorted(latencies_ms)
    row.note(asked=len(asked), p50_ms=asked[len(asked) // 2], p99_ms=asked[len(asked) * 99 // 100], worst_ms=asked[-1])
