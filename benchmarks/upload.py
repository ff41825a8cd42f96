"""What an upload costs: parts of 8 MiB by threads, by the CRT, by aiobotocore and by boto3, plain and through TLS.

usage: python -m benchmarks.upload [PARTS [REPEATS]]
       python -m benchmarks.upload one CLIENT URL BUCKET PARTS CA

Each client is a process of its own, which uploads one object in pieces of 128 KiB, as the kernel brings them, eight
parts at once, and reports CPU seconds and its resident memory; SeaweedFS and nginx are other processes.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import boto3
import trio
from botocore.config import Config

from benchmarks.distance import nginx
from benchmarks.readers.processes import peak_rss_mib
from s3mount.core.location import Location
from s3mount.daemon.allocator import keep_memory
from s3mount.store.connect import connect
from s3mount.store.crt import CrtConfig
from s3mount.store.crt_writer import CrtWriter
from s3mount.store.large_bodies import LargeBodies
from s3mount.store.s3_writer import S3Writer
from s3mount.store.session import S3Config
from s3mount.store.write_config import WriteConfig
from s3mount.store.writing import Part, Upload, Writer
from s3mount.units import KIB, MIB
from tests.support.certificates import make_authority
from tests.support.processes import KEY, REGION, SECRET
from tests.support.servers import seaweedfs

PART = 8 * MIB
AT_ONCE = 8
CONTENT = os.urandom(PART)
PIECES = [memoryview(CONTENT)[start : start + 128 * KIB] for start in range(0, PART, 128 * KIB)]


async def _by_writer(writer: Writer, n_parts: int) -> None:
    upload = await writer.create_upload("object")
    parts: list[Part] = []
    numbers = iter(range(1, n_parts + 1))

    async def work() -> None:
        parts.extend([await writer.upload_part(upload, number, PIECES) for number in numbers])

    async with trio.open_nursery() as nursery:
        for _ in range(AT_ONCE):
            nursery.start_soon(work)
    await writer.complete(upload, sorted(parts))


async def _ours(client: str, url: str, bucket: str, n_parts: int, ca: str) -> float:
    keep_memory(512 * MIB)
    s3 = S3Config(Location(bucket), endpoint_url=url, force_path_style=True, ca_bundle=ca or None)
    async with connect(s3, CrtConfig(connections=32, part_size=PART, threads=2)) as connection:
        writing = WriteConfig("off" if client.endswith("off") else "crc32c")
        writer: Writer = S3Writer(connection.client, s3, writing)
        with closing(LargeBodies(connection.reader.requests, writing.checksums)) as large:
            if client != "aiobotocore":
                by_threads = large if client == "threads" else None
                writer = CrtWriter(connection.reader.requests, connection.client, s3, writing, by_threads)
            await _by_writer(writer, AT_ONCE)
            return await _measured(partial(_by_writer, writer, n_parts))


async def _measured(upload: Callable[[], Awaitable[None]]) -> float:
    before = _cpu_s()
    await upload()
    return _cpu_s() - before


def _boto3(url: str, bucket: str, n_parts: int, ca: str) -> float:
    settings = Config(s3={"addressing_style": "path"}, max_pool_connections=AT_ONCE)
    s3 = boto3.client("s3", endpoint_url=url, config=settings, verify=ca or None)

    def upload(n_parts: int) -> None:
        upload = Upload("object", s3.create_multipart_upload(Bucket=bucket, Key="object")["UploadId"])

        def send(number: int) -> dict[str, object]:
            answer = s3.upload_part(
                Bucket=bucket, Key=upload.key, UploadId=upload.upload_id, PartNumber=number, Body=b"".join(PIECES)
            )
            return {"PartNumber": number, "ETag": answer["ETag"]}

        with ThreadPoolExecutor(AT_ONCE) as threads:
            parts = list(threads.map(send, range(1, n_parts + 1)))
        s3.complete_multipart_upload(
            Bucket=bucket, Key=upload.key, UploadId=upload.upload_id, MultipartUpload={"Parts": parts}
        )

    upload(AT_ONCE)
    before = _cpu_s()
    upload(n_parts)
    return _cpu_s() - before


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def one(client: str, url: str, bucket: str, parts: str, ca: str) -> None:
    """Upload in this process; prints one JSON object."""
    began = time.perf_counter()
    cpu_s = (
        _boto3(url, bucket, int(parts), ca)
        if client == "boto3"
        else trio.run(_ours, client, url, bucket, int(parts), ca)
    )
    gigabytes = int(parts) * PART / 1e9
    seconds = time.perf_counter() - began
    print(json.dumps({"cpu_s_per_gb": cpu_s / gigabytes, "rss_mib": peak_rss_mib(), "seconds": seconds}))


def main(parts: str = "64", repeats: str = "3") -> None:
    """All clients in turn, and the medians."""
    os.environ.update(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET, AWS_DEFAULT_REGION=REGION)
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as scratch, seaweedfs(Path(scratch) / "weed") as server:
        authority = make_authority(Path(scratch) / "ca")
        upstream = server.url.removeprefix("http://")
        with nginx(upstream, Path(scratch) / "nginx", tls=str(authority.chain), workers=2) as front:
            for _ in range(int(repeats)):
                for way, url, ca in (("plain", server.url, ""), ("TLS", front.url, str(authority.bundle))):
                    for client in ("threads", "crt", "crt-off", "aiobotocore", "boto3"):
                        command = ["one", client, url, server.make_bucket(), parts, ca]
                        done = subprocess.run(
                            [sys.executable, "-m", "benchmarks.upload", *command], check=True, stdout=subprocess.PIPE
                        )
                        found.setdefault((way, client), []).append(json.loads(done.stdout))
    print(f"{'way':6} {'client':12} {'CPU s/GB':>9} {'RSS MiB':>8}")
    for (way, client), runs in found.items():
        cpu_s, rss = (statistics.median(run[name] for run in runs) for name in ("cpu_s_per_gb", "rss_mib"))
        print(f"{way:6} {client:12} {cpu_s:9.2f} {rss:8.0f}")


if __name__ == "__main__":
    one(*sys.argv[2:]) if sys.argv[1:2] == ["one"] else main(*sys.argv[1:])
