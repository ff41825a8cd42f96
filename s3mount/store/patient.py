"""Wraps any store: asks again what failed and may pass (`store.retries`).

The last attempt of a request may go to another store.  The CRT keeps S3's answer to itself when it
was a 500 or a 503, retries or not (measured); aiobotocore tells code, message and request id, which is
what the person on call needs then, and is proof that the trouble is not the client's.
"""

from functools import partial
from typing import Any

from s3mount.core.attrs import ObjectId, ObjectStat
from s3mount.core.listing import ListPage
from s3mount.core.ranges import ByteRange
from s3mount.core.waits import Arrival
from s3mount.store.base import MAX_PAGE, ObjectStore
from s3mount.store.retries import Retries, RetryStatistics


class PatientStore:
    """An `ObjectStore` that gives up late.

    Args:
        last: asked for the last attempt; `store` itself where there is no other.
    """

    def __init__(self, store: ObjectStore, retries: Retries, last: ObjectStore | None = None) -> None:
        self._store = store
        self._last = store if last is None else last
        self._retries = retries

    @property
    def is_ordered(self) -> bool:
        """See `Catalogue.is_ordered`."""
        return self._store.is_ordered

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
        paging: dict[str, Any] = {
            "delimiter": delimiter, "token": token, "max_keys": max_keys, "start_after": start_after
        }  # fmt: skip
        asks = partial(self._store.list_page, **paging), partial(self._last.list_page, **paging)
        return await self._retries.ask("ListObjectsV2", prefix, asks, prefix)

    async def head(self, key: str) -> ObjectStat:
        """See `Catalogue.head`."""
        return await self._retries.ask("HeadObject", key, (self._store.head, self._last.head), key)

    async def confirm(self, wanted: ObjectId) -> None:
        """See `RangeReader.confirm`."""
        await self._retries.ask("HeadObject", wanted.key, (self._store.confirm, self._last.confirm), wanted)

    async def get_range(self, wanted: ObjectId, span: ByteRange, arrival: Arrival | None = None) -> bytes:
        """See `RangeReader.get_range`; the arrival is that of the attempt that was answered."""
        asks = self._store.get_range, self._last.get_range
        return await self._retries.ask("GetObject", wanted.key, asks, wanted, span, arrival)

    def statistics(self) -> RetryStatistics:
        """A snapshot of the counters."""
        return self._retries.statistics()

    def check_invariants(self) -> None:
        """Raises ValueError when what is known of S3 is inconsistent."""
        self._retries.check_invariants()
