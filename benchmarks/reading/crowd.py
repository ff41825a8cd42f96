"""Many readers with little memory, and how long a mount takes to its first byte."""

import time

from benchmarks.reading import contestants
from benchmarks.reading.ground import Ground
from s3mount.units import MIB

_READERS = 64
_SMALL_MIB, _LARGE_MIB = 512, 4096
#: The interpreter, the CRT and what else is not data.
_BESIDE_MIB = 150
_KEYS, _DEPTH = 50_000, 4


def readers(ground: Ground) -> None:
    """One file each, memory target 512 MiB and 4 GiB."""
    size = ground.scaled(32 * MIB, 2 * MIB)
    keys, link = [ground.objects.put(f"crowd/{index:02d}.bin", size) for index in range(_READERS)], ground.link(0.03)
    what = f"{_READERS} sequential readers of {size // MIB} MiB each, 30 ms, 90 MB/s per connection"
    for _ in range(ground.repeats):
        for target in (_SMALL_MIB, _LARGE_MIB):
            make = contestants.s3mount("--memory-target", str(target), name=f"s3mount, {target} MiB")
            with ground.mounted(make, link) as who:
                row = ground.row("readers", what, who.name)
                ground.measure(row, who, link, "streams", who.source, _READERS, *keys)
    little, much = (ground.row("readers", what, f"s3mount, {target} MiB") for target in (_SMALL_MIB, _LARGE_MIB))
    little.ratio("of_4096_mib", "mb_per_s", much)
    little.at_most("peak_rss_mib", _SMALL_MIB + _BESIDE_MIB)
    little.at_least("of_4096_mib", 0.9)


def start(ground: Ground) -> None:
    """From exec to the first byte of a known path in a bucket of many keys."""
    n = ground.scaled(_KEYS, 500)
    keys = [f"data/c{index % 50:02d}/s{index % 7}/{index:06d}.txt" for index in range(n)]
    ground.objects.put_many(keys, 1)
    link = ground.link(0, "0")
    what = f"exec to first byte, {n:,} keys, depth {_DEPTH}, no distance"
    for _ in range(ground.repeats):
        with ground.watched(link) as seen:
            started = time.perf_counter()
            with ground.mounted(contestants.s3mount(), link) as who:
                (who.path / keys[49]).read_bytes()
                seconds = time.perf_counter() - started
        row = ground.row("start", what, "s3mount")
        row.note(seconds=seconds, requests=seen[0].gets + seen[0].heads + seen[0].lists)
