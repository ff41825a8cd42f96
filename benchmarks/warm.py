"""`s3mountctl warm` beside the raw CRT client that throws content away: files a second, and the daemon's CPU for each.

usage: python -m benchmarks.warm [--files N] [--delay SECONDS] [--repeats N]

The server answers a constant (`constant`).  The two take turns; before each warm the cache is emptied.  Needs root,
/dev/fuse and nginx with Lua.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.bare import DIRECTORY
from benchmarks.constant import BUCKET, constant_server
from benchmarks.contenders import s3mount
from benchmarks.many_keys import SIZE
from tests.support.ctl import result_of, run_ctl
from tests.support.mounts import aws_environment

_IN_FLIGHT = 128


def cpu_s(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def raw(url: str, manifest: Path) -> dict[str, float]:
    """The CRT client alone, as many requests in flight as it has connections."""
    arguments = ["samples", url, BUCKET, str(manifest), str(SIZE), str(_IN_FLIGHT), "inf"]
    command = [sys.executable, "-m", "benchmarks.raw_crt", *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=aws_environment())
    told = json.loads(done.stdout)
    return {"raw_files_per_s": told["iops"], "raw_cpu_us": told["cpu_s"] / told["reads"] * 1e6}


def warm(mount: Path, pid: int, n_files: int) -> dict[str, float]:
    """The command, from its start to its end."""
    run_ctl("evict", mount, "--all")
    before, began = cpu_s(pid), time.perf_counter()
    facts = result_of(run_ctl("warm", mount / DIRECTORY, "--json", timeout_s=600))
    elapsed = time.perf_counter() - began
    if facts["done_files"] != n_files or facts["cached_files"]:
        raise RuntimeError(f"not everything was warmed: {facts}")
    return {"warm_files_per_s": n_files / elapsed, "warm_cpu_us": (cpu_s(pid) - before) / n_files * 1e6}


def measure(work: Path, *, n_files: int = 10_000, delay_s: float = 0.02, repeats: int = 3) -> list[dict[str, float]]:
    """One row for each turn.

    Args:
        work: a directory that is not there.
        delay_s: of each GET.
    """
    rows = []
    with (
        constant_server(work / "server", DIRECTORY, n_files, delay_s=delay_s) as url,
        s3mount(BUCKET, url, work / "ours", "--cache", str(work / "cache")) as mount,
    ):
        manifest = work / "keys"
        keys = [f"{DIRECTORY}/{name}\n" for name in os.listdir(mount.path / DIRECTORY)]
        manifest.write_text("".join(keys), encoding="ascii")
        for _ in range(repeats):
            row = raw(url, manifest) | warm(mount.path, mount.pid, n_files)
            rows.append(row | {"of_raw": row["warm_files_per_s"] / row["raw_files_per_s"]})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--delay", type=float, default=0.02)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="s3mount-bench-") as temporary:
        rows = measure(
            Path(temporary).resolve() / "w", n_files=options.files, delay_s=options.delay, repeats=options.repeats
        )
    for row in rows:
        print(*(f"{value:9.2f} {name}" for name, value in row.items()))
    print(f"median of_raw {statistics.median(row['of_raw'] for row in rows):.2f}")


if __name__ == "__main__":
    main()
