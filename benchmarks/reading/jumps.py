"""Random reads of one large object, against the arithmetic of the distance.

A read that waits for nothing else takes L + bytes ÷ b: L is the time to the first byte, b the rate of a
connection.  Both are measured with the raw client in the same run, from GETs of 4 KiB and of 8 MiB.
"""

from benchmarks.reading import contestants
from benchmarks.reading.contestants import Link
from benchmarks.reading.ground import Ground
from benchmarks.reading.table import Row
from s3mount.units import GIB, KIB, MIB

_PART = "random"
_LENGTHS = (4 * KIB, 64 * KIB, 256 * KIB, MIB)
_IN_FLIGHT = (1, 16)
#: Where those are measured too that have no aim.
_OTHERS_AT = ((4 * KIB, 16), (MIB, 16))
_SECONDS = 3.0
_CHEAP = 256 * KIB


def jumps(ground: Ground) -> None:
    """pread of 4 KiB to 1 MiB on 4 GiB, 1 and 16 in flight, 20 ms."""
    size = ground.scaled(4 * GIB, 256 * MIB)
    key, link = ground.objects.put("big/4g.bin", size), ground.link(0.02)
    distance_s, rate = _observe(ground, link, key, size)
    lengths = _LENGTHS if not ground.is_quick else (_LENGTHS[0], _LENGTHS[-1])
    for length in lengths:
        for in_flight in _IN_FLIGHT:
            what = f"pread of {length // KIB} KiB, {in_flight} in flight, 20 ms"
            rows = _measure(ground, link, what, (key, size, length, in_flight))
            for row in rows:
                _judge(row, distance_s + length / rate, in_flight, length)


def _observe(ground: Ground, link: Link, key: str, size: int) -> tuple[float, float]:
    """L in seconds, and b in bytes per second."""
    row = ground.row(_PART, "the distance", "raw CRT")
    for _ in range(ground.repeats):
        took_s = []
        for length in (4 * KIB, 8 * MIB):
            figures = ground.program(
                "raw_crt", "jumps", link.url, ground.bucket, key, size, length, 1, ground.seconds(3)
            )
            took_s.append(figures["p50_ms"] / 1000)
        near_s, far_s = took_s
        row.note(L_ms=near_s * 1000, b_mb_per_s=8 * MIB / max(far_s - near_s, 1e-6) / 1e6)
    return row.of("L_ms") / 1000, row.of("b_mb_per_s") * 1e6


def _measure(ground: Ground, link: Link, what: str, reads: tuple[str, int, int, int]) -> list[Row]:
    """Everybody's rows; those of ours, which have aims, are returned."""
    _, _, length, in_flight = reads
    seconds = ground.seconds(_SECONDS)
    peers = [contestants.connector, contestants.s3fs_fuse, contestants.fsspec]
    others = peers if ground.has_peers and (length, in_flight) in _OTHERS_AT else []
    ours, at = [], {"KiB": length / KIB, "in_flight": in_flight}
    for _ in range(ground.repeats):
        ground.raw(ground.row(_PART, what, "raw CRT", **at), link, "jumps", *reads, seconds)
        for how in ("direct", "buffered"):
            with ground.mounted(contestants.s3mount(), link) as who:
                row = ground.row(_PART, what, f"s3mount, {how}", **at)
                ground.measure(row, who, link, "jumps", who.source, *reads, seconds, how)
            row.note(server_kib_per_read=row.figures["server_mb"][-1] * 1e6 / KIB / row.figures["reads"][-1])
            ours.append(row)
        for make in others:
            with ground.mounted(make, link) as who:
                ground.measure(ground.row(_PART, what, who.name, **at), who, link, "jumps", who.source, *reads, seconds)
    return list({id(row): row for row in ours}.values())


def _judge(row: Row, model_s: float, in_flight: int, length: int) -> None:
    for p50_ms, iops in zip(row.figures["p50_ms"], row.figures["iops"], strict=True):
        row.note(
            p50_of_model=p50_ms / 1000 / model_s, iops_of_model=iops / (in_flight / model_s), model_ms=model_s * 1000
        )
    row.at_most("p50_of_model", 1.2, until_cpu_full=in_flight > 1)
    row.at_least("iops_of_model", 0.9, until_cpu_full=True)
    if length < _CHEAP:
        row.at_most("server_kib_per_read", _CHEAP / KIB)
