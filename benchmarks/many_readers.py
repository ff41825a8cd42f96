"""64 readers in order, each of a file of its own, under two memory targets.

usage: python -m benchmarks.many_readers [--repeats N]     prints one JSON object for each target

The aim: resident memory at most the target and 150 MiB, and 0.9 of the throughput that 4 GiB give.
"""

import argparse
import json
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.contenders import s3mount
from benchmarks.distance import nginx
from s3mount.units import MIB
from tests.support.content import make_content
from tests.support.servers import Server, seaweedfs

READERS = 64
FILE_BYTES = 24 * MIB
TARGETS_MIB = (512, 4096)
#: As of S3: to the first byte, and of one connection.
_DELAY_S, _RATE = 0.02, "90m"


def upload(server: Server, bucket: str) -> None:
    """The files that `measure` reads: `many/00` and so on."""
    content = make_content("many", FILE_BYTES)
    with ThreadPoolExecutor(4) as pool:
        keys = [f"many/{number:02}" for number in range(READERS)]
        list(pool.map(lambda key: server.client.put_object(Bucket=bucket, Key=key, Body=content), keys))


def measure(bucket: str, url: str, directory: Path, target_mib: int, readers: int = READERS) -> dict[str, float]:
    """All of them at once by `dd bs=1M`, a process each.

    Args:
        url: where what `upload` stored is.
        directory: new; for the mount.

    Returns:
        mb_per_s of all together, peak_rss_mib, over_target_mib, cpu_s_per_gb of the daemon.
    """
    with s3mount(bucket, url, directory, "--memory-target", str(target_mib)) as mount:
        paths = sorted((mount.path / "many").iterdir())[:readers]
        cpu_s, started = mount.cpu_s(), time.perf_counter()
        programs = [subprocess.Popen(["dd", f"if={path}", "of=/dev/null", "bs=1M", "status=none"]) for path in paths]
        codes = [program.wait() for program in programs]
        seconds = time.perf_counter() - started
        if any(codes):
            raise RuntimeError(f"dd ended with {codes}")
        status = Path(f"/proc/{mount.pid}/status").read_text(encoding="ascii")
        peak_mib = int(status.partition("VmHWM:")[2].split()[0]) / 1024
        n_bytes = len(paths) * FILE_BYTES
        return {
            "mb_per_s": n_bytes / seconds / 1e6,
            "peak_rss_mib": peak_mib,
            "over_target_mib": peak_mib - target_mib,
            "cpu_s_per_gb": (mount.cpu_s() - cpu_s) / (n_bytes / 1e9),
        }


def main() -> None:
    """Both targets, by turns."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="s3mount-bench-") as temporary:
        work = Path(temporary).resolve()
        with seaweedfs(work / "weed") as server:
            bucket = server.make_bucket()
            upload(server, bucket)
            upstream = server.url.removeprefix("http://")
            with nginx(upstream, work / "nginx", delay_s=_DELAY_S, rate=_RATE) as front:
                for repeat in range(options.repeats):
                    for target_mib in TARGETS_MIB:
                        figures = measure(bucket, front.url, work / f"{target_mib}-{repeat}", target_mib)
                        print(json.dumps({"target_mib": target_mib, **figures}), flush=True)


if __name__ == "__main__":
    main()
