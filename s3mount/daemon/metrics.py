"""What Prometheus gets: one snapshot of `daemon.telemetry` as families of metrics.

The table below is the list, and docs/metrics.md says the same of each.  Names have their unit; labels have few values,
which do not depend on the bucket: never a key.  Every family is always there, so that a rule which names one can be
checked, and one without a sample says that the mount has no such part.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from itertools import accumulate
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)

from s3mount.core.latency import SHOWN, upper_bound_s

Facts = Mapping[str, Any]

#: The buckets that are shown, and where they end: every second, within a factor of four, and half as many series.
#: Those below 4 µs tell nothing.
_BOUNDS = [(number, f"{upper_bound_s(number):.9g}") for number in range(2, SHOWN - 1, 2)]


class Family(NamedTuple):
    """Attributes: without the prefix and `_total`; where in the snapshot it is, and the label of what is below that."""

    name: str
    kind: str
    path: str
    text: str
    label: str = ""


FAMILIES = (
    Family("uptime_seconds", "gauge", "uptime_seconds", "Since this daemon began to serve."),
    # requests
    Family("requests", "counter", "requests.counts", "Requests to S3, each attempt.", "kind"),
    Family("request_failures", "counter", "requests.failures", "Attempts that failed."),
    Family("requests_repeated", "counter", "requests.repeated", "Attempts after the first of a request."),
    Family("requests_throttled", "counter", "parts.retries.rate.refusals", "Answers 503 of S3: slow down."),
    Family("requests_limit_per_second", "gauge", "parts.retries.rate.per_s",
           "Requests a second while S3 throttles; 0 without a limit."),
    Family("outage", "gauge", "parts.retries.outage.is_closed", "1 while S3 does not answer and requests wait."),
    Family("outages", "counter", "parts.retries.outage.times", "How often S3 did not answer."),
    Family("requests_in_flight", "gauge", "requests.in_flight", "Requests that S3 has not answered yet."),
    Family("oldest_request_age_seconds", "gauge", "in_flight.requests", "Age of the oldest request in flight."),
    Family("requests_cost_dollars", "counter", "requests.estimated_cost_usd",
           "Estimate of what the requests cost, at the prices of S3 Standard in us-east-1."),
    Family("request_duration_seconds", "histogram", "requests.latencies",
           "From a request being sent to its end.", "operation"),
    # calls of the kernel
    Family("call_duration_seconds", "histogram", "calls", "From a call of the kernel to its answer.", "operation"),
    Family("calls_waited", "counter", "calls.waited", "Calls that were not answered at once.", "operation"),
    Family("call_errors", "counter", "calls.errors", "Calls answered with an error.", "operation"),
    Family("oldest_call_age_seconds", "gauge", "in_flight.calls", "Age of the oldest call that waits."),
    # readers
    Family("reader_wait_seconds", "counter", "readers.wait_seconds", "What calls of readers waited for.", "cause"),
    Family("reader_waiting_seconds", "counter", "readers.waiting_seconds",
           "Of the time of all readers, while at least one call of them waited."),
    Family("reader_seconds", "counter", "readers.reader_seconds",
           "Time of all readers, whether they waited or not."),
    Family("open_files", "gauge", "readers.open_files", "Files that are open."),
    Family("received_bytes", "counter", "bytes.from_s3", "Content that came from S3."),
    Family("delivered_bytes", "counter", "bytes.to_readers", "Content that was handed to the kernel for readers."),
    # caches
    Family("cache_hits", "counter", "caches.hits", "Metadata known; reads answered at once; reads from disk.", "cache"),
    Family("cache_misses", "counter", "caches.misses", "The others.", "cache"),
    Family("opens", "counter", "caches.opens", "Files opened."),
    Family("opens_without_reads", "counter", "caches.opens_without_reads",
           "Of these, closed without a read: the kernel's page cache had them."),
    Family("disk_cache_bytes", "gauge", "disk.n_bytes", "Content on disk.", "directory"),
    Family("disk_cache_blocks", "gauge", "disk.blocks", "Files on disk.", "directory"),
    Family("disk_cache_written_blocks", "counter", "disk.written", "Blocks written.", "directory"),
    Family("disk_cache_evicted_blocks", "counter", "disk.evicted", "Blocks that made room for others.", "directory"),
    Family("disk_cache_dropped_blocks", "counter", "disk.dropped",
           "Blocks not written, because the disk is slow or failing.", "directory"),
    Family("disk_cache_corrupt_blocks", "counter", "disk.corrupt", "Blocks that were wrong.", "directory"),
    Family("disk_cache_bypassed_reads", "counter", "disk.bypassed",
           "Reads not tried, because the disk is slow or failing.", "directory"),
    # budget and memory
    Family("memory_target_bytes", "gauge", "memory.target_bytes", "--memory-target."),
    Family("budget_bytes", "gauge", "memory.budget.total", "Content that may be held at once."),
    Family("budget_limit_bytes", "gauge", "memory.budget.limit", "The same, now: less while memory is short."),
    Family("budget_used_bytes", "gauge", "memory.budget.used", "Content that is held."),
    Family("budget_waiting_readers", "gauge", "memory.budget.waiting", "Readers that wait for room."),
    Family("budget_waits", "counter", "memory.budget.waits", "How often a reader waited for room."),
    Family("memory_shortages", "counter", "parts.memory.times", "How often memory became short."),
    Family("inodes", "gauge", "parts.file_system.inodes.inodes", "Names that the kernel remembers."),
    Family("listed_names", "gauge", "parts.file_system.metadata.listed_names", "Names kept of listings."),
    # prefetch
    Family("prefetch_windows", "gauge", "prefetch.windows", "Readers that are read ahead for."),
    Family("prefetch_window_bytes", "gauge", "prefetch.window_bytes", "How far ahead of all of them."),
    Family("prefetch_widest_window_bytes", "gauge", "prefetch.widest_window_bytes", "How far ahead of one at most."),
    Family("prefetch_held_bytes", "gauge", "prefetch.held_bytes", "Content held or on its way."),
    Family("prefetch_fetches_in_flight", "gauge", "prefetch.fetches_in_flight", "Fetches on their way."),
    Family("prefetch_unread_bytes", "counter", "prefetch.unread_bytes_total", "Content fetched that nobody read."),
    # uploads
    Family("taken_bytes", "counter", "bytes.from_writers", "Content that programs wrote."),
    Family("sent_bytes", "counter", "bytes.to_s3", "Content sent to S3."),
    Family("upload_files", "gauge", "uploads.files", "Files being written."),
    Family("upload_streams", "gauge", "uploads.streams", "Of these, uploaded while they are written."),
    Family("upload_acknowledged_files", "gauge", "uploads.acknowledged", "Of these, acknowledged and not yet in S3."),
    Family("upload_refused", "counter", "uploads.refused", "Files whose write was refused."),
    Family("upload_puts", "counter", "uploads.sent.puts", "Objects uploaded by one PUT."),
    Family("upload_multiparts", "counter", "uploads.sent.uploads", "Objects uploaded in parts."),
    Family("upload_parts", "counter", "uploads.sent.parts", "Parts sent."),
    Family("upload_parts_resent", "counter", "uploads.sent.resent", "Of these, parts sent again."),
    Family("upload_aborted", "counter", "uploads.sent.aborted", "Uploads dropped."),
    Family("upload_room_bytes", "gauge", "uploads.room.share", "Content that writers may hold."),
    Family("upload_room_used_bytes", "gauge", "uploads.room.used", "Content that writers hold."),
    Family("upload_room_waiting_writers", "gauge", "uploads.room.waiting", "Writers that wait for room."),
    Family("upload_room_waits", "counter", "uploads.room.waits", "How often a writer waited for room."),
)  # fmt: skip
_TYPES = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}


def text_of(snapshot: Facts) -> bytes:
    """What is answered to a scrape, in Prometheus' text format; it reads /proc of this process, too."""
    registry = CollectorRegistry()
    registry.register(_Snapshot(snapshot))
    registry.register(_process())
    histograms = (_histogram(each, _at(snapshot, each.path) or {}) for each in FAMILIES if each.kind == "histogram")
    return generate_latest(registry) + "".join(histograms).encode("ascii")


