"""Minutes of readers on a mount whose daemons are killed, stopped, stuck and replaced: no error, no wrong byte.

TAKEOVER_SECONDS sets how long each takes (default 600), TAKEOVER_EVERY the seconds from one fault to the next (3; 15
for those that --hang-timeout finds), TAKEOVER_RESTARTS how many restarts there are in a row (100).
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from s3mount.units import KIB, MIB
from tests.mount.test_deadly_calls import sabotaged
from tests.support.content import make_content
from tests.support.ctl import run_ctl
from tests.support.mounts import Mount, mounted
from tests.support.processes import wait_until
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(0)]

_SECONDS = float(os.environ.get("TAKEOVER_SECONDS", "600"))
_EVERY_S = os.environ.get("TAKEOVER_EVERY")
_RESTARTS = int(os.environ.get("TAKEOVER_RESTARTS", "100"))
_READERS = int(os.environ.get("TAKEOVER_READERS", "32"))
_SIZES = [0, 1, 4097, 115_000, MIB, MIB + 1, 5 * MIB, 8 * MIB, 20 * MIB + 7]
_SMALL_FILES = 50
#: Of the last third of the daemons above the first third: what a takeover leaks adds up.
_MORE_DESCRIPTORS = 8
_GROWTH_MIB = 50
_LAST_VISIT_S = 300.0


class Look(NamedTuple):
    """One daemon, a moment before its end."""

    descriptors: int
    rss_mib: float
    record_bytes: int
    mounter_descriptors: int


def look(mount: Mount) -> Look | None:
    """None when it is just being replaced."""
    try:
        daemon = mount.daemon_pid
        mounter = Path(f"/proc/{mount.process.pid}/fd")
        record = sum(os.stat(each).st_blocks * 512 for each in mounter.iterdir() if "memfd" in os.readlink(each))
        return Look(len(os.listdir(f"/proc/{daemon}/fd")), mount.rss_mib(), record, len(list(mounter.iterdir())))
    except (OSError, IndexError):
        return None


def kill(mount: Mount, _: Path) -> None:
    os.kill(mount.daemon_pid, signal.SIGKILL)


def stop(mount: Mount, _: Path) -> None:
    os.kill(mount.daemon_pid, signal.SIGSTOP)


def spin(_: Mount, trigger: Path) -> None:
    trigger.touch()


def restart(mount: Mount, _: Path) -> None:
    run_ctl("restart", mount.path)


@pytest.fixture
def originals(work: Path) -> Path:
    """What is put into the bucket, as files."""
    directory = work / "originals"
    directory.mkdir()
    sizes = _SIZES * 2 + [(number % 10 + 1) * 20 * KIB for number in range(_SMALL_FILES)]
    for number, size in enumerate(sizes):
        (directory / f"f{number:03}").write_bytes(make_content(f"f{number}", size))
    return directory


@contextmanager
def survivors(mount: Mount, originals: Path, end: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The metronome and the readers; none is left, also when they do not end."""
    command = [sys.executable, "-m", "tests.soak.survivors"]
    programs = [[*command, "metronome", str(mount.path), str(end)]]
    programs += [[*command, "reader", str(mount.path), str(originals), str(seed), str(end)] for seed in range(_READERS)]
    processes = [subprocess.Popen(program, stdout=subprocess.PIPE) for program in programs]
    try:
        yield processes
    finally:
        end.touch()
        for each in processes:
            each.kill()
            each.wait()
            each.stdout.close()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("fault", "every_s"),
    [(kill, 3.0), (stop, 15.0), (spin, 15.0), (restart, 3.0)],
    ids=["killed", "stopped", "spinning", "restarted"],
)
def test_readers_while_daemons_come_and_go(
    weed: Server, work: Path, originals: Path, fault: Callable[[Mount, Path], None], every_s: float
) -> None:
    """32 programs that read in all ways, work in a directory inside and hold files open get no error and no wrong
    byte, whatever happens to the daemons; and neither descriptors nor memory nor the record grow with them.
    """
    bucket = fill(weed, originals)
    end, trigger = work / "end", work / "spin"
    with (
        mounted(bucket, work, "--hang-timeout", "5", url=weed.url, env=sabotaged(SABOTAGE_SPIN=trigger)) as mount,
        survivors(mount, originals, end) as processes,
    ):
        looks, faults = [], []
        until = time.time() + _SECONDS
        while len(faults) < _RESTARTS if fault is restart else time.time() < until:
            time.sleep(float(_EVERY_S or every_s))  # noqa: TID251  the programs work meanwhile
            looks.append(look(mount))
            faults.append(time.time())
            inflict(fault, mount, trigger)
        end.touch()
        report = collect(processes)
        assert mount.stop() == 0
        tell(fault.__name__, report, faults, [each for each in looks if each is not None], mount)


