"""Wraps any writer: asks again what failed and may pass, and knows its own writes.

What is repeated may have been done before its answer was lost, and then looks refused: the key is taken, the version to
be replaced is gone, the upload is not there.  So every object that is made here carries a token of its own in its
metadata (docs/decisions/0034-a-write-is-known-by-its-token.md).  After such a refusal of a repeated request one HEAD
tells: the object has our token, so it was us.  S3 keeps the token when it copies an object, so a copy has that of its
source.

    request                          repeated          a refusal after a lost answer
    -------------------------------  ----------------  -------------------------------------------
    part, part copied, abort, lists  as it is          stands
    put, copy, without a condition   as it is          stands
    put with a condition             as it is          success, if the object has our token
    copy with a condition            as it is          success, if the object has the source's token
    complete                         as it is          success, if the object has the upload's token
    create_upload                    leaves another    stands
    deletion of many                 those that failed stands
    append                           as it is          stands, marked as doubtful

An answer that never came may still be followed by the write; who gives up after StoreTimeout does not know.
"""

import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from s3mount.core.attrs import ObjectId, ObjectStat
from s3mount.core.ranges import ByteRange
from s3mount.errors import AlreadyExists, ObjectChanged, ObjectNotFound, StoreError, UploadNotFound
from s3mount.store.guarded_writer import extra_s, joining_s
from s3mount.store.retries import Retries, may_pass
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

T = TypeVar("T")

#: Of the user's metadata.
TOKEN = "s3mount-write"


