"""An hour of mixed work on mounts with a cache and --rw: memory and descriptors of all their processes stay the same.

MIXED_SECONDS sets how long (default 600; of less than an hour, 3600, memory is printed and not judged), MIXED_SHARE
what part of its time the program of each mount works.  One mount keeps its daemon to the end; the daemon of the other
is replaced again and again.
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
#: From here on memory is judged: what is remembered and kept fills up for some ten minutes.
_LONG_S = 3600.0
_LOOK_S = 10.0
#: As many in each half, so that daemons are as old in both.
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
    """Of one process, from the first half of its looks to the second: of what they are usually, and at their lowest.

    Attributes:
        typical: the median.
        resting: what nine of ten are above: a daemon that rests gives back what is free.
    """

    typical: tuple[float, float]
    resting: tuple[float, float]
    descriptors: tuple[float, float]


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


def work_on(steady: Mount, restarted: Mount, looks: Looks) -> int:
    """Looks at the processes until the time is up; how often the daemon of the second was replaced."""
    began = time.perf_counter()
    n_restarts = 0
    for number in itertools.count():
        gone_s = time.perf_counter() - began
        if gone_s >= _SECONDS:
            break
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
    return n_restarts


def growth(looks: list[Look]) -> Growth:
    """Without the first looks: what is remembered and kept is filled once."""
    looks = looks[len(looks) // 6 :]
    early, late = looks[: len(looks) // 2], looks[len(looks) // 2 :]
    typical, resting, descriptors = (
        [statistics.median(each.rss_mib for each in half) for half in (early, late)],
        [statistics.quantiles((each.rss_mib for each in half), n=10)[0] for half in (early, late)],
        [statistics.median(each.descriptors for each in half) for half in (early, late)],
    )
    return Growth((typical[0], typical[1]), (resting[0], resting[1]), (descriptors[0], descriptors[1]))


def test_an_hour_of_mixed_work(weed: Server, work: Path) -> None:
    """Programs that read, write, append, rename, remove and list get what they wrote; no process of a mount grows by
    more than 5 % from the first half of the time to the second, in memory or descriptors, replaced or not.
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
        n_restarts = work_on(steady, restarted, looks)
        end.touch()
        reports: list[dict[str, Any]] = [
            json.loads(each.communicate(timeout=_LAST_WORK_S)[0] or "{}") for each in started
        ]
        grown = {name: growth(each) for name, each in looks.items()} if _SECONDS >= _LONG_S else {}
        print(json.dumps({"restarts": n_restarts, "reports": reports}))
        for name, each in looks.items():
            print(name, grown.get(name, ""), *(f"{one.rss_mib:.0f}/{one.descriptors}" for one in each))
        assert [each["failures"] for each in reports] == [[], []]
        assert [steady.stop(), restarted.stop()] == [0, 0]
        assert steady.warnings() == restarted.warnings() == []
    assert n_restarts >= _RESTARTS - 1
    for name, each in grown.items():
        for early, late in (each.typical, each.resting):
            assert late <= early * _GROWTH, (name, each)
        early, late = each.descriptors
        assert late <= max(early * _GROWTH, early + _DESCRIPTORS), (name, each)
