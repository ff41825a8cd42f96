"""Wraps any store: how many requests at once, for how long, and how many there were.

INVARIANT: no request to S3 leaves this process but through here, so each has a deadline, and
the counters are the truth that tests and statistics state.

Nothing is repeated here: `store.retries` does that, above this line, so that each attempt is
limited and counted.
"""

import copy
import math
from dataclasses import dataclass

import trio

from s3mount.core.attrs import ObjectId, ObjectStat
from s3mount.core.listing import ListPage
from s3mount.core.ranges import ByteRange
from s3mount.core.waits import Arrival
from s3mount.store.attempts import Attempts
from s3mount.store.base import MAX_PAGE, Catalogue, RangeReader


@dataclass(frozen=True)
class GuardConfig:
    """Limits of one mount.

    Attributes:
        deadline_s: total time of one attempt, the wait for its place included.
        max_gets: GETs in flight; the CRT is told to open as many connections.
        max_lists: LIST and HEAD in flight; each page costs tens of milliseconds of parsing, so
            more would only delay the others.
    """

    deadline_s: float = 60.0
    max_gets: int = 128
    max_lists: int = 64


@dataclass(frozen=True)
class StoreStatistics:
    """Requests since the start, by kind, and bytes of content received."""

    lists: int = 0
    heads: int = 0
    gets: int = 0
    bytes_read: int = 0
    failures: int = 0
    in_flight: int = 0

    @property
    def requests(self) -> int:
        """All requests together."""
        return self.lists + self.heads + self.gets


class GuardedStore:
    """An `ObjectStore` out of a catalogue and a range reader, limited and counted.

    Args:
        bucket: for messages; an error that leaves here names bucket, key and operation.

    Attributes:
        attempts: what is in flight, and how long it took.
    """

    def __init__(self, catalogue: Catalogue, reader: RangeReader, config: GuardConfig, *, bucket: str = "") -> None:
        self.attempts = Attempts(bucket, config.deadline_s)
        self._catalogue = catalogue
        self._reader = reader
        self._config = config
        self._gets = trio.CapacityLimiter(config.max_gets)
        self._lists = trio.CapacityLimiter(config.max_lists)
        self._counts = self.attempts.counts

    def through(self, catalogue: Catalogue, reader: RangeReader) -> "GuardedStore":
        """Other clients of the same bucket, under the same limits and counters."""
        other = copy.copy(self)
        other._catalogue, other._reader = catalogue, reader
        return other

    @property
    def is_ordered(self) -> bool:
        """See `Catalogue.is_ordered`."""
        return self._catalogue.is_ordered

    async def list_page(
        self,
        prefix: str,
        *,
        delimiter: str = "/",
        token: str | None = None,
        max_keys: int = MAX_PAGE,
        start_after: str = "",
    ) -> ListPage:
        """See `Catalogue.list_page`."""

        async def ask() -> ListPage:
            self._counts["lists"] += 1
            return await self._catalogue.list_page(
                prefix, delimiter=delimiter, token=token, max_keys=max_keys, start_after=start_after
            )

        return await self.attempts.run(self._lists, "ListObjectsV2", prefix, ask)

    async def head(self, key: str) -> ObjectStat:
        """See `Catalogue.head`."""

        async def ask() -> ObjectStat:
            self._counts["heads"] += 1
            return await self._catalogue.head(key)

        return await self.attempts.run(self._lists, "HeadObject", key, ask)

    async def confirm(self, wanted: ObjectId) -> None:
        """See `RangeReader.confirm`."""

        async def ask() -> None:
            self._counts["heads"] += 1
            await self._reader.confirm(wanted)

        await self.attempts.run(self._lists, "HeadObject", wanted.key, ask)

    async def get_range(
        self,
        wanted: ObjectId,
        span: ByteRange,
        arrival: Arrival | None = None,
        scope: trio.CancelScope | None = None,
    ) -> bytes:
        """See `RangeReader.get_range`.

        Args:
            scope: a new one that bounds the request: who cancels it gets StoreTimeout, and no failure is counted.
        """
        arrival = arrival or Arrival(math.inf)
        arrival.sent_at = math.inf

        async def ask() -> bytes:
            arrival.sent_at = trio.current_time()
            self._counts["gets"] += 1
            content = await self._reader.get_range(wanted, span, arrival)
            self._counts["bytes_read"] += len(content)
            return content

        return await self.attempts.run(self._gets, "GetObject", wanted.key, ask, scope)

    def statistics(self) -> StoreStatistics:
        """A snapshot of the counters."""
        return StoreStatistics(**self._counts, in_flight=self._gets.borrowed_tokens + self._lists.borrowed_tokens)

    def check_invariants(self) -> None:
        """Raises ValueError when more is in flight than the limits allow."""
        if self._gets.borrowed_tokens > self._config.max_gets:
            raise ValueError("more GETs in flight than allowed")
        if self._lists.borrowed_tokens > self._config.max_lists:
            raise ValueError("more LISTs in flight than allowed")
