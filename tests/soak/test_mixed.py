"""An hour of mixed work on mounts with a cache and --rw: memory and descriptors of all their processes stay the same.

MIXED_SECONDS sets how long (default 600; an hour is 3600; less says little of memory), MIXED_SHARE what part of its
time the program of each mount works.  One mount keeps its daemon to the end; the daemon of the other is replaced again
and again.
"""

import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.ctl import run_ctl
from tests.support.mounts import Mount, children, mounted
from tests.support.processes import wait_until
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(0)]

_SECONDS = float(os.environ.get("MIXED_SECONDS", "600"))
_SHARE = os.environ.get("MIXED_SHARE", "0.1")
_LOOK_S = 10.0
#: Some in each quarter, so that its daemons are as old as those of any other.
_RESTARTS = 16
_GROWTH = 1.05
#: A connection more or less is no growth.
_DESCRIPTORS = 2
_FLAGS = ("--rw", "--memory-target", "256", "--max-cache-size", "48")
#: The last piece of work begins before the end, and its calls may wait for S3.
_LAST_WORK_S = 120.0


class Look(NamedTuple):
    """One process at one moment.

    Attributes:
        descriptors: without those of the cache's blocks, of which up to 512 stay open on purpose.
    """

    rss_mib: float
    descriptors: int


class Growth(NamedTuple):
    """Of one process: the medians of the second quarter, and of the last."""

    early: Look
    late: Look
    highest_mib: float


Looks = dict[str, list[Look]]


def opened_by(pid: int) -> Iterator[str]:
    """What its descriptors are of; those that it closes meanwhile are left out."""
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            yield os.readlink(path)


def look(pid: int) -> Look | None:
    """None when it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        n_others = sum("/cache/" not in path for path in opened_by(pid))
        return Look(int(status.partition("VmRSS:")[2].split()[0]) / 1024, n_others)
    except (OSError, IndexError):
        return None


def look_at_all(name: str, mount: Mount, looks: Looks) -> None:
    """Mounter, daemon and standby, each under its name."""
    pids = {"mounter": mount.process.pid, **dict(zip(("daemon", "standby"), children(mount.process.pid), strict=False))}
    for role, pid in pids.items():
        if (found := look(pid)) is not None:
            looks[f"{name} {role}"].append(found)


def growth(looks: list[Look]) -> Growth:
    def median(some: list[Look]) -> Look:
        return Look(*(statistics.median(values) for values in zip(*some, strict=True)))

    quarter = max(1, len(looks) // 4)
    return Growth(
        median(looks[quarter : 2 * quarter] or looks), median(looks[-quarter:]), max(each.rss_mib for each in looks)
    )


@contextmanager
def programs(mounts: dict[str, Mount], url: str, end: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """One for the mount of each bucket; none is left."""
    started = []
    try:
        for seed, (bucket, mount) in enumerate(mounts.items()):
            command = [
                sys.executable,
                "-m",
                "tests.soak.mixed",
                str(mount.path),
                str(seed),
                _SHARE,
                str(end),
                bucket,
                url,
            ]
            started.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        yield started
    finally:
        end.touch()
        for each in started:
            each.kill()
            each.wait()
            each.stdout.close()  # type: ignore[union-attr]


def replace_daemon(mount: Mount) -> None:
    """As an upgrade does; while the program has a file open to write it this is refused."""
    wait_until(lambda: run_ctl("restart", mount.path).returncode == 0, 60, "a restart")


def soak(steady: Mount, restarted: Mount, looks: Looks) -> int:
    """Looks at the processes until the time is up; how often the daemon of the second was replaced."""
    began = time.perf_counter()
    n_restarts = 0
    for number in itertools.count():
        gone_s = time.perf_counter() - began
        if gone_s >= _SECONDS:
            return n_restarts
        # First the looks: right after a restart there are two daemons and no standby.
        look_at_all("steady", steady, looks)
        look_at_all("restarted", restarted, looks)
        if gone_s >= (n_restarts + 0.5) * _SECONDS / _RESTARTS:
            replace_daemon(restarted)
            n_restarts += 1
        if number % 6 == 0:
            for mount in (steady, restarted):
                assert json.loads(run_ctl("stats", mount.path, "--json").stdout), "no statistics"
        time.sleep(max(0.0, began + (number + 1) * _LOOK_S - time.perf_counter()))  # noqa: TID251  other processes work
    raise AssertionError


def test_an_hour_of_mixed_work(weed: Server, work: Path) -> None:
    """Programs that read, write, append, rename, remove and list get what they wrote; from the second quarter of the
    time to the last no process of a mount grows by more than 5 %, in memory or descriptors, replaced or not.
    """
    looks: Looks = defaultdict(list)
    buckets = [weed.make_bucket() for _ in range(2)]
    end = work / "end"
    with ExitStack() as stack:
        mounts = {
            bucket: stack.enter_context(
                mounted(bucket, work / bucket, *_FLAGS, "--cache", str(work / bucket / "cache"), url=weed.url)
            )
            for bucket in buckets
        }
        steady, restarted = mounts.values()
        started = stack.enter_context(programs(mounts, weed.url, end))
        n_restarts = soak(steady, restarted, looks)
        end.touch()
        reports: list[dict[str, Any]] = [
            json.loads(each.communicate(timeout=_LAST_WORK_S)[0] or "{}") for each in started
        ]
        grown = {name: growth(each) for name, each in looks.items()}
        print(json.dumps({"restarts": n_restarts, "reports": reports}))
        for name, each in looks.items():
            print(name, grown[name], *(f"{one.rss_mib:.0f}/{one.descriptors}" for one in each))
        assert [each["failures"] for each in reports] == [[], []]
        assert [steady.stop(), restarted.stop()] == [0, 0]
        assert steady.warnings() == restarted.warnings() == []
    assert n_restarts >= _RESTARTS - 1
    for name, each in grown.items():
        assert each.late.rss_mib <= each.early.rss_mib * _GROWTH, (name, each)
        assert each.late.descriptors <= max(each.early.descriptors * _GROWTH, each.early.descriptors + _DESCRIPTORS), (
            name,
            each,
        )
