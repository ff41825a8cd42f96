"""Copies of whole objects that S3 makes itself: no byte passes through this process.

Up to `core.uploads.PARALLEL_COPY` by one request, else in parts, several at once: one request copies at the speed of
one stream, and S3 takes no more than 5 GiB in one.

S3 gives a copy the content, the metadata, the headers and the tags of its source.  An upload has none of these, so a
copy in parts asks for them first and states them.  The storage class is stated either way: S3 would make it STANDARD.
"""

from collections.abc import Awaitable, Callable, Sequence

import trio

from s3mount.core.attrs import ObjectStat
from s3mount.core.uploads import MIN_PART, PARALLEL_COPY, PlannedPart, plan_parts
from s3mount.errors import ObjectChanged, S3MountError, StoreError
from s3mount.store.writing import ANYTHING, STORAGE_CLASS, TAGS, Attributes, Condition, Part, Upload, Writer, Written

#: Parts of one copy at once: a GiB in one round of `core.uploads`' parts.
_AT_ONCE = 16
#: Seconds for dropping an upload that failed or was given up; it would be paid for until somebody finds it.
_ABORT_S = 10.0


async def copy_object(
    writer: Writer,
    source: ObjectStat,
    key: str,
    condition: Condition = ANYTHING,
    attributes: Attributes | None = None,
) -> Written:
    """Copy an object of any size; see `Writer.copy`."""
    if source.size <= PARALLEL_COPY:
        return await writer.copy(source, key, condition, attributes)
    upload = await writer.create_upload(key, await stated(writer, source, attributes))

    async def copy_one(number: int, planned: PlannedPart) -> Part:
        return await writer.copy_part(upload, number, source.id, planned.span)

    is_done = False
    try:
        parts = await send_all(plan_parts(source.size, source.size, (), MIN_PART), copy_one, _AT_ONCE)
        written = await writer.complete(upload, parts, condition)
        is_done = True
    finally:
        if not is_done:
            await abort_quietly(writer, upload)
    return written


async def stated(writer: Writer, source: ObjectStat, attributes: Attributes | None) -> Attributes:
    """What a request that makes an object has to say, for it to be as a copy.

    Args:
        attributes: instead of the source's; tags and storage class are the source's all the same.

    Raises:
        ObjectChanged: the source has another version.
        StoreError.
    """
    found = await writer.describe(source.key, has_tags=True)
    if source.etag and found.stat.etag != source.etag:
        raise ObjectChanged("the object to be copied was replaced", key=source.key, operation="HeadObject")
    if attributes is None:
        return found.attributes
    kept = {name: value for name, value in found.attributes.headers.items() if name in (STORAGE_CLASS, TAGS)}
    return Attributes({**kept, **attributes.headers}, attributes.metadata)


async def abort_quietly(writer: Writer, upload: Upload) -> None:
    """Drop an upload that is of no use, also when the caller was cancelled; what stays is found by its listing."""
    with trio.move_on_after(_ABORT_S, shield=True):
        try:
            await writer.abort(upload)
        except StoreError:
            return


async def send_all(
    plan: Sequence[PlannedPart], send_one: Callable[[int, PlannedPart], Awaitable[Part]], at_once: int
) -> list[Part]:
    """All parts of a planned upload, some at once; the first that fails ends the others.

    Raises:
        S3MountError: that one's.
    """
    parts: list[Part] = []
    failures: list[S3MountError] = []
    numbered = iter(enumerate(plan, 1))

    async def work() -> None:
        try:
            for number, planned in numbered:
                parts.append(await send_one(number, planned))
        except S3MountError as error:
            failures.append(error)
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for _ in range(min(at_once, len(plan))):
            nursery.start_soon(work)
    if failures:
        raise failures[0]
    return sorted(parts)
