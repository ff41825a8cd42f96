"""What a mount does, put together for people and programs: one object of JSON, whose shape is a contract.

`stats` is schema `SCHEMA`, described in docs/metrics.md.  Within a schema names are only added.  Everything is counted
since the daemon's start, in seconds and bytes; rates are differences, and whoever wants them asks twice.  Only under
`parts`, where every component says what it counts in its own words, names may change.

Nothing is counted here: a snapshot costs what it costs to read the components' counters, and only who asks pays.
"""

import os
import time
from collections import defaultdict
from dataclasses import asdict
from typing import Any

import trio

from s3mount import __version__
from s3mount.config import MountConfig
from s3mount.core.latency import Latencies, added, quantile
from s3mount.core.prices import cost_usd
from s3mount.core.readers import ReaderSeconds
from s3mount.core.waits import WaitSeconds
from s3mount.daemon.allocator import resident_bytes
from s3mount.daemon.facts import facts_of
from s3mount.daemon.wiring import Components
from s3mount.fs.drafts import DraftStatistics
from s3mount.fs.parts import StreamStatistics
from s3mount.fs.write_room import RoomStatistics
from s3mount.fuse.callers import Use, name_of
from s3mount.store.guarded import StoreStatistics
from s3mount.store.guarded_writer import WriteStatistics

SCHEMA = 1
Facts = dict[str, Any]

#: Calls and requests in flight that are shown: the oldest.
_SHOWN = 20
_KINDS = {
    "lists": "list", "heads": "head", "gets": "get",
    "puts": "put", "parts": "part", "copies": "copy", "deletes": "delete", "renames": "rename", "calls": "other",
}  # fmt: skip
_NO_TIME = ReaderSeconds(0.0, 0.0)
_QUANTILES = {"p50_seconds": 0.5, "p90_seconds": 0.9, "p99_seconds": 0.99}


