"""`s3mountctl stats` in words: two snapshots of daemon.telemetry → lines.

What happened between the two is told; without an earlier one, what happened since the daemon began.  Names come from
whoever may write to the bucket: who prints the lines escapes them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from s3mount.cli.tables import format_age
from s3mount.core.latency import quantile
from s3mount.units import counted, format_size

Facts = Mapping[str, Any]

#: Requests and calls that wait longer are shown one by one, seconds.
SLOW_S = 1.0
_MAX_SLOW = 10
_LEAST_SHARE = 0.005
_MAX_GROUPS = 8
#: Causes of a wait (core.waits).
_WORDS = {
    "names": "names", "budget": "memory budget", "disk": "disk cache", "connection": "a free connection",
    "first_byte": "first byte", "transfer": "transfer", "loop": "this daemon",
}  # fmt: skip


def report_lines(now: Facts, before: Facts | None) -> list[str]:
    """Everything, the most important first."""
    if before is not None and before["uptime_seconds"] > now["uptime_seconds"]:
        before = None  # another daemon took over
    change = now if before is None else _difference(now, before)
    elapsed_s = max(change["uptime_seconds"], 1e-3)
    return [
        *_readers(change["readers"]),
        *_throughput(change, elapsed_s),
        *_calls("calls", change["calls"], elapsed_s),
        *_calls("S3", change["requests"]["latencies"], elapsed_s),
        *_requests(now, change, elapsed_s),
        *_caches(change["caches"]),
        *_memory(now),
        *_slow(now["in_flight"]),
    ]


def _difference(now: Any, before: Any) -> Any:
    """Numbers less what they were; lists of groups by their number; everything else as it is."""
    if isinstance(now, Mapping):
        known = before if isinstance(before, Mapping) else {}
        return {name: _difference(value, known.get(name)) for name, value in now.items()}
    if isinstance(now, list):
        if all(isinstance(each, Mapping) and "group" in each for each in now):
            known = {each["group"]: each for each in before or ()}
            return [{**_difference(each, known.get(each["group"])), "group": each["group"]} for each in now]
        is_same = isinstance(before, list) and len(before) == len(now)
        return [_difference(*pair) for pair in zip(now, before, strict=True)] if is_same else now
    is_number = isinstance(now, int | float) and isinstance(before, int | float)
    return now - before if is_number else now


def _readers(change: Facts) -> Iterator[str]:
    yield "readers    " + _share_line(change)
    for each in sorted(change["groups"], key=lambda each: -each["waiting_seconds"])[:_MAX_GROUPS]:
        if each["reader_seconds"] > 0:
            name = f"{each['name'] or 'unknown'} ({each['group'] or 'no group known'})"
            yield f"  {name:<25} {_share_line(each)}"


def _share_line(facts: Facts) -> str:
    """Calls of one reader wait side by side, so their causes are told in proportion."""
    waits, waiting_s, reader_s = facts["wait_seconds"], facts["waiting_seconds"], facts["reader_seconds"]
    if reader_s <= 0:
        return "nobody reads"
    share = min(1.0, waiting_s / reader_s)
    causes = sorted(((waits[name], word) for name, word in _WORDS.items() if waits[name] > 0), reverse=True)
    parts = [(seconds / waits["total"] * share, word) for seconds, word in causes]
    told = ", ".join(f"{part:.0%} {word}" for part, word in parts if part >= _LEAST_SHARE)
    return f"{share:.0%} of {format_span(reader_s)} spent waiting for S3{': ' if told else ''}{told}"


def _throughput(change: Facts, elapsed_s: float) -> Iterator[str]:
    moved = change["bytes"]
    calls = sum(each["count"] for each in change["calls"].values())
    ratio = f" ({moved['from_s3'] / moved['to_readers']:.2f} for each byte)" if moved["to_readers"] else ""
    sent = f", {_rate(moved['to_s3'], elapsed_s)} to S3" if moved["to_s3"] else ""
    yield (
        f"throughput {_rate(moved['to_readers'], elapsed_s)} to readers, {_rate(moved['from_s3'], elapsed_s)} from S3"
        f"{ratio}{sent}, {calls / elapsed_s:.0f} calls/s"
    )


def _rate(n_bytes: float, elapsed_s: float) -> str:
    return f"{format_size(int(n_bytes / elapsed_s))}/s"


def _calls(title: str, calls: Facts, elapsed_s: float) -> Iterator[str]:
    busy = {name: each for name, each in calls.items() if each["count"]}
    if not busy:
        return
    yield f"{title:<22} {'per s':>9} {'median':>9} {'90 %':>9} {'99 %':>9} {'waited':>8}  errors"
    for name, each in sorted(busy.items(), key=lambda item: -item[1]["seconds"]):
        times = " ".join(f"{format_span(quantile(each['buckets'], share)):>9}" for share in (0.5, 0.9, 0.99))
        waited = f"{each['waited'] / each['count']:.0%}" if "waited" in each else ""
        errors = ", ".join(f"{count} {errno}" for errno, count in each.get("errors", {}).items() if count)
        yield f"  {name:<20} {each['count'] / elapsed_s:>9.1f} {times} {waited:>8}  {errors}".rstrip()


def _requests(now: Facts, change: Facts, elapsed_s: float) -> Iterator[str]:
    requests, told = change["requests"], now["requests"]
    counts = requests["counts"].items()
    kinds = ", ".join(f"{count / elapsed_s:.1f} {kind.upper()}/s" for kind, count in counts if count)
    yield (
        f"requests   {kinds or 'none'}; {told['in_flight']} in flight, {requests['failures']} failed, "
        f"{requests['repeated']} repeated; about ${told['estimated_cost_usd']:.4f} since the start"
    )


def _caches(change: Facts) -> Iterator[str]:
    rates = []
    for name in ("metadata", "memory", "disk"):
        facts = change[name]
        if facts and facts["hits"] + facts["misses"]:
            rates.append(f"{name} {facts['hits'] / (facts['hits'] + facts['misses']):.1%}")
    opens, without = change["opens"], change["opens_without_reads"]
    page_cache = f"; {without} of {counted(opens, 'open')} needed no read (the kernel has the pages)" if opens else ""
    yield f"hits       {', '.join(rates) or 'nothing was asked'}{page_cache}"


def _memory(now: Facts) -> Iterator[str]:
    memory, ahead, budget = now["memory"], now["prefetch"], now["memory"]["budget"]
    yield (
        f"memory     {format_size(budget['used'])} of {format_size(budget['limit'])} held, "
        f"{counted(budget['waiting'], 'reader')} waiting for room; {format_size(memory['resident_bytes'])} resident, "
        f"target {format_size(memory['target_bytes'])}"
    )
    yield (
        f"read ahead {format_size(ahead['window_bytes'])} for {counted(ahead['windows'], 'reader')}, "
        f"{format_size(ahead['widest_window_bytes'])} for one at most; "
        f"{ahead['fetches_in_flight']} being fetched; {format_size(ahead['unread_bytes_total'])} never read"
    )


def _slow(in_flight: Facts) -> Iterator[str]:
    for kind, word in (("calls", "waits"), ("requests", "in flight")):
        slow: Sequence[Facts] = [each for each in in_flight[kind] if each["age_seconds"] >= SLOW_S]
        for each in slow[:_MAX_SLOW]:
            age = format_span(each["age_seconds"])
            yield f"slow       {each['operation']} {word} for {age}: {each['key'] or '(root)'}"


def top_tables(now: Facts, before: Facts | None) -> list[list[list[str]]]:
    """Rows of the two tables of `s3mountctl top`: files and openers, with a header each."""
    elapsed_s = None if before is None else max(now["time"] - before["time"], 1e-3)
    known = {} if before is None else {_name(each): each["bytes"] for kind in _KINDS for each in before[kind]}
    tables = []
    for kind in _KINDS:
        rows = [["bytes", "per s", "opens", "open", kind]]
        for each in now[kind]:
            gone = known.get(_name(each), 0)
            rate = "" if elapsed_s is None else _rate(max(0, each["bytes"] - gone), elapsed_s)
            rows.append([format_size(each["bytes"]), rate, str(each["opens"]), str(each["open"]), _label(each)])
        tables.append(rows)
    return tables


_KINDS = ("files", "openers")


def _name(each: Facts) -> tuple[Any, ...]:
    return (each.get("key"), each.get("pid"), each.get("group"))


def _label(each: Facts) -> str:
    if "key" in each:
        return each["key"] or "(forgotten names)"
    name = each["name"] or each["group_name"] or "ended"
    return f"{name}, pid {each['pid']}, group {each['group']}" if each["pid"] else "not visible from here"


def table_lines(rows: list[list[str]]) -> list[str]:
    """Rows in columns, the last one as it is."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return [
        "  ".join([*(cell.rjust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]) for row in rows
    ]


def format_span(seconds: float) -> str:
    """ "12 ms": a duration in the unit that says it best."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return format_age(seconds) if seconds >= 60 else f"{seconds / size:.3g} {unit}"
    return "0 s"
