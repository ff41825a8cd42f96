"""The reading numbers: ours, s3fs and the raw CRT client, against one server in one run.

usage: python -m benchmarks.read [--repeats N] [--only sequential|tls|small|start] [--json FILE]

Needs root, /dev/fuse and what `.ci/prepare test,bench` installs.  Absolute figures depend on the
machine; the ratios are what to look at.
"""

import argparse
import contextlib
import io
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.contenders import Contender, s3fs, s3fs_tuned, s3mount, s3mount_ttl
from benchmarks.distance import nginx
from s3mount.units import GIB, MIB
from tests.support.certificates import make_authority
from tests.support.content import make_content
from tests.support.mounts import aws_environment
from tests.support.servers import Server, seaweedfs

_SMALL_FILES, _SMALL_BYTES, _SMALL_PROCESSES = 2000, 115_000, 16
_KEYS = 50_000
Results = dict[str, dict[str, list[float]]]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=["sequential", "tls", "small", "start"])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results: Results = defaultdict(lambda: defaultdict(list))
    with tempfile.TemporaryDirectory(prefix="s3mount-bench-") as temporary:
        work = Path(temporary).resolve()
        with seaweedfs(work / "weed") as server:
            bucket = server.make_bucket()
            for name, measure in (("sequential", sequential), ("tls", tls), ("small", small), ("start", start)):
                if options.only in (None, name):
                    measure(server, bucket, work / name, options.repeats, results)
    report(results)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2), encoding="utf-8")


def upload_big(server: Server, bucket: str) -> None:
    content = make_content("big", 64 * MIB) * (GIB // (64 * MIB))
    server.client.upload_fileobj(io.BytesIO(content), bucket, "big/1g.bin")


def sequential(server: Server, bucket: str, work: Path, repeats: int, results: Results) -> None:
    """1 GiB by dd, plain http."""
    upload_big(server, bucket)
    _sequential(server.url, bucket, work, repeats, results, "plain", None)


def tls(server: Server, bucket: str, work: Path, repeats: int, results: Results) -> None:
    """The same on TLS: nginx ends it, on the same two cores."""
    upload_big(server, bucket)
    authority = make_authority(work / "ca")
    upstream = server.url.removeprefix("http://")
    with nginx(upstream, work / "nginx", tls=str(authority.chain)) as front:
        _sequential(front.url, bucket, work, repeats, results, "tls", str(authority.bundle))


def _sequential(url: str, bucket: str, work: Path, repeats: int, results: Results, label: str, ca: str | None) -> None:
    raw = [sys.executable, "-m", "benchmarks.raw_crt", url, bucket, "big/1g.bin", str(GIB), *([ca] if ca else [])]
    for repeat in range(repeats):
        figures = json.loads(subprocess.run(raw, check=True, capture_output=True, env=aws_environment()).stdout)
        for name, value in figures.items():
            results[f"1 GiB {label}: raw CRT"][name].append(value)
        for make in (s3mount, s3fs, s3fs_tuned):
            for mode, flags in (("buffered", []), ("direct", ["iflag=direct"])):
                directory = work / f"{make.__name__}-{mode}-{repeat}"
                with make(bucket, url, directory, ca=ca) as mount:
                    run = _dd(mount, flags)
                for name, value in run.items():
                    results[f"1 GiB {label}: {mount.name} {mode}"][name].append(value)


def _dd(mount: Contender, flags: list[str]) -> dict[str, float]:
    cpu, started = mount.cpu_s(), time.perf_counter()
    command = ["dd", f"if={mount.path}/big/1g.bin", "of=/dev/null", "bs=1M", *flags]
    subprocess.run(command, check=True, capture_output=True)
    elapsed = time.perf_counter() - started
    return {"mb_per_s": GIB / elapsed / 1e6, "cpu_s_per_gb": (mount.cpu_s() - cpu) / (GIB / 1e9)}


def small(server: Server, bucket: str, work: Path, repeats: int, results: Results) -> None:
    """2,000 files of 115 kB by 16 processes at 30 ms."""
    content = make_content("small", _SMALL_BYTES)
    for index in range(_SMALL_FILES):
        server.client.put_object(Bucket=bucket, Key=f"small/{index:05d}.jpg", Body=content)
    with nginx(server.url.removeprefix("http://"), work / "nginx", delay_s=0.03, rate="90m") as front:
        for repeat in range(repeats):
            for make in (s3mount, s3mount_ttl, s3fs):
                with make(bucket, front.url, work / f"{make.__name__}-{repeat}") as mount:
                    cpu = mount.cpu_s()
                    command = [sys.executable, "-m", "benchmarks.small_files", f"{mount.path}/small", "16"]
                    figures = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
                    label = f"{_SMALL_FILES} files of 115 kB, {_SMALL_PROCESSES} processes, 30 ms: {mount.name}"
                    results[label]["files_per_s"].append(figures["files_per_s"])
                    results[label]["cpu_us_per_file"].append((mount.cpu_s() - cpu) / _SMALL_FILES * 1e6)


def start(server: Server, bucket: str, work: Path, repeats: int, results: Results) -> None:
    """From exec to the first byte of a known path, three directories deep, among 50,000 keys."""
    many = server.make_bucket()

    def put(index: int) -> None:
        server.client.put_object(Bucket=many, Key=f"data/c{index % 50:02d}/s{index % 7}/{index:06d}.txt", Body=b"x")

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(put, range(_KEYS)))
    known = f"data/c{49:02d}/s{49 % 7}/{49:06d}.txt"
    for repeat in range(repeats):
        with nginx(server.url.removeprefix("http://"), work / f"nginx-{repeat}") as front:
            started = time.perf_counter()
            with s3mount(many, front.url, work / f"mount-{repeat}") as mount:
                (mount.path / known).read_bytes()
                elapsed = time.perf_counter() - started
                depth = len(Path(known).parts)
            with contextlib.suppress(FileNotFoundError):
                label = f"exec to first byte, {_KEYS} keys, depth {depth}: s3mount"
                results[label]["seconds"].append(elapsed)
                results[label]["requests"].append(len(front.requests()))


def report(results: Any) -> None:
    """A table of medians, and of ratios to the raw client where there is one."""
    for label, figures in results.items():
        columns = [f"{statistics.median(values):10.2f} {name}" for name, values in figures.items()]
        print(f"{label:60}", *columns)


if __name__ == "__main__":
    main()
