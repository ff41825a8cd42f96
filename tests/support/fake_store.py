"""An object store in memory that passes the same conformance suite as the real ones.

Versioned by ETag, paged, counted.  `FaultyStore` wraps any store and breaks what it is told to.
"""

import hashlib
from collections import Counter
from collections.abc import Callable

import trio

from s3mount.core.attrs import ObjectId, ObjectStat
from s3mount.core.listing import ListPage
from s3mount.core.ranges import ByteRange
from s3mount.core.waits import Arrival
from s3mount.errors import ObjectChanged, ObjectNotFound, StoreError, StoreFailure
from s3mount.store.base import MAX_PAGE


class FakeStore:
    """A bucket.  `put` and `delete` are what another client does.

    Args:
        is_ordered: False lists in a scrambled order, as S3 Express does.
        latency_s: of every request, on trio's clock.
        keeps_directories: as SeaweedFS does: what a key is in is a directory, listed until its marker is deleted and
            nothing is in it then.

    Attributes:
        late_s: what a LIST answers is of when it was asked, and comes so many seconds later.
    """

    def __init__(self, *, is_ordered: bool = True, latency_s: float = 0.0, keeps_directories: bool = False) -> None:
        self.objects: dict[str, tuple[ObjectStat, bytes]] = {}
        self.counts: Counter[str] = Counter()
        self.latency_s = latency_s
        self.late_s = 0.0
        self.max_page = MAX_PAGE
        self._is_ordered = is_ordered
        self._version = 0
        self._keeps_directories = keeps_directories
        self._directories: set[str] = set()

    @property
    def is_ordered(self) -> bool:
        return self._is_ordered

    def put(self, key: str, content: bytes, *, storage_class: str = "STANDARD", mtime_s: int | None = None) -> ObjectId:
        self._version += 1
        etag = '"' + hashlib.md5(content + str(self._version).encode()).hexdigest() + '"'
        found = ObjectStat(key, etag, len(content), mtime_s or 1_700_000_000 + self._version, storage_class)
        self.objects[key] = (found, content)
        if self._keeps_directories:
            self._directories.update(key[: at + 1] for at, char in enumerate(key) if char == "/")
        return found.id

    def delete(self, key: str) -> None:
        self.objects.pop(key, None)
        if not any(each != key and each.startswith(key) for each in (*self.objects, *self._directories)):
            self._directories.discard(key)

    async def list_page(
        self,
        prefix: str,
        *,
        delimiter: str = "/",
        token: str | None = None,
        max_keys: int = MAX_PAGE,
        start_after: str = "",
    ) -> ListPage:
        self.counts["lists"] += 1
        await trio.sleep(self.latency_s)
        if start_after and not self._is_ordered:
            raise StoreFailure("StartAfter is not implemented", key=prefix, operation="ListObjectsV2")
        items = self._items(prefix, delimiter, start_after if token is None else "")
        if token is not None:
            items = [item for item in items if self._rank(item) > self._rank(token)]
        limit = min(max_keys, self.max_page)
        page, rest = items[:limit], items[limit:]
        prefixes = tuple(item for item in page if self._is_common(item, prefix, delimiter))
        objects = tuple(self.objects[item][0] for item in page if item not in prefixes)
        await trio.sleep(self.late_s)
        return ListPage(objects, prefixes, page[-1] if rest else None)

    def _items(self, prefix: str, delimiter: str, start_after: str) -> list[str]:
        """Keys, and common prefixes in the place of what they stand for, in the order of the listing."""
        items = set()
        for key in (*self.objects, *(self._directories if delimiter else ())):
            if key.startswith(prefix) and (not start_after or self._rank(key) > self._rank(start_after)):
                rest = key[len(prefix) :]
                head, separator, _ = rest.partition(delimiter) if delimiter else (rest, "", "")
                items.add(prefix + head + separator)
        return sorted(items, key=self._rank)

    def _is_common(self, item: str, prefix: str, delimiter: str) -> bool:
        return bool(delimiter) and delimiter in item[len(prefix) :]

    def _rank(self, item: str) -> bytes:
        raw = item.encode("utf-8", "surrogatepass")
        return raw if self._is_ordered else hashlib.md5(raw).digest()

    async def head(self, key: str) -> ObjectStat:
        self.counts["heads"] += 1
        await trio.sleep(self.latency_s)
        if key not in self.objects:
            raise ObjectNotFound("no such key", key=key, operation="HeadObject")
        return self.objects[key][0]

    async def confirm(self, wanted: ObjectId) -> None:
        self.counts["heads"] += 1
        await trio.sleep(self.latency_s)
        self._content_of(wanted, "HeadObject")

    async def get_range(self, wanted: ObjectId, span: ByteRange, arrival: Arrival | None = None) -> bytes:
        self.counts["gets"] += 1
        await trio.sleep(self.latency_s)
        content = self._content_of(wanted, "GetObject")
        if span.start >= len(content):
            raise ObjectChanged("no byte of that range", key=wanted.key, operation="GetObject")
        if span.stop > len(content):
            raise StoreFailure("fewer bytes than asked for", key=wanted.key, operation="GetObject")
        if arrival is not None:
            arrival.first_byte_at = arrival.last_byte_at = trio.current_time()
        self.counts["bytes"] += span.length
        return content[span.start : span.stop]

    def _content_of(self, wanted: ObjectId, operation: str) -> bytes:
        found, content = self.objects.get(wanted.key, (None, b""))
        if found is None or (wanted.etag and found.etag != wanted.etag):
            raise ObjectChanged("another version", key=wanted.key, operation=operation)
        return content


class FaultyStore:
    """Any store, with faults: `fault` sees every call and may return what to raise.

    Args:
        fault: gets (operation, key, number of this call); returns an exception or None.
    """

    def __init__(self, store: FakeStore, fault: Callable[[str, str, int], StoreError | None]) -> None:
        self._store = store
        self._fault = fault
        self.calls = 0

    @property
    def is_ordered(self) -> bool:
        return self._store.is_ordered

    def _maybe_fail(self, operation: str, key: str) -> None:
        self.calls += 1
        error = self._fault(operation, key, self.calls)
        if error is not None:
            raise error

    async def list_page(
        self,
        prefix: str,
        *,
        delimiter: str = "/",
        token: str | None = None,
        max_keys: int = MAX_PAGE,
        start_after: str = "",
    ) -> ListPage:
        self._maybe_fail("list", prefix)
        return await self._store.list_page(
            prefix, delimiter=delimiter, token=token, max_keys=max_keys, start_after=start_after
        )

    async def head(self, key: str) -> ObjectStat:
        self._maybe_fail("head", key)
        return await self._store.head(key)

    async def confirm(self, wanted: ObjectId) -> None:
        self._maybe_fail("head", wanted.key)
        await self._store.confirm(wanted)

    async def get_range(self, wanted: ObjectId, span: ByteRange, arrival: Arrival | None = None) -> bytes:
        self._maybe_fail("get", wanted.key)
        return await self._store.get_range(wanted, span, arrival)