class PatientWriter:
    """A `Writer` that gives up late.

    Args:
        last: asked for the last attempt; `writer` itself where there is no other.
    """

    def __init__(self, writer: Writer, retries: Retries, last: Writer | None = None) -> None:
        self._writer = writer
        self._last = writer if last is None else last
        self._retries = retries

    async def put(
        self, key: str, body: Body, condition: Condition = ANYTHING, attributes: Attributes = PLAIN, offset: int = 0
    ) -> Written:
        """See `Writer.put`."""
        token = secrets.token_hex(8)
        marked = PLAIN if offset else attributes.with_metadata(TOKEN, token)
        doubt = _Doubt()
        try:
            return await self._ask(
                "PutObject", key, lambda to: doubt.noted(to.put(key, body, condition, marked, offset)), size_of(body)
            )
        except (AlreadyExists, ObjectChanged) as refusal:
            if offset and isinstance(refusal, ObjectChanged):
                refusal.is_in_doubt = doubt.is_there
                raise
            return await self._own(key, token, refusal, doubt)

    async def upload_part(self, upload: Upload, number: int, body: Body) -> Part:
        """See `Writer.upload_part`."""
        return await self._ask("UploadPart", upload.key, lambda to: to.upload_part(upload, number, body), size_of(body))

    async def create_upload(self, key: str, attributes: Attributes = PLAIN) -> Upload:
        """See `Writer.create_upload`."""
        token = secrets.token_hex(8)
        marked = attributes.with_metadata(TOKEN, token)
        upload = await self._ask("CreateMultipartUpload", key, lambda to: to.create_upload(key, marked))
        return upload._replace(token=token)

    async def copy_part(self, upload: Upload, number: int, source: ObjectId, span: ByteRange) -> Part:
        """See `Writer.copy_part`."""
        return await self._ask(
            "UploadPartCopy", upload.key, lambda to: to.copy_part(upload, number, source, span), span.length
        )

    async def complete(self, upload: Upload, parts: Sequence[Part], condition: Condition = ANYTHING) -> Written:
        """See `Writer.complete`."""
        doubt = _Doubt()
        try:
            return await self._ask(
                "CompleteMultipartUpload",
                upload.key,
                lambda to: doubt.noted(to.complete(upload, parts, condition)),
                more_s=joining_s(parts),
            )
        except (AlreadyExists, ObjectChanged, UploadNotFound) as refusal:
            return await self._own(upload.key, upload.token, refusal, doubt)

    async def abort(self, upload: Upload) -> None:
        """See `Writer.abort`."""
        await self._ask("AbortMultipartUpload", upload.key, lambda to: to.abort(upload))

    async def list_uploads(self, prefix: str, after: Upload | None = None) -> UploadPage:
        """See `Writer.list_uploads`."""
        return await self._ask("ListMultipartUploads", prefix, lambda to: to.list_uploads(prefix, after))

    async def list_parts(self, upload: Upload, after: int = 0) -> PartPage:
        """See `Writer.list_parts`."""
        return await self._ask("ListParts", upload.key, lambda to: to.list_parts(upload, after))

    async def copy(
        self, source: ObjectStat, key: str, condition: Condition = ANYTHING, attributes: Attributes | None = None
    ) -> Written:
        """See `Writer.copy`."""
        token = secrets.token_hex(8)
        marked = None if attributes is None else attributes.with_metadata(TOKEN, token)
        doubt = _Doubt()
        try:
            return await self._ask(
                "CopyObject", key, lambda to: doubt.noted(to.copy(source, key, condition, marked)), source.size
            )
        except (AlreadyExists, ObjectChanged) as refusal:
            if isinstance(refusal, AlreadyExists) and not await self._is_there(key):
                message = "the object to be copied was replaced"  # S3 says the same of either condition
                raise ObjectChanged(message, key=source.key, operation="CopyObject") from refusal
            if marked is None:
                token = await self._token_of(source, doubt)
            return await self._own(key, token, refusal, doubt)

    async def describe(self, key: str, *, has_tags: bool = False) -> Description:
        """See `Writer.describe`."""
        return await self._ask("HeadObject", key, lambda to: to.describe(key, has_tags=has_tags))

    async def delete(self, key: str, condition: Condition = ANYTHING) -> None:
        """See `Writer.delete`; with a condition also ObjectChanged where an attempt without an answer did it."""
        await self._ask("DeleteObject", key, lambda to: to.delete(key, condition))

    async def delete_many(self, keys: Sequence[str]) -> dict[str, StoreError]:
        """See `Writer.delete_many`.

        Keys that failed and may pass are asked again alone; those that XML may not hold are deleted one by one.
        """
        left = [key for key in keys if key.isprintable()]
        refused: dict[str, StoreError] = {}

        async def ask(to: Writer) -> None:
            nonlocal left
            found = await to.delete_many(left)
            for key in left:
                refused.pop(key, None)
            refused.update(found)
            left = [key for key, error in found.items() if may_pass(error)]
            if left:
                raise found[left[0]]

        try:
            if left:
                await self._ask("DeleteObjects", left[0], ask)
        except StoreError:
            if not refused:
                raise
        for key in keys:
            if not key.isprintable():
                try:
                    await self.delete(key)
                except StoreError as error:
                    refused[key] = error
        return refused

    # -- what requests have in common -------------------------------------------------------

    async def _ask(
        self, operation: str, key: str, ask: Callable[[Writer], Awaitable[T]], n_bytes: int = 0, more_s: float = 0.0
    ) -> T:
        asks = (lambda: ask(self._writer)), (lambda: ask(self._last))
        return await self._retries.ask(operation, key, asks, extra_s=extra_s(n_bytes) + more_s)

    async def _own(self, key: str, token: str, refusal: StoreError, doubt: "_Doubt") -> Written:
        """The version that is there, if an attempt without an answer made it.

        Raises:
            StoreError: the refusal, if none did.
        """
        if not doubt.is_there:
            raise refusal
        try:
            found = await self.describe(key)
        except ObjectNotFound:
            raise refusal from None
        if found.attributes.metadata.get(TOKEN) != token:
            raise refusal
        return Written(found.stat.id, found.stat.mtime_s)

    async def _token_of(self, source: ObjectStat, doubt: "_Doubt") -> str:
        """What a copy of it has; empty where that proves nothing."""
        if not doubt.is_there:
            return ""
        try:
            found = await self.describe(source.key)
        except ObjectNotFound:
            return ""
        return found.attributes.metadata.get(TOKEN, "") if found.stat.etag == source.etag else ""

    async def _is_there(self, key: str) -> bool:
        try:
            await self.describe(key)
        except ObjectNotFound:
            return False
        return True


class _Doubt:
    """Whether an attempt failed that may have been done all the same."""

    def __init__(self) -> None:
        self.is_there = False

    async def noted(self, attempt: Awaitable[T]) -> T:
        """The answer of an attempt."""
        try:
            return await attempt
        except StoreError as error:
            self.is_there = self.is_there or may_pass(error)
            raise
