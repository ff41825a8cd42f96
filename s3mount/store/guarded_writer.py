"""Wraps any writer: how many requests at once, for how long, and how many there were.

INVARIANT: as for `store.guarded`, nothing that changes the bucket leaves this process but through here.

The deadline of a request that moves bytes grows with them, here as in `store.patient_writer`: what is slower than
`SLOWEST` has stalled.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import trio

from s3mount.core.attrs import ObjectId, ObjectStat
from s3mount.core.ranges import ByteRange
from s3mount.errors import StoreError
from s3mount.store.attempts import Attempts
from s3mount.store.writing import (
    ANYTHING,
    PLAIN,
    Attributes,
    Body,
    Condition,
    Description,
    Part,
    PartPage,
    Upload,
    UploadPage,
    Writer,
    Written,
    size_of,
)
from s3mount.units import MIB

T = TypeVar("T")

#: Bytes in a second, of one request among many.
SLOWEST = 1 * MIB
#: Seconds for each part of an object that is put together.
_JOIN_S = 0.05


@dataclass(frozen=True)
class WriteGuardConfig:
    """Limits of one mount.

    Attributes:
        deadline_s: of one attempt, beside what its bytes take.
        max_puts: bodies on their way; as many parts are in memory.
        max_calls: of everything else.
    """

    deadline_s: float = 60.0
    max_puts: int = 64
    max_calls: int = 64


@dataclass(frozen=True)
class WriteStatistics:
    """Requests since the start, by kind, and bytes of content sent; `calls` are all others."""

    puts: int = 0
    parts: int = 0
    copies: int = 0
    deletes: int = 0
    renames: int = 0
    calls: int = 0
    bytes_written: int = 0
    failures: int = 0
    in_flight: int = 0

    @property
    def requests(self) -> int:
        """All requests together."""
        return self.puts + self.parts + self.copies + self.deletes + self.renames + self.calls


def extra_s(n_bytes: int) -> float:
    """Seconds that a request gets for its bytes."""
    return n_bytes / SLOWEST


def joining_s(parts: Sequence[Part]) -> float:
    """Seconds that S3 gets to put parts together."""
    return len(parts) * _JOIN_S


class GuardedWriter:
    """A `Writer` that is limited and counted.

    Args:
        bucket: for messages; an error that leaves here names bucket, key and operation.
    """

    def __init__(self, writer: Writer, config: WriteGuardConfig, *, bucket: str = "") -> None:
        self._writer = writer
        self._config = config
        self.attempts = Attempts(bucket, config.deadline_s)
        self._puts = trio.CapacityLimiter(config.max_puts)
        self._calls = trio.CapacityLimiter(config.max_calls)

    def through(self, writer: Writer) -> "GuardedWriter":
        """Another client of the same bucket, under the same limits and counters."""
        other = GuardedWriter(writer, self._config)
        other.attempts, other._puts, other._calls = self.attempts, self._puts, self._calls
        return other

    async def put(
        self, key: str, body: Body, condition: Condition = ANYTHING, attributes: Attributes = PLAIN, offset: int = 0
    ) -> Written:
        """See `Writer.put`."""
        n_bytes = size_of(body)

        async def ask() -> Written:
            self.attempts.counts["puts"] += 1
            written = await self._writer.put(key, body, condition, attributes, offset)
            self.attempts.counts["bytes_written"] += n_bytes
            return written

        return await self.attempts.run(self._puts, "PutObject", key, ask, extra_s=extra_s(n_bytes))

    async def upload_part(self, upload: Upload, number: int, body: Body) -> Part:
        """See `Writer.upload_part`."""
        n_bytes = size_of(body)

        async def ask() -> Part:
            self.attempts.counts["parts"] += 1
            part = await self._writer.upload_part(upload, number, body)
            self.attempts.counts["bytes_written"] += n_bytes
            return part

        return await self.attempts.run(self._puts, "UploadPart", upload.key, ask, extra_s=extra_s(n_bytes))

    async def create_upload(self, key: str, attributes: Attributes = PLAIN) -> Upload:
        """See `Writer.create_upload`."""
        ask = self._counted("calls", self._writer.create_upload, key, attributes)
        return await self.attempts.run(self._calls, "CreateMultipartUpload", key, ask)

    async def copy_part(self, upload: Upload, number: int, source: ObjectId, span: ByteRange) -> Part:
        """See `Writer.copy_part`."""
        ask = self._counted("copies", self._writer.copy_part, upload, number, source, span)
        return await self.attempts.run(self._calls, "UploadPartCopy", upload.key, ask, extra_s=extra_s(span.length))

    async def complete(self, upload: Upload, parts: Sequence[Part], condition: Condition = ANYTHING) -> Written:
        """See `Writer.complete`."""
        ask = self._counted("calls", self._writer.complete, upload, parts, condition)
        return await self.attempts.run(
            self._calls, "CompleteMultipartUpload", upload.key, ask, extra_s=joining_s(parts)
        )

    async def abort(self, upload: Upload) -> None:
        """See `Writer.abort`."""
        ask = self._counted("calls", self._writer.abort, upload)
        await self.attempts.run(self._calls, "AbortMultipartUpload", upload.key, ask)

    async def list_uploads(self, prefix: str, after: Upload | None = None) -> UploadPage:
        """See `Writer.list_uploads`."""
        ask = self._counted("calls", self._writer.list_uploads, prefix, after)
        return await self.attempts.run(self._calls, "ListMultipartUploads", prefix, ask)

    async def list_parts(self, upload: Upload, after: int = 0) -> PartPage:
        """See `Writer.list_parts`."""
        ask = self._counted("calls", self._writer.list_parts, upload, after)
        return await self.attempts.run(self._calls, "ListParts", upload.key, ask)

    async def copy(
        self, source: ObjectStat, key: str, condition: Condition = ANYTHING, attributes: Attributes | None = None
    ) -> Written:
        """See `Writer.copy`."""
        ask = self._counted("copies", self._writer.copy, source, key, condition, attributes)
        return await self.attempts.run(self._calls, "CopyObject", key, ask, extra_s=extra_s(source.size))

    async def describe(self, key: str, *, has_tags: bool = False) -> Description:
        """See `Writer.describe`; counted as one request, with tags too."""
        ask = self._counted("calls", partial(self._writer.describe, has_tags=has_tags), key)
        return await self.attempts.run(self._calls, "HeadObject", key, ask)

    async def delete(self, key: str, condition: Condition = ANYTHING) -> None:
        """See `Writer.delete`."""
        ask = self._counted("deletes", self._writer.delete, key, condition)
        await self.attempts.run(self._calls, "DeleteObject", key, ask)

    async def delete_many(self, keys: Sequence[str]) -> dict[str, StoreError]:
        """See `Writer.delete_many`."""
        ask = self._counted("deletes", self._writer.delete_many, keys)
        return await self.attempts.run(self._calls, "DeleteObjects", keys[0], ask)

    def _counted(self, kind: str, call: Callable[..., Awaitable[T]], *args: object) -> Callable[[], Awaitable[T]]:
        def ask() -> Awaitable[T]:
            self.attempts.counts[kind] += 1
            return call(*args)

        return ask

    def statistics(self) -> WriteStatistics:
        """A snapshot of the counters."""
        in_flight = self._puts.borrowed_tokens + self._calls.borrowed_tokens
        return WriteStatistics(**self.attempts.counts, in_flight=in_flight)

    def check_invariants(self) -> None:
        """Raises ValueError when more is in flight than the limits allow."""
        if self._puts.borrowed_tokens > self._config.max_puts:
            raise ValueError("more bodies in flight than allowed")
        if self._calls.borrowed_tokens > self._config.max_calls:
            raise ValueError("more calls in flight than allowed")
