"""The ceiling: the CRT client alone, no FUSE, content thrown away.

usage: python -m benchmarks.raw_crt stream URL BUCKET KEY SIZE IN_FLIGHT [CA]
       python -m benchmarks.raw_crt jumps URL BUCKET KEY SIZE LENGTH IN_FLIGHT SECONDS
       python -m benchmarks.raw_crt samples URL BUCKET MANIFEST LENGTH IN_FLIGHT SECONDS

Prints one JSON object, with the names that the readers' reports have.
"""

import json
import random
import resource
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import trio

from benchmarks.readers.processes import peak_rss_mib
from s3mount.config import DEFAULT_PART_SIZE
from s3mount.core.attrs import ObjectId
from s3mount.core.location import Location
from s3mount.core.ranges import ByteRange, split
from s3mount.store.crt import CrtConfig, CrtReader, crt_reader
from s3mount.store.session import Endpoint, S3Config, S3Session

Requests = Iterator[tuple[str, ByteRange]]
_SEED = 2  # other offsets than the readers have


async def stream(url: str, bucket: str, key: str, size: str, in_flight: str, ca: str | None = None) -> None:
    parts = split(ByteRange(0, int(size)), DEFAULT_PART_SIZE)
    await _run(url, bucket, ca, int(in_flight), iter([(key, part) for part in parts]))


async def jumps(url: str, bucket: str, key: str, size: str, length: str, in_flight: str, seconds: str) -> None:
    slots = random.Random(_SEED).sample(range(int(size) // int(length)), min(int(size) // int(length), 20_000))
    requests = ((key, ByteRange(slot * int(length), (slot + 1) * int(length))) for slot in slots)
    await _run(url, bucket, None, int(in_flight), requests, float(seconds))


async def samples(url: str, bucket: str, manifest: str, length: str, in_flight: str, seconds: str) -> None:
    requests = ((key, ByteRange(0, int(length))) for key in _shuffled(manifest))
    await _run(url, bucket, None, int(in_flight), requests, float(seconds))


def _shuffled(manifest: str) -> list[str]:
    keys = Path(manifest).read_text(encoding="ascii").split()
    random.Random(_SEED).shuffle(keys)
    return keys


@asynccontextmanager
async def _client(url: str, bucket: str, ca: str | None, connections: int) -> AsyncIterator[CrtReader]:
    s3 = S3Config(Location(bucket), endpoint_url=url, force_path_style=True, ca_bundle=ca)
    parts = urlsplit(url)
    endpoint = Endpoint(parts.scheme == "https", parts.netloc, f"/{bucket}/", "us-east-1")
    credentials = await S3Session(s3).credentials()
    async with crt_reader(endpoint, credentials, ca, s3, CrtConfig(connections, DEFAULT_PART_SIZE, 2)) as reader:
        yield reader


async def _run(
    url: str, bucket: str, ca: str | None, in_flight: int, requests: Requests, seconds: float = float("inf")
) -> None:
    """`in_flight` requests at once, over as many connections, until they end or the time is over."""
    latencies: list[float] = []
    n_bytes = 0

    async def work(reader: CrtReader, is_over: Callable[[], bool]) -> None:
        nonlocal n_bytes
        for key, span in requests:
            if is_over():
                return
            began = time.perf_counter()
            content = await reader.get_range(ObjectId(key, ""), span)
            n_bytes += len(content)
            latencies.append(time.perf_counter() - began)

    async with _client(url, bucket, ca, in_flight) as reader:
        await reader.probe()
        before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        async with trio.open_nursery() as nursery:
            for _ in range(in_flight):
                nursery.start_soon(work, reader, lambda: time.perf_counter() - started > seconds)
        elapsed, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({
        "seconds": elapsed, "bytes": n_bytes, "reads": len(latencies), "iops": len(latencies) / elapsed,
        "p50_ms": statistics.median(latencies) * 1000, "cpu_s": cpu_s, "rss_mib": peak_rss_mib(),
    }))  # fmt: skip


if __name__ == "__main__":
    trio.run(partial({"stream": stream, "jumps": jumps, "samples": samples}[sys.argv[1]], *sys.argv[2:]))
