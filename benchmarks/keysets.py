"""Keys to list: directories of every shape that matters, and a fast way to store them.

A key set is a function of its arguments alone, in the order S3 lists it, so that a server in
another process (`many_keys`) makes the same one.
"""

import io
import random
from collections.abc import Iterable
from threading import BoundedSemaphore
from typing import Any
from urllib.parse import quote, urlsplit

from awscrt.auth import AwsCredentialsProvider
from awscrt.http import HttpHeaders, HttpRequest
from awscrt.io import ClientBootstrap, DefaultHostResolver, EventLoopGroup
from awscrt.s3 import S3Client, S3RequestTlsMode, S3RequestType, create_default_s3_signing_config

from tests.support.processes import KEY, REGION, SECRET

_CLASSES = ("cat", "dog", "frog", "horse", "ship", "truck", "zebra")
_IN_FLIGHT = 64


def padded(directory: str, n: int) -> list[str]:
    """Names of one length that count up: the keys differ at their ends only."""
    return [f"{directory}/{index:08d}.bin" for index in range(n)]


def hexadecimal(directory: str, n: int) -> list[str]:
    """Random 128-bit names: spread evenly from the first character on."""
    source = random.Random(1)
    return sorted(f"{directory}/{source.getrandbits(128):032x}.bin" for _ in range(n))


def classes(directory: str, n: int) -> list[str]:
    """class_number.ext with seven unequal classes and unpadded numbers: lumps, and lengths that differ."""
    source = random.Random(1)
    weights = range(1, len(_CLASSES) + 1)
    names = source.choices(_CLASSES, weights, k=n)
    return sorted(f"{directory}/{name}_{index}.jpg" for index, name in enumerate(names))


def tree(directory: str, n: int, n_directories: int) -> list[str]:
    """Equal directories, one below the other: as ImageFolder finds them."""
    each = n // n_directories
    return [f"{directory}/d{index:04d}/{number:06d}.bin" for index in range(n_directories) for number in range(each)]


def store(url: str, bucket: str, keys: Iterable[str], content: bytes = b"x") -> None:
    """The same small object under each key, by the CRT: as fast as the server takes them.

    Raises:
        RuntimeError: a PUT failed.
    """
    loops = EventLoopGroup(1)
    provider = AwsCredentialsProvider.new_static(KEY, SECRET)
    client = S3Client(
        bootstrap=ClientBootstrap(loops, DefaultHostResolver(loops)),
        region=REGION,
        tls_mode=S3RequestTlsMode.DISABLED,
        signing_config=create_default_s3_signing_config(region=REGION, credential_provider=provider),
        throughput_target_gbps=_IN_FLIGHT / 2.5,
    )
    slots = BoundedSemaphore(_IN_FLIGHT)
    failures: list[Any] = []

    def done(error: Any = None, **_: Any) -> None:
        if error is not None:
            failures.append(error)
        slots.release()

    headers = [("Host", urlsplit(url).netloc), ("Content-Length", str(len(content)))]
    for key in keys:
        slots.acquire()
        path = f"/{bucket}/{quote(key)}"
        request = HttpRequest("PUT", path, HttpHeaders(headers), io.BytesIO(content))
        client.make_request(type=S3RequestType.DEFAULT, operation_name="PutObject", request=request, on_done=done)
    for _ in range(_IN_FLIGHT):
        slots.acquire()
    if failures:
        raise RuntimeError(f"{len(failures)} objects could not be stored; the first: {failures[0]}")