class Telemetry:
    """Of one mount.

    Args:
        parts: whose counters are read.
    """

    def __init__(self, config: MountConfig, parts: Components) -> None:
        self._config = config
        self._parts = parts
        self._began_at = trio.current_time()

    def stats(self) -> Facts:
        """Everything that is counted; see docs/metrics.md."""
        parts = {name: count() for name, count in self._parts.statistics.items()}
        return {
            "schema": SCHEMA,
            "time": time.time(),
            "uptime_seconds": trio.current_time() - self._began_at,
            "mount": self._mount(),
            "readers": self._readers(),
            "calls": {name: _call(each) for name, each in self._parts.boundary.operations().items()},
            "bytes": self._bytes(parts),
            "requests": self._requests(parts),
            "caches": self._caches(),
            "memory": self._memory(),
            "prefetch": self._prefetch(),
            "uploads": _uploads(parts),
            "in_flight": self._in_flight(),
            "parts": {name.replace(" ", "_"): facts_of(each) for name, each in parts.items()},
        }

    def top(self, n: int) -> Facts:
        """The files and the openers with most bytes since the daemon's start."""
        callers = self._parts.boundary.callers
        files = sorted(callers.files().items(), key=lambda item: item[1], reverse=True)[:n]
        openers = sorted(callers.openers().items(), key=lambda item: item[1], reverse=True)[:n]
        return {
            "time": time.time(),
            "files": [{"key": key, **_use(use)} for key, use in files],
            "openers": [
                {**opener._asdict(), "name": name_of(opener.pid), "group_name": callers.group_name(opener.group)}
                | _use(use)
                for opener, use in openers
            ],
        }

    def _mount(self) -> Facts:
        location = self._config.s3.location
        return {
            "mount_point": self._config.fuse.mount_point,
            "bucket": location.bucket,
            "prefix": location.prefix,
            "region": self._parts.region,
            "pid": os.getpid(),
            "version": __version__,
        }

    def _readers(self) -> Facts:
        callers = self._parts.boundary.callers
        seconds, waits = callers.reader_seconds(), self._parts.waits.by_group()
        groups: list[Facts] = [
            {"group": group, "name": callers.group_name(group)}
            | _waiting(seconds.get(group, _NO_TIME), waits.get(group, WaitSeconds()))
            for group in seconds.keys() | waits.keys()
        ]
        total = ReaderSeconds(*(sum(column) for column in zip(_NO_TIME, *seconds.values(), strict=True)))
        return _waiting(total, self._parts.waits.statistics()) | {
            "open_files": self._parts.filesystem.statistics().open_files,
            "groups": sorted(groups, key=lambda each: -each["waiting_seconds"]),
        }

    def _bytes(self, parts: dict[str, object]) -> Facts:
        from_s3 = sum(each.bytes_read for each in parts.values() if isinstance(each, StoreStatistics))
        to_s3 = sum(each.bytes_written for each in parts.values() if isinstance(each, WriteStatistics))
        known = self._parts.boundary.callers.statistics()
        delivered = known.bytes_delivered
        return {
            "from_s3": from_s3,
            "to_readers": delivered,
            "from_writers": known.bytes_taken,
            "to_s3": to_s3,
            "from_s3_per_byte_to_readers": from_s3 / delivered if delivered else None,
        }

    def _requests(self, parts: dict[str, object]) -> Facts:
        known = [each for each in parts.values() if isinstance(each, StoreStatistics | WriteStatistics)]
        counts = {kind: sum(getattr(each, field, 0) for each in known) for field, kind in _KINDS.items()}
        timed: defaultdict[str, list[Latencies]] = defaultdict(list)
        for one in self._parts.attempts:  # who reads and who writes ask for heads, both
            for name, each in one.latencies().items():
                timed[name].append(each)
        return {
            "counts": counts,
            "failures": sum(each.failures for each in known),
            "repeated": self._parts.patient.statistics().repeated,
            "in_flight": sum(each.in_flight for each in known),
            "estimated_cost_usd": cost_usd(counts),
            "latencies": {name: _latency(added(found)) for name, found in timed.items()},
        }

    def _caches(self) -> Facts:
        known = self._parts.filesystem.statistics().metadata
        operations = self._parts.boundary.operations()
        reads = operations.get("read")
        n_reads, waited = (0, 0) if reads is None else (reads.latencies.count, reads.waited)
        volumes = [] if self._parts.disk is None else list(self._parts.disk.statistics().values())
        disk = _hits(sum(each.hits for each in volumes), sum(each.misses for each in volumes))
        opens = self._parts.boundary.callers.statistics()
        return {
            "metadata": _hits(known.hits, known.misses),
            "memory": _hits(max(0, n_reads - waited), waited),
            "disk": disk if volumes else None,
            "opens": opens.opens,
            "opens_without_reads": opens.opens_without_reads,
        }

    def _memory(self) -> Facts:
        return {
            "resident_bytes": resident_bytes(),
            "target_bytes": self._config.read.memory_target,
            "budget": asdict(self._parts.budget.statistics()),
        }

    def _prefetch(self) -> Facts:
        blocks = self._parts.filesystem.statistics().blocks
        return {
            "objects": blocks.objects,
            "windows": blocks.windows,
            "window_bytes": blocks.window_bytes,
            "widest_window_bytes": blocks.widest_bytes,
            "held_bytes": blocks.held_bytes,
            "fetches_in_flight": blocks.pending,
            "unread_bytes_total": blocks.wasted_bytes,
        }

    def _in_flight(self) -> Facts:
        now = trio.current_time()
        callers = self._parts.boundary.callers
        calls = self._parts.boundary.waiting_calls()
        requests = sorted(
            (each for one in self._parts.attempts for each in one.in_flight()), key=lambda each: each.sent_at
        )
        return {
            "calls": [
                {"operation": call.operation, "key": callers.key_of(call.subject), "age_seconds": age_s}
                for call, age_s in calls[:_SHOWN]
            ],
            "requests": [
                {"operation": each.operation, "key": each.key, "age_seconds": now - each.sent_at}
                for each in requests[:_SHOWN]
            ],
        }


def _uploads(parts: dict[str, object]) -> Facts:
    """What is being written; empty of a mount that only reads."""
    found: Facts = {}
    for each in parts.values():
        if isinstance(each, DraftStatistics):
            found |= {"files": each.drafts, "streams": each.streams}
            found |= {"acknowledged": each.acknowledged, "refused": each.refused}
        elif isinstance(each, RoomStatistics):
            found["room"] = asdict(each)
        elif isinstance(each, StreamStatistics):
            found["sent"] = asdict(each)
    return found


def _waiting(seconds: ReaderSeconds, waits: WaitSeconds) -> Facts:
    return {
        "reader_seconds": seconds.total,
        "waiting_seconds": seconds.waiting,
        "waiting_share": seconds.waiting / seconds.total if seconds.total > 0 else None,
        "wait_seconds": {"total": waits.total, **asdict(waits)},
    }


def _latency(found: Latencies) -> Facts:
    quantiles = {name: quantile(found.buckets, share) for name, share in _QUANTILES.items()}
    return {"count": found.count, "seconds": found.seconds, **quantiles, "buckets": list(found.buckets)}


def _call(found: Any) -> Facts:
    return _latency(found.latencies) | {"waited": found.waited, "errors": found.errors}


def _hits(hits: int, misses: int) -> Facts:
    return {"hits": hits, "misses": misses, "hit_rate": hits / (hits + misses) if hits + misses else None}


def _use(use: Use) -> Facts:
    return {"bytes": use.n_bytes, "opens": use.opens, "open": use.is_open}