@cache
def _process() -> ProcessCollector:
    """Made once: it reads /proc/stat when it is made, which takes a millisecond."""
    return ProcessCollector(registry=None)


class _Snapshot:
    """A collector of what was counted at one moment."""

    def __init__(self, snapshot: Facts) -> None:
        self._snapshot = snapshot

    def describe(self) -> Iterable[Metric]:
        """Nothing in advance."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Every family but the histograms, in the order of the table."""
        mount = {name: self._snapshot["mount"][name] for name in ("mount_point", "bucket", "prefix", "version")}
        info = InfoMetricFamily("s3mount", "What is mounted.")
        info.add_metric([], mount)
        yield info
        for family in FAMILIES:
            if family.kind != "histogram":
                yield _numbers(family, _samples(family, self._snapshot))


def _numbers(family: Family, samples: Iterable[tuple[tuple[str, ...], float]]) -> Metric:
    # Two labels where the table says one: an error is of an operation, and has an errno.
    names = ["operation", "errno"] if family.path == "calls.errors" else [family.label] if family.label else []
    metric: Metric = _TYPES[family.kind](f"s3mount_{family.name}", family.text, labels=names)
    for labels, value in samples:
        metric.add_metric(labels, value)  # type: ignore[attr-defined]
    return metric


def _histogram(family: Family, found: Facts) -> str:
    """A family of the text; nine lines in ten are buckets, and the library takes three times as long for one.

    Args:
        found: by operation; those names need no escapes.
    """
    name = f"s3mount_{family.name}"
    lines = [f"# HELP {name} {family.text}", f"# TYPE {name} histogram"]
    for label, facts in found.items():
        below = list(accumulate(facts["buckets"]))
        labels = f'{family.label}="{label}"'
        lines += [f'{name}_bucket{{{labels},le="{bound}"}} {below[number]}' for number, bound in _BOUNDS]
        lines.append(f'{name}_bucket{{{labels},le="+Inf"}} {facts["count"]}')
        lines.append(f"{name}_count{{{labels}}} {facts['count']}")
        lines.append(f"{name}_sum{{{labels}}} {facts['seconds']!r}")
    return "\n".join([*lines, ""])


