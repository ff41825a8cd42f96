"""Minutes of readers under faults: no wrong byte, no error, memory that stays.

SOAK_SECONDS sets how long (default 1200).
"""

import json
import os
import random
import re
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from s3mount.units import KIB, MIB
from tests.soak.readers import PATTERNS
from tests.support.content import make_content
from tests.support.mounts import Mount, aws_environment, mounted
from tests.support.proxy import Fault, Request, error_answer, proxy
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(0)]

SECONDS = float(os.environ.get("SOAK_SECONDS", "1200"))
_READERS = 32
_SIZES = [0, 1, 4097, 115_000, MIB, MIB + 1, 5 * MIB, 8 * MIB, 20 * MIB + 7, 64 * MIB]
_SMALL_FILES = 100
_FAULT_SHARE = 0.05
_KINDS = ("slow down", "reset", "truncated", "stalled")
#: Shorter than the 32 s after which the CRT gives a connection up, so that several in a row stay within the
#: deadline of a request; longer than any GET here takes.
_STALL_S = 10.0
_MEMORY_TARGET_MIB = 512
_MARGIN_MIB = 150
#: What the last third of the time may have above the one before: parts in flight vary, a leak adds up.
_GROWTH_MIB = 50
#: Between two looks at the daemon.
_LOOK_S = 1.0
#: Readers end a file after their time is up, and stalls may be in it.
_LAST_VISIT_S = 300.0


class Decider:
    """Breaks one GET in twenty, in one of four ways.

    Attributes:
        gets: that arrived.
        broken: of them, by kind.
    """

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._lock = threading.Lock()
        self.gets = 0
        self.broken: Counter[str] = Counter()

    def __call__(self, request: Request) -> Fault | None:
        if request.method != "GET" or request.is_list:
            return None
        with self._lock:
            self.gets += 1
            if self._dice.random() >= _FAULT_SHARE:
                return None
            kind = self._dice.choice(_KINDS)
            self.broken[kind] += 1
        if kind == "slow down":
            return Fault(answer=error_answer(503, "SlowDown", "Please reduce your request rate."))
        if kind == "reset":
            return Fault(drop=True)
        if kind == "truncated":
            first, last = re.findall(r"\d+", request.headers["range"])
            return Fault(forward_bytes=(int(last) - int(first) + 1) // 2)
        return Fault(stall_s=_STALL_S)


@pytest.fixture
def originals(work: Path) -> Path:
    """What is put into the bucket, as files."""
    directory = work / "originals"
    directory.mkdir()
    sizes = _SIZES * 2 + [(number % 10 + 1) * 20 * KIB for number in range(_SMALL_FILES)]
    for number, size in enumerate(sizes):
        (directory / f"f{number:03}").write_bytes(make_content(f"f{number}", size))
    return directory


def test_readers_under_faults(weed: Server, work: Path, originals: Path) -> None:
    """32 programs that read in ten ways, while one GET in twenty is refused, reset, cut off or stalled, get no error
    and no wrong byte, and the daemon's memory stays within its target and 150 MiB.
    """
    bucket = weed.make_bucket()
    for path in originals.iterdir():
        weed.client.upload_file(str(path), bucket, path.name)
    decider = Decider(seed=1)
    flags = ("--memory-target", str(_MEMORY_TARGET_MIB))
    environment = aws_environment(AWS_MAX_ATTEMPTS="10")
    with proxy(weed.url) as front, mounted(bucket, work, *flags, url=front.url, env=environment) as mount:
        front.decide = decider
        with readers(mount, originals, _READERS, SECONDS) as processes:
            rss_mib = []
            while any(each.poll() is None for each in processes):
                rss_mib.append(mount.rss_mib())
                front.reset()  # or this process keeps a million of them
                time.sleep(_LOOK_S)  # noqa: TID251  between looks at another process
            reports = [json.loads(each.communicate()[0] or "{}") for each in processes]
        highest_mib = mount.rss_mib("VmHWM")
        assert mount.stop() == 0
        # Warm from a third of the time on, when every file was read in every way.
        third = len(rss_mib) // 3
        warm_mib, late_mib = statistics.median(rss_mib[third : 2 * third]), statistics.median(rss_mib[2 * third :])
        report = {"rss_mib": [warm_mib, late_mib, highest_mib], "gets": decider.gets, "broken": decider.broken}
        print(json.dumps(report | _sums(reports)))
        print(*re.findall(r"readers waited .*|unmounted after .*", mount.log), sep="\n")
        assert [each.returncode for each in processes] == [0] * _READERS, "a reader was killed, as by SIGBUS"
        assert [failure for each in reports for failure in each["failures"]] == []
        assert mount.warnings() == []
        assert _sums(reports)["visits"].keys() == PATTERNS.keys()
        assert decider.broken.keys() == set(_KINDS), "some fault did not happen: the readers hardly reached S3"
        assert highest_mib <= _MEMORY_TARGET_MIB + _MARGIN_MIB
        assert late_mib <= warm_mib + _GROWTH_MIB, "memory grows"


@contextmanager
def readers(mount: Mount, originals: Path, n: int, seconds: float) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The running readers; none is left, also when they do not end."""
    command = [sys.executable, "-m", "tests.soak.readers", str(mount.path), str(originals)]
    processes = [subprocess.Popen([*command, str(seed), str(seconds)], stdout=subprocess.PIPE) for seed in range(n)]
    guard = threading.Timer(seconds + _LAST_VISIT_S, lambda: [each.kill() for each in processes])
    guard.start()
    try:
        yield processes
    finally:
        guard.cancel()
        for each in processes:
            each.kill()
            each.wait()
            each.stdout.close()  # type: ignore[union-attr]


def _sums(reports: list[dict[str, Any]]) -> dict[str, Any]:
    visits: Counter[str] = Counter()
    for report in reports:
        visits.update(report["visits"])
    return {"bytes": sum(report["bytes"] for report in reports), "visits": visits}
