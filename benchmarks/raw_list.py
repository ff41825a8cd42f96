"""The yardstick of listing: the CRT client alone, page after page, no FUSE, entries thrown away.

usage: python -m benchmarks.raw_list URL BUCKET PREFIX     prints one JSON object
"""

import json
import resource
import sys
import time
from urllib.parse import urlsplit

import trio

from s3mount.config import DEFAULT_PART_SIZE
from s3mount.core.location import Location
from s3mount.store.crt import CrtConfig, crt_reader
from s3mount.store.session import Endpoint, S3Config, S3Session


async def main(url: str, bucket: str, prefix: str) -> None:
    s3 = S3Config(Location(bucket), endpoint_url=url, force_path_style=True)
    endpoint = Endpoint(is_tls=False, host=urlsplit(url).netloc, base_path=f"/{bucket}/", region="us-east-1")
    credentials = await S3Session(s3).credentials()
    async with crt_reader(endpoint, credentials, None, s3, CrtConfig(128, DEFAULT_PART_SIZE, 2)) as reader:
        await reader.probe()
        pages = keys = 0
        token: str | None = None
        before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        while pages == 0 or token is not None:
            page = await reader.list_page(prefix, token=token)
            token = page.next_token
            pages += 1
            keys += len(page.objects) + len(page.prefixes)
        elapsed, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"seconds": elapsed, "pages": pages, "keys": keys, "cpu_ms_per_page": cpu_s / pages * 1000}))


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2], sys.argv[3])
