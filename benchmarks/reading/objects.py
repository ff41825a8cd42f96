"""What is in the bucket: random bytes, one piece of them repeated, or files that were made elsewhere.

S3 does not compress, and what takes time is to store 15 GiB: nothing is made twice.
"""

import io
import os
import random
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

from boto3.s3.transfer import TransferConfig

from benchmarks import keysets
from s3mount.units import MIB
from tests.support.servers import Server

_PIECE = 64 * MIB
_PARTS = TransferConfig(multipart_chunksize=16 * MIB, max_concurrency=4)


class Repeated(io.RawIOBase):
    """`size` bytes: a piece, over and over."""

    def __init__(self, piece: bytes, size: int) -> None:
        self._piece, self._size, self._at = piece, size, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        start = self._at % len(self._piece)
        n = min(len(buffer), self._size - self._at, len(self._piece) - start)
        buffer[:n] = memoryview(self._piece)[start : start + n]
        self._at += n
        return n


class Objects:
    """The objects of one bucket; one that is there stays."""

    def __init__(self, server: Server, bucket: str, work: Path) -> None:
        self._server, self._bucket, self._work = server, bucket, work
        self._sizes: dict[str, int] = {}

    @cached_property
    def piece(self) -> bytes:
        """What large objects consist of."""
        return random.Random(1).randbytes(_PIECE)

    @cached_property
    def piece_file(self) -> Path:
        """The same as a local file."""
        path = self._work / "piece"
        path.write_bytes(self.piece)
        return path

    def put(self, key: str, size: int) -> str:
        """A large object; returns its key."""
        if key not in self._sizes:
            body = io.BufferedReader(Repeated(self.piece, size), MIB)
            self._server.client.upload_fileobj(body, self._bucket, key, Config=_PARTS)
            self._sizes[key] = size
        return key

    def put_file(self, key: str, path: Path) -> str:
        """An object with the content of a local file; returns its key."""
        self._server.client.upload_file(str(path), self._bucket, key, Config=_PARTS)
        return key

    def put_many(self, keys: list[str], size: int) -> Path:
        """Small objects of the same content; returns a file of their keys, one a line."""
        manifest = self._work / keys[0].replace("/", "-")
        if not manifest.exists():
            keysets.store(self._server.url, self._bucket, keys, self.piece[:size])
            manifest.write_text("\n".join(keys), encoding="ascii")
        return manifest

    def copy(self, directory: Path, keys: list[str], size: int) -> Path:
        """Local files of the same content, on the disk and not in memory; returns the directory."""

        def write(key: str) -> None:
            path = directory / key
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file, Repeated(self.piece, size) as source:
                while block := source.read(MIB):
                    file.write(block)
                file.flush()
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

        with ThreadPoolExecutor(16) as pool:  # each waits for the disk
            list(pool.map(write, keys))
        return directory