def _at(facts: Any, path: str) -> Any:
    """What is there; None where nothing is."""
    for name in path.split("."):
        facts = facts.get(name) if isinstance(facts, Mapping) else None
    return facts


def _samples(family: Family, snapshot: Facts) -> Iterator[tuple[tuple[str, ...], float]]:
    """Labels and values."""
    special = _SPECIAL.get(family.path)
    found = _at(snapshot, family.path) if special is None else special(snapshot)
    if isinstance(found, Mapping):
        for label, value in found.items():
            if label != "total":  # the labels add up to it
                yield (label if isinstance(label, tuple) else (label,)), float(value)
    elif found is not None:
        yield (), float(found)


def _oldest(kind: str, snapshot: Facts) -> float:
    return max((each["age_seconds"] for each in snapshot["in_flight"][kind]), default=0.0)


def _of_calls(snapshot: Facts) -> dict[str, int]:
    return {name: each["waited"] for name, each in snapshot["calls"].items()}


def _errors(snapshot: Facts) -> dict[tuple[str, str], int]:
    calls = snapshot["calls"].items()
    return {(name, errno): count for name, each in calls for errno, count in each["errors"].items()}


def _of_caches(field: str, snapshot: Facts) -> dict[str, int]:
    return {name: each[field] for name, each in snapshot["caches"].items() if isinstance(each, Mapping)}


def _of_disks(field: str, snapshot: Facts) -> dict[str, int]:
    disks = snapshot["parts"].get("disk_cache", {})
    return {directory: each[field] for directory, each in disks.items()}


#: Where a family is not simply what stands at a place of the snapshot.
_SPECIAL: dict[str, Callable[[Facts], Any]] = {
    "in_flight.requests": partial(_oldest, "requests"),
    "in_flight.calls": partial(_oldest, "calls"),
    "calls.waited": _of_calls,
    "calls.errors": _errors,
    "caches.hits": partial(_of_caches, "hits"),
    "caches.misses": partial(_of_caches, "misses"),
    **{
        family.path: partial(_of_disks, family.path.removeprefix("disk."))
        for family in FAMILIES
        if "disk." in family.path
    },
}
