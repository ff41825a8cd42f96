"""Minutes of readers under faults: no wrong byte, no error, memory that stays.

SOAK_SECONDS sets how long (default 600).
"""

import json
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from s3mount.units import MIB
from tests.support.content import make_content
from tests.support.mounts import Mount, aws_environment, mounted
from tests.support.proxy import Fault, Proxy, Request, error_answer, proxy
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(0)]

_SECONDS = float(os.environ.get("SOAK_SECONDS", "600"))
_READERS = 32
_SIZES = [0, 1, 4097, 115_000, MIB, MIB + 1, 5 * MIB, 8 * MIB, 20 * MIB + 7, 64 * MIB]
_FAULT_SHARE = 0.05
_MEMORY_TARGET_MIB = 512


def _faults(seed: int) -> "Decider":
    return Decider(random.Random(seed))


class Decider:
    """Breaks one GET in twenty: 503, reset, truncated, stalled."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._lock = threading.Lock()
        self.broken = 0

    def __call__(self, request: Request) -> Fault | None:
        with self._lock:
            if request.method != "GET" or request.is_list or self._rng.random() > _FAULT_SHARE:
                return None
            self.broken += 1
            kind = self._rng.choice(["slow down", "drop", "cut", "stall"])
        if kind == "slow down":
            return Fault(answer=error_answer(503, "SlowDown", "Please reduce your request rate."))
        if kind == "drop":
            return Fault(drop=True)
        if kind == "cut":
            return Fault(forward_bytes=1000)
        return Fault(stall_s=2.0)


def test_readers_under_faults(weed: Server, work: Path) -> None:
    """One GET in twenty is refused, reset, cut off or stalled: readers see nothing of it, RSS stays."""
    bucket = weed.make_bucket()
    for number, size in enumerate(_SIZES * 2):
        weed.client.put_object(Bucket=bucket, Key=f"f{number}.{size}.bin", Body=make_content(f"f{number}", size))
    with proxy(weed.url) as front:
        front.decide = decider = _faults(1)
        flags = ("--memory-target", str(_MEMORY_TARGET_MIB))
        environment = aws_environment(AWS_MAX_ATTEMPTS="10")
        with mounted(bucket, work, *flags, url=front.url, env=environment) as mount:
            reports = _run_readers(mount, _SECONDS)
            print(json.dumps({"rss_mib": mount.rss_mib("VmHWM"), "broken": decider.broken, **_sum(reports)}))
            _report(front)
            assert [failure for report in reports for failure in report["failures"]] == []
            assert sum(report["visits"] for report in reports) > _READERS
            assert decider.broken > 10, "hardly anything was broken: the readers did not reach S3"
            assert mount.rss_mib("VmHWM") <= _MEMORY_TARGET_MIB + 150
            assert mount.stop() == 0


def _run_readers(mount: Mount, seconds: float) -> list[dict[str, object]]:
    command = [sys.executable, "-m", "tests.soak.readers", str(mount.path)]
    readers = [
        subprocess.Popen([*command, str(seed), str(seconds)], stdout=subprocess.PIPE) for seed in range(_READERS)
    ]
    outputs = [reader.communicate()[0] for reader in readers]
    assert [reader.returncode for reader in readers] == [0] * _READERS
    return [json.loads(output) for output in outputs]


def _sum(reports: list[dict[str, object]]) -> dict[str, object]:
    return {name: sum(report[name] for report in reports) for name in ("bytes", "visits", "stale")}  # type: ignore[misc]


def _report(front: Proxy) -> None:
    print(json.dumps({"requests": front.count(), "lists": front.count(is_list=True)}))
