"""The writing half of the fake bucket: it passes the same suite as the real ones.

Conditions, limits and ETags are S3's: an ETag is new with every write, also of a copy.  `FaultyWriter` wraps any writer
and loses what it is told to, before the write or after it.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, TypeVar

import trio

from s3mount.core.attrs import ObjectId, ObjectStat
from s3mount.core.ranges import ByteRange
from s3mount.core.uploads import MIN_PART
from s3mount.errors import (
    AlreadyExists,
    KeyTooLong,
    ObjectChanged,
    ObjectNotFound,
    ObjectTooLarge,
    StoreError,
    UploadNotFound,
)
from s3mount.store.writing import (
    ANYTHING,
    PLAIN,
    STORAGE_CLASS,
    TAGS,
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
)
from tests.support.fake_store import FakeStore

T = TypeVar("T")


def _class_of(found: ObjectStat) -> dict[str, str]:
    kept = found.kept_class
    return {STORAGE_CLASS: kept} if kept not in ("", "STANDARD") else {}


class FakeWriter:
    """Writes to a `FakeStore`.

    Args:
        latency_s: of every request, on trio's clock; the write is done at its end.

    Attributes:
        uploads: parts by number, of each upload under way.
    """

    def __init__(self, store: FakeStore, *, latency_s: float = 0.0) -> None:
        self.store = store
        self.latency_s = latency_s
        self.counts: Counter[str] = Counter()
        self.page = 1000
        self.uploads: dict[str, tuple[str, Attributes, dict[int, tuple[str, bytes]]]] = {}
        self._attributes: dict[ObjectId, Attributes] = {}
        self._ids = 0
        self.max_parts = 10_000
        self.parts_of: Counter[ObjectId] = Counter()

    async def _arrived(self, kind: str) -> None:
        self.counts[kind] += 1
        await trio.sleep(self.latency_s)

    def _write(self, key: str, content: bytes, condition: Condition, attributes: Attributes) -> Written:
        there = self.store.objects.get(key)
        if len(key.encode()) > 1024:
            raise KeyTooLong("too long", key=key)
        if condition.is_new and there is not None:
            raise AlreadyExists("there is one", key=key)
        if condition.etag and (there is None or there[0].etag != condition.etag):
            raise ObjectChanged("another version", key=key)
        wanted = self.store.put(key, content, storage_class=attributes.storage_class or "STANDARD")
        headers = {name: value for name, value in attributes.headers.items() if name != STORAGE_CLASS}
        self._attributes[wanted] = Attributes(headers, attributes.metadata)
        return Written(wanted, self.store.objects[key][0].mtime_s)

    def _content(self, source: ObjectId) -> tuple[ObjectStat, bytes]:
        found = self.store.objects.get(source.key)
        if found is None or (source.etag and found[0].etag != source.etag):
            raise ObjectChanged("another version", key=source.key)
        return found

    def _parts(self, upload: Upload) -> dict[int, tuple[str, bytes]]:
        key, _, parts = self.uploads.get(upload.upload_id, ("", PLAIN, {}))
        if key != upload.key:
            raise UploadNotFound("no such upload", key=upload.key)
        return parts

    async def put(
        self, key: str, body: Body, condition: Condition = ANYTHING, attributes: Attributes = PLAIN, offset: int = 0
    ) -> Written:
        await self._arrived("appends" if offset else "puts")
        if offset:
            return self._append(key, b"".join(body), condition, offset)
        return self._write(key, b"".join(body), condition, attributes)

    def _append(self, key: str, content: bytes, condition: Condition, offset: int) -> Written:
        """As a directory bucket does."""
        found, there = self._content(ObjectId(key, condition.etag))
        if len(there) != offset:
            raise ObjectChanged("another size", key=key)
        if self.parts_of[found.id] >= self.max_parts:
            raise ObjectTooLarge("too many parts", key=key)
        written = self._write(key, there + content, condition, self._attributes.get(found.id, PLAIN))
        self.parts_of[written.id] = self.parts_of[found.id] + 1
        return written

    async def move(self, source: ObjectStat, key: str, *, is_new: bool = False) -> ObjectStat:
        """As a directory bucket does (`Mover`)."""
        await self._arrived("renames")
        found, content = self._content(source.id)
        if is_new and key in self.store.objects:
            raise AlreadyExists("there is one", key=key)
        moved = found._replace(key=key)
        self.store.objects[key] = moved, content
        self.store.delete(source.key)
        self._attributes[moved.id] = self._attributes.get(found.id, PLAIN)
        return moved

    async def create_upload(self, key: str, attributes: Attributes = PLAIN) -> Upload:
        await self._arrived("calls")
        self._ids += 1
        self.uploads[f"upload-{self._ids:06}"] = (key, attributes, {})
        return Upload(key, f"upload-{self._ids:06}")

    async def upload_part(self, upload: Upload, number: int, body: Body) -> Part:
        await self._arrived("parts")
        return self._keep(upload, number, b"".join(body))

    async def copy_part(self, upload: Upload, number: int, source: ObjectId, span: ByteRange) -> Part:
        await self._arrived("copies")
        _, content = self._content(source)
        return self._keep(upload, number, content[span.start : span.stop])

    def _keep(self, upload: Upload, number: int, content: bytes) -> Part:
        parts = self._parts(upload)
        self._ids += 1
        parts[number] = (f'"part-{self._ids}"', content)
        return Part(number, parts[number][0], len(content))

    async def complete(self, upload: Upload, parts: Sequence[Part], condition: Condition = ANYTHING) -> Written:
        await self._arrived("calls")
        kept = self._parts(upload)
        if any(kept.get(part.number, ("", b""))[0] != part.etag for part in parts) or not parts:
            raise StoreError("InvalidPart", key=upload.key)
        if any(len(kept[part.number][1]) < MIN_PART for part in parts[:-1]):
            raise StoreError("EntityTooSmall", key=upload.key)
        content = b"".join(kept[part.number][1] for part in parts)
        written = self._write(upload.key, content, condition, self.uploads[upload.upload_id][1])
        del self.uploads[upload.upload_id]
        return written

    async def abort(self, upload: Upload) -> None:
        await self._arrived("calls")
        self.uploads.pop(upload.upload_id, None)

    async def list_uploads(self, prefix: str, after: Upload | None = None) -> UploadPage:
        await self._arrived("calls")
        found = sorted(Upload(key, name, "", 1) for name, (key, _, _) in self.uploads.items() if key.startswith(prefix))
        found = [each for each in found if after is None or each[:2] > after[:2]]
        page = tuple(found[: self.page])
        return UploadPage(page, page[-1] if len(found) > len(page) else None)

    async def list_parts(self, upload: Upload, after: int = 0) -> PartPage:
        await self._arrived("calls")
        kept = sorted(self._parts(upload).items())
        found = [Part(number, etag, len(content)) for number, (etag, content) in kept if number > after]
        page = tuple(found[: self.page])
        return PartPage(page, page[-1].number if len(found) > len(page) else None)

    async def copy(
        self, source: ObjectStat, key: str, condition: Condition = ANYTHING, attributes: Attributes | None = None
    ) -> Written:
        await self._arrived("copies")
        found, content = self._content(source.id)
        there = self._attributes.get(found.id, PLAIN)
        headers = dict(there.headers)
        if attributes is not None:
            headers = {**{name: value for name, value in headers.items() if name == TAGS}, **attributes.headers}
        metadata = (attributes or there).metadata
        return self._write(key, content, condition, Attributes({**_class_of(source), **headers}, metadata))

    async def describe(self, key: str, *, has_tags: bool = False) -> Description:
        await self._arrived("calls")
        if key not in self.store.objects:
            raise ObjectNotFound("no such key", key=key)
        found = self.store.objects[key][0]
        there = self._attributes.get(found.id, PLAIN)
        headers = {name: value for name, value in there.headers.items() if has_tags or name != TAGS}
        return Description(found, Attributes({**headers, **_class_of(found)}, there.metadata))

    async def delete(self, key: str, condition: Condition = ANYTHING) -> None:
        await self._arrived("deletes")
        if condition.etag:
            self._content(ObjectId(key, condition.etag))
        self.store.delete(key)

    async def delete_many(self, keys: Sequence[str]) -> dict[str, StoreError]:
        await self._arrived("deletes")
        for key in keys:
            self.store.delete(key)
        return {}


#: What a fault does to a call: the request is lost, or its answer is.
Loss = tuple[Literal["request", "answer"], StoreError]


class FaultyWriter:
    """Any writer, with faults: `fault` sees every call and may return what happens to it.

    Args:
        fault: gets (method, key, number of this call).
    """

    def __init__(self, writer: Writer, fault: Callable[[str, str, int], Loss | None]) -> None:
        self._writer = writer
        self._fault = fault
        self.calls = 0

    async def _pass(self, name: str, key: str, call: Callable[[], Awaitable[T]]) -> T:
        self.calls += 1
        loss = self._fault(name, key, self.calls)
        if loss is None:
            return await call()
        if loss[0] == "answer":
            await call()
        raise loss[1]

    async def put(
        self, key: str, body: Body, condition: Condition = ANYTHING, attributes: Attributes = PLAIN, offset: int = 0
    ) -> Written:
        name = "append" if offset else "put"
        return await self._pass(name, key, lambda: self._writer.put(key, body, condition, attributes, offset))

    async def upload_part(self, upload: Upload, number: int, body: Body) -> Part:
        return await self._pass("upload_part", upload.key, lambda: self._writer.upload_part(upload, number, body))

    async def create_upload(self, key: str, attributes: Attributes = PLAIN) -> Upload:
        return await self._pass("create_upload", key, lambda: self._writer.create_upload(key, attributes))

    async def copy_part(self, upload: Upload, number: int, source: ObjectId, span: ByteRange) -> Part:
        return await self._pass("copy_part", upload.key, lambda: self._writer.copy_part(upload, number, source, span))

    async def complete(self, upload: Upload, parts: Sequence[Part], condition: Condition = ANYTHING) -> Written:
        return await self._pass("complete", upload.key, lambda: self._writer.complete(upload, parts, condition))

    async def abort(self, upload: Upload) -> None:
        await self._pass("abort", upload.key, lambda: self._writer.abort(upload))

    async def list_uploads(self, prefix: str, after: Upload | None = None) -> UploadPage:
        return await self._pass("list_uploads", prefix, lambda: self._writer.list_uploads(prefix, after))

    async def list_parts(self, upload: Upload, after: int = 0) -> PartPage:
        return await self._pass("list_parts", upload.key, lambda: self._writer.list_parts(upload, after))

    async def copy(
        self, source: ObjectStat, key: str, condition: Condition = ANYTHING, attributes: Attributes | None = None
    ) -> Written:
        return await self._pass("copy", key, lambda: self._writer.copy(source, key, condition, attributes))

    async def describe(self, key: str, *, has_tags: bool = False) -> Description:
        return await self._pass("describe", key, lambda: self._writer.describe(key, has_tags=has_tags))

    async def delete(self, key: str, condition: Condition = ANYTHING) -> None:
        await self._pass("delete", key, lambda: self._writer.delete(key, condition))

    async def delete_many(self, keys: Sequence[str]) -> dict[str, StoreError]:
        return await self._pass("delete_many", keys[0], lambda: self._writer.delete_many(keys))
