"""What is in the bucket of `tests.support.directory_bucket`: objects, uploads, and the rules for changing them."""

import hashlib
import secrets
import threading
import time
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from awscrt import checksums

_CRCS = {"crc32c": (checksums.crc32c, 4), "crc64nvme": (checksums.crc64nvme, 8), "crc32": (checksums.crc32, 4)}
_MIN_PART = 5 * 2**20


class Refusal(Exception):
    """What S3 answers instead."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status = status
        self.code = code


@dataclass(frozen=True)
class Stored:
    """An object.

    Attributes:
        metadata: as headers.
        parts: that it was made of, appends included.
        algorithm: of its checksum; empty for none.
    """

    content: bytes
    metadata: Mapping[str, str] = field(default_factory=dict)
    parts: int = 1
    algorithm: str = ""
    etag: str = field(default_factory=lambda: f'"{secrets.token_hex(16)}"')
    mtime_s: int = field(default_factory=lambda: int(time.time()))

    @property
    def own_checksum(self) -> str:
        return checksum(self.algorithm, self.content)


@dataclass
class Uploading:
    """A multipart upload: what its object will have, and parts by number."""

    key: str
    metadata: Mapping[str, str]
    algorithm: str
    parts: dict[int, tuple[str, bytes]] = field(default_factory=dict)
    began_s: int = field(default_factory=lambda: int(time.time()))


def checksum(algorithm: str, content: bytes) -> str:
    crc, size = _CRCS[algorithm]
    return b64encode(crc(content).to_bytes(size, "big")).decode()


def _metadata(headers: Mapping[str, str]) -> dict[str, str]:
    """What an object is given to keep, as headers."""
    kept = ("content-type", "cache-control", "content-disposition", "content-encoding", "content-language")
    return {name: value for name, value in headers.items() if name in kept or name.startswith("x-amz-meta-")}


def _verified(headers: Mapping[str, str], content: bytes) -> str:
    """The algorithm of a body's checksum, which is right."""
    algorithm = next((name for name in _CRCS if f"x-amz-checksum-{name}" in headers), "")
    if algorithm and headers[f"x-amz-checksum-{algorithm}"] != checksum(algorithm, content):
        raise Refusal(400, "BadDigest")
    return algorithm


