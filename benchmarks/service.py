"""What a mount costs a host before anybody reads: `python -m benchmarks.service`.

* start: from the command to its return, to READY=1 of a service, and to the first byte of a file, of a new process;
* idle: resident and proportional memory of daemon, mounter and standby, when the standby is prepared;
* stop: from SIGTERM to the end of all processes, and from umount(8) to it.

Each of some kinds of mounts, several times; medians.  s3fs-fuse, where it is installed, is started beside them.
"""

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.contenders import s3fs
from s3mount.units import MIB
from tests.support.mounts import COMMAND, aws_environment, children, clean_up, mounted
from tests.support.processes import running, wait_until
from tests.support.refusals import processes_of
from tests.support.servers import Server, seaweedfs
from tests.support.takeover import is_prepared

KINDS: dict[str, tuple[str, ...]] = {"reading": (), "with a cache": ("--cache", "{work}/cache"), "writing": ("--rw",)}
#: Issue 8: of the idle daemon; the mounter's is the takeover's.
AIMS = {"daemon RSS MiB": 120.0, "mounter RSS MiB": 25.0}

Figures = dict[str, list[float]]


def since(began: float) -> float:
    return time.perf_counter() - began


def flags_of(kind: str, work: Path) -> list[str]:
    return [flag.format(work=work) for flag in KINDS[kind]]


@contextmanager
def notified(path: Path) -> Iterator[socket.socket]:
    """Where a service says READY=1."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        yield manager


def start_in_background(bucket: str, work: Path, flags: list[str], figures: Figures) -> None:
    """To the return of the command, to the first byte, and from umount(8) to the end."""
    mount = work / "mnt"
    mount.mkdir()
    try:
        began = time.perf_counter()
        subprocess.run([COMMAND, bucket, str(mount), *flags], env=aws_environment(), check=True)
        figures["start, the command returns, s"].append(since(began))
        subprocess.run(["head", "-c", "1", str(mount / "000")], stdout=subprocess.DEVNULL, check=True)
        figures["start, first byte, s"].append(since(began))
        began = time.perf_counter()
        subprocess.run(["umount", str(mount)], check=True)
        wait_until(lambda: not processes_of(mount), 60, "the end")
        figures["stop, umount, s"].append(since(began))
    finally:
        clean_up(mount)


def start_as_service(bucket: str, work: Path, flags: list[str], figures: Figures) -> None:
    """To READY=1, and from SIGTERM to the end."""
    mount = work / "mnt"
    mount.mkdir()
    with notified(work / "notify") as manager:
        environment = aws_environment(NOTIFY_SOCKET=str(work / "notify"), STATE_DIRECTORY=str(work / "state"))
        began = time.perf_counter()
        with running([COMMAND, bucket, str(mount), "--foreground", *flags], work / "log", env=environment) as process:
            try:
                while b"READY=1" not in manager.recv(65536):
                    pass
                figures["start, READY=1, s"].append(since(began))
                began = time.perf_counter()
                process.terminate()
                process.wait(60)
                figures["stop, SIGTERM, s"].append(since(began))
            finally:
                clean_up(mount, process)


def memory_mib(pid: int) -> tuple[float, float]:
    """Resident, and with shared pages divided among those who have them."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    return tuple(int(lines[name].split()[0]) / 1024 for name in ("Rss", "Pss"))  # type: ignore[return-value]


def idle(bucket: str, work: Path, flags: list[str], url: str, figures: Figures) -> None:
    """Memory of all three, when the standby waits."""
    with mounted(bucket, work, *flags, url=url) as mount:
        mounter = mount.process.pid
        wait_until(lambda: len(children(mounter)) == 2 and is_prepared(children(mounter)[1]), 60, "a standby")
        for role, pid in zip(("daemon", "standby", "mounter"), (*children(mounter), mounter), strict=True):
            for name, value in zip(("RSS", "PSS"), memory_mib(pid), strict=True):
                figures[f"{role} {name} MiB"].append(value)
        figures["daemon descriptors"].append(len(os.listdir(f"/proc/{mount.daemon_pid}/fd")))


def start_s3fs(bucket: str, url: str, work: Path, figures: Figures) -> None:
    began = time.perf_counter()
    with s3fs(bucket, url, work) as contender:
        figures["start, mounted, s"].append(since(began))
        subprocess.run(["head", "-c", "1", str(contender.path / "000")], stdout=subprocess.DEVNULL, check=True)
        figures["start, first byte, s"].append(since(began))
        figures["daemon RSS MiB"].append(contender.rss_mib())


def measure(server: Server, directory: Path, repeats: int) -> dict[str, Figures]:
    bucket = server.make_bucket()
    for number in range(100):
        server.client.put_object(Bucket=bucket, Key=f"{number:03}", Body=b"x" * MIB)
    found: dict[str, Figures] = {}
    for kind in KINDS:
        figures = found[kind] = defaultdict(list)
        for number in range(repeats):
            work = directory / f"{kind.replace(' ', '-')}-{number}"
            for step in ("background", "service", "idle"):
                (work / step).mkdir(parents=True)
            flags = flags_of(kind, work)
            reach = ["--endpoint-url", server.url, "--force-path-style"]
            start_in_background(bucket, work / "background", [*flags, *reach], figures)
            start_as_service(bucket, work / "service", [*flags, *reach], figures)
            idle(bucket, work / "idle", flags, server.url, figures)
    if shutil.which("s3fs"):
        figures = found["s3fs"] = defaultdict(list)
        for number in range(repeats):
            start_s3fs(bucket, server.url, directory / f"s3fs-{number}", figures)
    return found


def lines_of(kind: str, figures: Figures) -> Iterator[str]:
    yield kind
    for name, values in figures.items():
        middle = statistics.median(values)
        aim = AIMS.get(name) if kind in KINDS else None
        judged = "" if aim is None else f"  (aim: <= {aim:g}: {'met' if middle <= aim else 'MISSED'})"
        yield f"  {name:32} {middle:8.2f}{judged}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, seaweedfs(Path(directory) / "weed") as server:
        found = measure(server, Path(directory), options.repeats)
    for kind, figures in found.items():
        print(*lines_of(kind, figures), sep="\n")
    if options.json:
        options.json.write_text(json.dumps({"load": os.getloadavg(), "figures": found}), encoding="utf-8")


if __name__ == "__main__":
    main()
