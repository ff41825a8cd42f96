"""The ceiling: the CRT client alone, no FUSE, content thrown away.

usage: python -m benchmarks.raw_crt URL BUCKET KEY SIZE [CA]     prints one JSON object
"""

import json
import resource
import sys
import time
from functools import partial
from urllib.parse import urlsplit

import trio

from s3mount.config import DEFAULT_PART_SIZE
from s3mount.core.attrs import ObjectId
from s3mount.core.location import Location
from s3mount.core.ranges import ByteRange, split
from s3mount.store.crt import CrtConfig, crt_reader
from s3mount.store.session import Endpoint, S3Config, S3Session

#: As many parts at once as a mount reads ahead, twice.
_IN_FLIGHT = 16


async def main(url: str, bucket: str, key: str, size: int, ca_bundle: str | None) -> None:
    s3 = S3Config(Location(bucket), endpoint_url=url, force_path_style=True, ca_bundle=ca_bundle)
    parts = urlsplit(url)
    endpoint = Endpoint(parts.scheme == "https", parts.netloc, f"/{bucket}/", "us-east-1")
    credentials = await S3Session(s3).credentials()
    async with crt_reader(endpoint, credentials, ca_bundle, s3, CrtConfig(128, DEFAULT_PART_SIZE, 2)) as reader:
        await reader.probe()
        limiter = trio.CapacityLimiter(_IN_FLIGHT)

        async def fetch(span: ByteRange) -> None:
            async with limiter:
                await reader.get_range(ObjectId(key, ""), span)

        before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        async with trio.open_nursery() as nursery:
            for span in split(ByteRange(0, size), DEFAULT_PART_SIZE):
                nursery.start_soon(fetch, span)
        elapsed, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"mb_per_s": size / elapsed / 1e6, "cpu_s_per_gb": cpu_s / (size / 1e9)}))


if __name__ == "__main__":
    trio.run(partial(main, sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), (sys.argv[5:] or [None])[0]))