class DirectoryObjects:
    """All of it.

    Attributes:
        lock: hold it for a request.
        max_parts: of one object.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.stored: dict[str, Stored] = {}
        self.uploads: dict[str, Uploading] = {}
        self.max_parts = 10_000
        self._renamed: dict[str, tuple[str, str]] = {}

    def get(self, key: str) -> Stored:
        if key not in self.stored:
            raise Refusal(404, "NoSuchKey")
        return self.stored[key]

    def listed(self, prefix: str, delimiter: str, token: str, limit: int) -> tuple[list[str], str]:
        """Keys and common prefixes in an order that says nothing, and the token of the next page."""
        items = set()
        for key in [*self.stored, *(upload.key for upload in self.uploads.values() if delimiter)]:
            if key.startswith(prefix):
                head, separator, _ = (
                    key[len(prefix) :].partition(delimiter) if delimiter else (key[len(prefix) :], "", "")
                )
                if separator or key in self.stored:
                    items.add(prefix + head + separator)
        ranks = sorted((hashlib.md5(item.encode()).hexdigest(), item) for item in items)
        left = [(rank, item) for rank, item in ranks if rank > token]
        page = left[:limit]
        return [item for _, item in page], page[-1][0] if len(left) > len(page) else ""

    def _check(self, key: str, headers: Mapping[str, str]) -> None:
        """The conditions of a write."""
        if len(key.encode()) > 1024:
            raise Refusal(400, "KeyTooLongError")
        there = self.stored.get(key)
        if headers.get("if-none-match") == "*" and there is not None:
            raise Refusal(412, "PreconditionFailed")
        if "if-match" in headers and there is None:
            raise Refusal(404, "NoSuchKey")
        if "if-match" in headers and there is not None and there.etag != headers["if-match"]:
            raise Refusal(412, "PreconditionFailed")

    def put(self, key: str, content: bytes, headers: Mapping[str, str]) -> Stored:
        self._check(key, headers)
        self.stored[key] = Stored(content, _metadata(headers), 1, _verified(headers, content))
        return self.stored[key]

    def append(self, key: str, content: bytes, headers: Mapping[str, str]) -> Stored:
        self._check(key, headers)
        offset, there = int(headers["x-amz-write-offset-bytes"]), self.stored.get(key)
        if offset != (0 if there is None else len(there.content)):
            raise Refusal(400, "InvalidWriteOffset")
        if there is None:
            return self.put(key, content, headers)
        algorithm = _verified(headers, content)
        if algorithm and there.algorithm and algorithm != there.algorithm:
            raise Refusal(400, "InvalidRequest")
        if there.parts >= self.max_parts:
            raise Refusal(400, "TooManyParts")
        kept = {"metadata": there.metadata, "algorithm": there.algorithm, "parts": there.parts + 1}
        self.stored[key] = Stored(there.content + content, **kept)  # type: ignore[arg-type]
        return self.stored[key]

    def copy(self, source: Stored, key: str, headers: Mapping[str, str]) -> Stored:
        self._check(key, headers)
        is_kept = headers.get("x-amz-metadata-directive", "COPY") == "COPY"
        metadata = source.metadata if is_kept else _metadata(headers)
        self.stored[key] = Stored(source.content, metadata, 1, source.algorithm)
        return self.stored[key]

    def rename(self, source: str, key: str, etag: str, *, token: str, is_new: bool) -> None:
        if token in self._renamed:
            if self._renamed[token] != (source, key):
                raise Refusal(400, "IdempotentParameterMismatch")
            return
        if source.endswith("/") or key.endswith("/"):
            raise Refusal(400, "InvalidRequest")
        there = self.get(source)
        if (etag and there.etag != etag) or (is_new and key in self.stored):
            raise Refusal(412, "PreconditionFailed")
        self.stored[key] = self.stored.pop(source)
        self._renamed[token] = source, key

    def delete(self, key: str, headers: Mapping[str, str] | None = None) -> None:
        self._check(key, headers or {})
        self.stored.pop(key, None)

    # -- uploads in parts -----------------------------------------------------------------------

    def begin(self, key: str, headers: Mapping[str, str]) -> str:
        upload_id = secrets.token_hex(8)
        algorithm = headers.get("x-amz-checksum-algorithm", "").lower()
        self.uploads[upload_id] = Uploading(key, _metadata(headers), algorithm)
        return upload_id

    def parts(self, key: str, query: Mapping[str, str]) -> dict[int, tuple[str, bytes]]:
        upload = self.uploads.get(query["uploadId"])
        if upload is None or upload.key != key:
            raise Refusal(404, "NoSuchUpload")
        return upload.parts

    def keep_part(self, key: str, query: Mapping[str, str], content: bytes, headers: Mapping[str, str]) -> str:
        _verified(headers, content)
        etag = f'"{secrets.token_hex(16)}"'
        self.parts(key, query)[int(query["partNumber"])] = etag, content
        return etag

    def complete(
        self, key: str, query: Mapping[str, str], named: Sequence[tuple[int, str]], headers: Mapping[str, str]
    ) -> Stored:
        parts = self.parts(key, query)
        if not named or any(parts.get(number, ("", b""))[0] != etag for number, etag in named):
            raise Refusal(400, "InvalidPart")
        if [number for number, _ in named] != list(range(1, len(named) + 1)):
            raise Refusal(400, "InvalidPartOrder")
        if any(len(parts[number][1]) < _MIN_PART for number, _ in named[:-1]):
            raise Refusal(400, "EntityTooSmall")
        self._check(key, headers)
        upload = self.uploads.pop(query["uploadId"])
        content = b"".join(parts[number][1] for number, _ in named)
        self.stored[key] = replace(
            Stored(content), metadata=upload.metadata, parts=len(named), algorithm=upload.algorithm
        )
        return self.stored[key]
