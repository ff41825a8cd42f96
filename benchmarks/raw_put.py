"""The ceiling of writing: the CRT client alone, content from memory, no FUSE.

usage: python -m benchmarks.raw_put stream URL BUCKET SIZE IN_FLIGHT
       python -m benchmarks.raw_put files URL BUCKET N LENGTH IN_FLIGHT

Prints one JSON object, with the names that the writers' reports have.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Iterator

import trio

from benchmarks.readers.processes import peak_rss_mib
from s3mount.config import DEFAULT_PART_SIZE
from s3mount.core.location import Location
from s3mount.daemon.allocator import keep_memory
from s3mount.store.connect import connect
from s3mount.store.crt import CrtConfig
from s3mount.store.crt_writer import CrtWriter
from s3mount.store.session import S3Config
from s3mount.store.write_config import WriteConfig
from s3mount.store.writing import Part
from s3mount.units import MIB

Work = Callable[[CrtWriter], Awaitable[None]]


def _stream(size: int, in_flight: int) -> Work:
    content = memoryview(os.urandom(DEFAULT_PART_SIZE))
    lengths = [*[DEFAULT_PART_SIZE] * (size // DEFAULT_PART_SIZE), size % DEFAULT_PART_SIZE]

    async def run(writer: CrtWriter) -> None:
        upload = await writer.create_upload("raw/stream")
        parts: list[Part] = []

        async def send(numbers: Iterator[tuple[int, int]]) -> None:
            parts.extend([await writer.upload_part(upload, number, [content[:length]]) for number, length in numbers])

        numbers = iter([(number, length) for number, length in enumerate(lengths, 1) if length])
        async with trio.open_nursery() as nursery:
            for _ in range(in_flight):
                nursery.start_soon(send, numbers)
        await writer.complete(upload, sorted(parts))

    return run


def _files(n: int, length: int, in_flight: int) -> Work:
    content = memoryview(os.urandom(length))

    async def run(writer: CrtWriter) -> None:
        async def send(names: Iterator[str]) -> None:
            for name in names:
                await writer.put(name, [content])

        names = iter([f"raw/{number:05d}" for number in range(n)])
        async with trio.open_nursery() as nursery:
            for _ in range(in_flight):
                nursery.start_soon(send, names)

    return run


async def _run(url: str, bucket: str, work: Work, in_flight: int, n_bytes: int) -> None:
    keep_memory(512 * MIB)
    s3 = S3Config(Location(bucket), endpoint_url=url, force_path_style=True)
    async with connect(s3, CrtConfig(connections=in_flight, part_size=DEFAULT_PART_SIZE, threads=2)) as connection:
        writer = CrtWriter(connection.reader.requests, connection.client, s3, WriteConfig())
        await writer.put("raw/probe", [memoryview(b"x")])
        before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        await work(writer)
        seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"seconds": seconds, "bytes": n_bytes, "cpu_s": cpu_s, "rss_mib": peak_rss_mib()}))


def main(how: str, url: str, bucket: str, *numbers: str) -> None:
    *sizes, in_flight = map(int, numbers)
    work = _stream(*sizes, in_flight) if how == "stream" else _files(*sizes, in_flight)
    n_bytes = sizes[0] if how == "stream" else sizes[0] * sizes[1]
    trio.run(_run, url, bucket, work, in_flight, n_bytes)


if __name__ == "__main__":
    main(*sys.argv[1:])