def test_readers_after_the_mounter_died(weed: Server, work: Path, originals: Path) -> None:
    """When the mounter is killed the daemon goes on, and says so; no program notices."""
    bucket = fill(weed, originals)
    end = work / "end"
    with mounted(bucket, work, url=weed.url) as mount, survivors(mount, originals, end) as processes:
        daemon = mount.daemon_pid
        time.sleep(5)  # noqa: TID251  the programs work meanwhile
        mount.process.kill()
        mount.process.wait()
        time.sleep(_SECONDS / 10)  # noqa: TID251
        end.touch()
        report = collect(processes)
        assert "the mounter is gone" in mount.log
        os.kill(daemon, signal.SIGTERM)
        wait_until(lambda: not Path(f"/proc/{daemon}").exists(), 30, "the end of the daemon")
    print(json.dumps({"fault": "mounter killed", "bytes": report.n_bytes, "failures": len(report.failures)}))
    assert report.failures == []


def inflict(fault: Callable[[Mount, Path], None], mount: Mount, trigger: Path) -> None:
    """Returns when another daemon serves."""
    served = mount.log.count(" serves the mount")
    fault(mount, trigger)
    wait_until(lambda: mount.log.count(" serves the mount") > served, 120, "the takeover")


class Report(NamedTuple):
    """What the programs saw."""

    slow: list[tuple[float, float]]
    n_bytes: int
    visits: int
    failures: list[str]


def fill(weed: Server, originals: Path) -> str:
    bucket = weed.make_bucket()
    for path in originals.iterdir():
        weed.client.upload_file(str(path), bucket, f"inside/{path.name}")
    return bucket


def collect(processes: list[subprocess.Popen[bytes]]) -> Report:
    slow, *reports = [json.loads(each.communicate(timeout=_LAST_VISIT_S)[0] or "null") for each in processes]
    assert [each.returncode for each in processes] == [0] * len(processes), "a program was killed, as by SIGBUS"
    failures = [failure for each in reports for failure in each["failures"]]
    visits = sum(sum(each["visits"].values()) for each in reports)
    return Report(slow, sum(each["bytes"] for each in reports), visits, failures)


def tell(fault: str, report: Report, faults: list[float], looks: list[Look], mount: Mount) -> None:
    """The numbers, and what must be true of them."""
    pauses = [max((s for at, s in report.slow if at - 0.5 <= each <= at + s + 0.5), default=0.0) for each in faults]
    third = max(len(looks) // 3, 1)
    early, late = looks[:third], looks[-third:]
    grown = {
        name: (
            statistics.median(getattr(each, name) for each in early),
            statistics.median(getattr(each, name) for each in late),
        )
        for name in Look._fields
    }
    print(json.dumps({
        "fault": fault, "faults": len(faults), "readers": _READERS, "bytes": report.n_bytes, "visits": report.visits,
        "failures": len(report.failures), "median_pause_s": round(statistics.median(pauses), 3),
        "longest_pause_s": round(max(pauses), 3), "early_late": grown,
    }))  # fmt: skip
    print(*report.failures[:20], sep="\n")
    assert report.failures == []
    assert grown["descriptors"][1] <= grown["descriptors"][0] + _MORE_DESCRIPTORS
    assert grown["mounter_descriptors"][1] <= grown["mounter_descriptors"][0] + _MORE_DESCRIPTORS
    assert grown["rss_mib"][1] <= grown["rss_mib"][0] + _GROWTH_MIB
    assert grown["record_bytes"][1] <= max(2 * grown["record_bytes"][0], grown["record_bytes"][0] + MIB)
    assert "Traceback" not in mount.log
