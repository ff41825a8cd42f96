"""What `s3mountctl stats` and `top` say of two snapshots."""

import copy
from typing import Any

from s3mount.cli.report import format_span, report_lines, table_lines, top_tables
from s3mount.core.latency import SHOWN, LatencyHistogram
from s3mount.units import MIB

CAUSES = ("names", "budget", "disk", "connection", "first_byte", "transfer", "loop")


def waiting(reader_s: float, waiting_s: float, **causes: float) -> dict[str, Any]:
    wait = dict.fromkeys(CAUSES, 0.0) | causes
    return {
        "reader_seconds": reader_s, "waiting_seconds": waiting_s, "waiting_share": None,
        "wait_seconds": {"total": sum(wait.values()), **wait},
    }  # fmt: skip


def calls(*durations_ms: float) -> dict[str, Any]:
    histogram = LatencyHistogram()
    for each in durations_ms:
        histogram.note(int(each * 1e6))
    found = histogram.statistics()
    return {"count": found.count, "seconds": found.seconds, "buckets": list(found.buckets), "waited": 0, "errors": {}}


def snapshot(**changes: Any) -> dict[str, Any]:
    """A mount that did nothing, but for what a test says."""
    hits = {"hits": 0, "misses": 0, "hit_rate": None}
    kinds = dict.fromkeys(("list", "head", "get", "put", "part", "copy", "delete", "other"), 0)
    return {
        "time": 1000.0, "uptime_seconds": 10.0,
        "readers": waiting(0.0, 0.0) | {"open_files": 0, "groups": []},
        "calls": {},
        "bytes": {"from_s3": 0, "to_readers": 0, "to_s3": 0},
        "requests": {"counts": kinds, "failures": 0, "repeated": 0, "in_flight": 0, "estimated_cost_usd": 0.0,
                     "latencies": {}},
        "caches": {"metadata": hits, "memory": hits, "disk": None, "opens": 0, "opens_without_reads": 0},
        "memory": {"resident_bytes": MIB, "target_bytes": MIB,
                   "budget": {"total": MIB, "limit": MIB, "used": 0, "waiting": 0, "waits": 0}},
        "prefetch": {"window_bytes": 0, "windows": 0, "widest_window_bytes": 0, "fetches_in_flight": 0,
                     "unread_bytes_total": 0},
        "in_flight": {"calls": [], "requests": []},
        **changes,
    }  # fmt: skip


def line(lines: list[str], start: str) -> str:
    (found,) = [each for each in lines if each.startswith(start)]
    return found


def test_the_first_line() -> None:
    """The first line says what share of the readers' time was waiting, by cause in proportion; groups stand below."""
    facts = waiting(100.0, 40.0, first_byte=60.0, transfer=20.0)
    readers = facts | {"open_files": 3, "groups": [facts | {"group": 42, "name": "python"}]}
    lines = report_lines(snapshot(readers=readers), None)
    assert lines[0] == "readers    40% of 1.7 min spent waiting for S3: 30% first byte, 10% transfer"
    assert lines[1].split() == ["python", "(42)", *lines[0].split()[1:]]


def test_nothing_happens() -> None:
    """Of a mount that nobody uses everything can be said, too, now and since before."""
    assert report_lines(snapshot(), None)[0] == "readers    nobody reads"
    assert report_lines(snapshot(), snapshot())[0] == "readers    nobody reads"


def test_between_two_snapshots() -> None:
    """With an earlier snapshot only what happened since counts: rates, quantiles, hit rates; gauges are as they are."""
    before = snapshot(calls={"read": calls(*[100.0] * 50)}, bytes={"from_s3": MIB, "to_readers": MIB, "to_s3": 0})
    now = copy.deepcopy(before) | {
        "uptime_seconds": 12.0,
        "calls": {"read": calls(*[100.0] * 50, *[3.0] * 20)},
        "bytes": {"from_s3": 2 * MIB, "to_readers": 5 * MIB, "to_s3": 0},
        "caches": snapshot()["caches"] | {"memory": {"hits": 3, "misses": 1}},
    }
    lines = report_lines(now, before)
    assert line(lines, "throughput") == (
        "throughput 2 MiB/s to readers, 512 KiB/s from S3 (0.25 for each byte), 10 calls/s"
    )
    _, per_s, median, unit, *_ = line(lines, "  read").split()
    assert (per_s, unit) == ("10.0", "ms")
    assert 2.0 < float(median) < 4.3
    assert line(lines, "hits") == "hits       memory 75.0%"


def test_another_daemon_begins_anew() -> None:
    """When another daemon took over, what it counted since its start is told, and nothing is negative."""
    before = snapshot(uptime_seconds=1000.0, bytes={"from_s3": 100 * MIB, "to_readers": 100 * MIB, "to_s3": 0})
    lines = report_lines(snapshot(bytes={"from_s3": MIB, "to_readers": 10 * MIB, "to_s3": 0}), before)
    assert line(lines, "throughput").startswith("throughput 1 MiB/s to readers")


def test_what_is_slow() -> None:
    """Requests and calls older than a second are named with key and age, younger ones are not."""
    each = [
        {"operation": "GetObject", "key": key, "age_seconds": age_s} for key, age_s in (("slow", 12.5), ("not", 0.5))
    ]
    lines = report_lines(snapshot(in_flight={"calls": [], "requests": each}), None)
    assert [one for one in lines if one.startswith("slow")] == ["slow       GetObject in flight for 12.5 s: slow"]


def test_top_tables() -> None:
    """Files and openers are rows with bytes and, with an earlier answer, a rate; one that ended shows its group."""
    opener = {"pid": 7, "group": 5, "name": "", "group_name": "train.py", "bytes": 4 * MIB, "opens": 2, "open": 1}
    now = {"time": 10.0, "files": [{"key": "a", "bytes": 4 * MIB, "opens": 2, "open": 1}], "openers": [opener]}
    before = {"time": 8.0, "files": [{"key": "a", "bytes": 2 * MIB, "opens": 1, "open": 1}], "openers": []}
    files, openers = top_tables(now, before)
    assert files[1] == ["4 MiB", "1 MiB/s", "2", "1", "a"]
    assert openers[1] == ["4 MiB", "2 MiB/s", "2", "1", "train.py, pid 7, group 5"]
    assert table_lines(files)[0].split() == ["bytes", "per", "s", "opens", "open", "files"]
    assert len({each.index(last) for each, last in zip(table_lines(files), ("files", "a"), strict=True)}) == 1


def test_spans() -> None:
    """A duration has the unit that says it best."""
    assert [format_span(each) for each in (0, 2e-6, 0.0123, 3.456, 90)] == [
        "0 s",
        "2 µs",
        "12.3 ms",
        "3.46 s",
        "1.5 min",
    ]
    assert SHOWN > 20
