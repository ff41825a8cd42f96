"""The CPU of the small-file path: what the daemon spends for one file of 115 kB, cold and from the page cache.

The server answers a constant (`constant`), so that nearly all CPU beside the readers' is the daemon's; the
second epoch stands beside a bare pyfuse3 file system (`bare`) in the same run.

usage: python -m benchmarks.small [--files N] [--delay SECONDS] [--processes W] [--repeats N] [--ttl TTL]

Needs root, /dev/fuse and nginx with Lua.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from benchmarks.bare import DIRECTORY, bare
from benchmarks.constant import BUCKET, constant_server
from benchmarks.contenders import Contender, s3mount
from benchmarks.many_keys import SIZE
from tests.support.mounts import aws_environment

Figures = dict[str, float]


def measure(
    work: Path,
    *,
    n_files: int = 4000,
    delay_s: float = 0.02,
    n_processes: int = 8,
    warm_processes: tuple[int, ...] = (1, 4),
    ttl: str = "indefinite",
) -> dict[str, Figures]:
    """Files/s, and µs of the daemon's CPU for each file: by user and system, by its main and its other threads.

    Args:
        work: a directory that is not there.
        delay_s: of each GET.
        warm_processes: readers of the epochs that the kernel's page cache answers, for both file systems.

    Returns:
        By the name of the epoch; "calls" has FUSE calls and GETs for each file of the whole run.
    """
    results: dict[str, Figures] = {}
    with (
        constant_server(work / "server", DIRECTORY, n_files, delay_s=delay_s) as url,
        s3mount(BUCKET, url, work / "ours", "--metadata-ttl", ttl) as mount,
    ):
        directory = mount.path / DIRECTORY
        subprocess.run(["ls", str(directory)], check=True, stdout=subprocess.DEVNULL)
        results["cold"] = _epochs(mount, directory, n_processes)[0]
        for n in warm_processes:
            results[f"warm {n}"] = _best(_epochs(mount, directory, n, 3))
    with bare(work / "bare", n_files, SIZE) as mount:
        directory = mount.path / DIRECTORY
        _epochs(mount, directory, n_processes)
        for n in warm_processes:
            results[f"bare {n}"] = _best(_epochs(mount, directory, n, 3))
            results[f"warm {n}"]["of_bare"] = results[f"warm {n}"]["files_per_s"] / results[f"bare {n}"]["files_per_s"]
    n_epochs = 1 + 3 * len(warm_processes)
    results["calls"] = _calls(work / "ours" / "s3mount.log", n_files, n_epochs)
    return results


def _epochs(mount: Contender, directory: Path, n_processes: int, n_epochs: int = 1) -> list[Figures]:
    command = [sys.executable, "-m", "benchmarks.epochs", *map(str, (directory, n_processes, n_epochs, mount.pid))]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=aws_environment())
    return [json.loads(line) for line in done.stdout.splitlines()]


def _best(epochs: list[Figures]) -> Figures:
    """The fastest: others on the machine only slow one down."""
    return max(epochs, key=lambda epoch: epoch["files_per_s"])


def _calls(log: Path, n_files: int, n_epochs: int) -> Figures:
    """What the daemon says when it ends, for each file: calls in each epoch, GETs in all."""
    text = log.read_text(encoding="utf-8")
    said = re.search(r"unmounted after .* (\d+) GET.*'ok': (\d+)", text)
    if said is None:
        raise RuntimeError(f"the daemon did not end well: {text[-2000:]}")
    return {"gets_per_file": int(said[1]) / n_files, "calls_per_open": int(said[2]) / n_files / n_epochs}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=4000)
    parser.add_argument("--delay", type=float, default=0.02)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--ttl", default="indefinite")
    options = parser.parse_args()
    runs: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with tempfile.TemporaryDirectory(prefix="s3mount-bench-") as temporary:
        for repeat in range(options.repeats):
            work = Path(temporary).resolve() / str(repeat)
            measured = measure(
                work, n_files=options.files, delay_s=options.delay, n_processes=options.processes, ttl=options.ttl
            )
            for epoch, figures in measured.items():
                for name, value in figures.items():
                    runs[epoch][name].append(value)
    for epoch, figures in runs.items():
        columns = [f"{statistics.median(values):11.2f} {name}" for name, values in figures.items() if name != "bytes"]
        print(f"{epoch:8}", *columns)


if __name__ == "__main__":
    main()
