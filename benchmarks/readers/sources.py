"""Where a reader gets its objects, by one line of text that a command line can carry.

    path:DIRECTORY                 a mount, or a local directory
    connector:URL,BUCKET           the S3 Connector for PyTorch
    fsspec:URL,BUCKET[,CA]         s3fs of fsspec

Each source is opened in the process that uses it: neither library's client survives a fork.
"""

import os
import threading
from collections.abc import Iterator
from typing import Any, BinaryIO, Protocol

_BLOCK = 1 << 20
_REGION = os.environ.get("AWS_REGION", "us-east-1")


class Source(Protocol):
    """Objects by key."""

    def read(self, key: str) -> int:
        """The whole of a small object, in one piece; returns its length."""

    def stream(self, key: str) -> Iterator[int]:
        """A large object from its start to its end, thrown away; yields lengths."""

    def open(self, key: str) -> BinaryIO:
        """For libraries that read from a stream."""

    def read_at(self, key: str, offset: int, length: int) -> bytes:
        """Some bytes of an object."""


class Files:
    """System calls, without Python's buffer."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._descriptors: dict[str, int] = {}

    def read(self, key: str) -> int:
        total = 0
        descriptor = os.open(f"{self._directory}/{key}", os.O_RDONLY)
        size = os.fstat(descriptor).st_size
        while total < size and (piece := os.read(descriptor, size - total)):
            total += len(piece)
        os.close(descriptor)
        return total

    def stream(self, key: str) -> Iterator[int]:
        buffer = bytearray(_BLOCK)
        with open(f"{self._directory}/{key}", "rb", buffering=0) as file:
            while n := file.readinto(buffer):
                yield n

    def open(self, key: str) -> BinaryIO:
        return open(f"{self._directory}/{key}", "rb")

    def read_at(self, key: str, offset: int, length: int) -> bytes:
        if key not in self._descriptors:
            self._descriptors[key] = os.open(f"{self._directory}/{key}", os.O_RDONLY)
        return os.pread(self._descriptors[key], length, offset)


class Connector:
    """The connector with default options, as its data sets use it."""

    def __init__(self, url: str, bucket: str) -> None:
        from s3torchconnector import S3ClientConfig, S3ReaderConstructor
        from s3torchconnector._s3client import S3Client

        self._client = S3Client(_REGION, endpoint=url, s3client_config=S3ClientConfig(force_path_style=True))
        _ = self._client._client  # made when it is first asked for
        self._bucket = bucket
        self._ranged = S3ReaderConstructor.range_based(buffer_size=0)
        self._readers: dict[tuple[str, int], Any] = {}

    def read(self, key: str) -> int:
        return len(self._client.get_object(self._bucket, key).read())

    def stream(self, key: str) -> Iterator[int]:
        # Its reader keeps all that was read; the stream below it does not, and is faster.
        yield from map(len, self._client.get_object(self._bucket, key)._get_stream())

    def open(self, key: str) -> BinaryIO:
        return self._client.get_object(self._bucket, key)

    def read_at(self, key: str, offset: int, length: int) -> bytes:
        mine = key, threading.get_ident()  # a reader has a position
        if mine not in self._readers:  # the first read asks for the object's size
            self._readers[mine] = self._client.get_object(self._bucket, key, reader_constructor=self._ranged)
        reader = self._readers[mine]
        reader.seek(offset)
        return reader.read(length)


class Fsspec:
    """s3fs with default options."""

    def __init__(self, url: str, bucket: str, ca: str | None = None) -> None:
        from s3fs import S3FileSystem

        self._files = S3FileSystem(
            key=os.environ["AWS_ACCESS_KEY_ID"], secret=os.environ["AWS_SECRET_ACCESS_KEY"], endpoint_url=url,
            client_kwargs={"region_name": _REGION, "verify": ca}, config_kwargs={"s3": {"addressing_style": "path"}},
            skip_instance_cache=True, use_listings_cache=False,
        )  # fmt: skip
        _ = self._files.s3  # made when it is first asked for
        self._bucket = bucket

    def read(self, key: str) -> int:
        return len(self._files.cat_file(f"{self._bucket}/{key}"))

    def stream(self, key: str) -> Iterator[int]:
        with self.open(key) as file:
            while piece := file.read(_BLOCK):
                yield len(piece)

    def open(self, key: str) -> BinaryIO:
        return self._files.open(f"{self._bucket}/{key}", "rb")

    def read_at(self, key: str, offset: int, length: int) -> bytes:
        return self._files.cat_file(f"{self._bucket}/{key}", start=offset, end=offset + length)


def open_source(text: str) -> Source:
    """The source that a line of text means."""
    kind, _, rest = text.partition(":")
    if kind == "path":
        return Files(rest)
    return {"connector": Connector, "fsspec": Fsspec}[kind](*rest.split(","))


def import_library(text: str) -> None:
    """Import a source's library, so that processes that are forked later share it."""
    kind = text.partition(":")[0]
    if kind == "connector":
        import s3torchconnector  # noqa: F401
    elif kind == "fsspec":
        import s3fs  # noqa: F401
