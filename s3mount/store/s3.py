"""The control plane by aiobotocore on trio: LIST and HEAD.

It can also GET: the fallback for a host where the CRT has no wheel, and the second witness in
the conformance suite.  A body is always read whole: reading it in pieces copies it again and
again (measured).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import trio
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from s3mount.core.attrs import ObjectId, ObjectStat
from s3mount.core.listing import ListPage
from s3mount.core.ranges import ByteRange
from s3mount.core.waits import Arrival
from s3mount.errors import NotS3, ObjectChanged, ObjectNotFound, StoreFailure
from s3mount.store.base import MAX_PAGE
from s3mount.store.checksums import REQUEST_HEADER, checksum_of
from s3mount.store.s3_errors import from_botocore, from_provider
from s3mount.store.session import S3Config

#: What a request to a directory bucket may need first; its failures are the request's.
CREATE_SESSION = "CreateSession"


class S3Store:
    """A bucket by aiobotocore (`ObjectStore`).

    Args:
        client: an open S3 client; the owner closes it.
    """

    def __init__(self, client: Any, config: S3Config) -> None:
        self._client = client
        client.meta.events.register("before-call.s3.GetObject", _ask_for_checksum)
        self._bucket = config.location.bucket
        self._is_directory = config.location.is_directory_bucket
        self._arguments = config.arguments

    @property
    def is_ordered(self) -> bool:
        """General purpose buckets list in UTF-8 order (S3 User Guide, "Listing object keys"), others in none."""
        return not self._is_directory

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
        paging: dict[str, Any] = {"StartAfter": start_after} if start_after else {}
        if token is not None:
            paging = {"ContinuationToken": token}
        if not self._is_directory:  # which has no archived objects
            paging["OptionalObjectAttributes"] = ["RestoreStatus"]
        with mapped(self._bucket, prefix, "ListObjectsV2"):
            answer = await self._client.list_objects_v2(
                Bucket=self._bucket,
                Prefix=prefix,
                MaxKeys=max_keys,
                **({"Delimiter": delimiter} if delimiter else {}),
                **paging,
                **self._arguments,
            )
            if "ResponseMetadata" not in answer or "IsTruncated" not in answer:
                context = {"bucket": self._bucket, "key": prefix, "operation": "ListObjectsV2"}
                raise NotS3("a LIST was answered without a list", **context)
            return page_from_botocore(answer)

    async def head(self, key: str) -> ObjectStat:
        """See `Catalogue.head`."""
        with mapped(self._bucket, key, "HeadObject"):
            answer = await self._client.head_object(Bucket=self._bucket, Key=key, **self._arguments)
            return stat_from_head(key, answer)

    async def confirm(self, wanted: ObjectId) -> None:
        """See `RangeReader.confirm`."""
        condition = {"IfMatch": wanted.etag} if wanted.etag else {}
        try:
            with mapped(self._bucket, wanted.key, "HeadObject"):
                answer = await self._client.head_object(
                    Bucket=self._bucket, Key=wanted.key, **condition, **self._arguments
                )
        except ObjectNotFound as error:
            raise as_change(error) from error
        check_version(answer.get("ETag", ""), wanted, "HeadObject")

    async def get_range(self, wanted: ObjectId, span: ByteRange, arrival: Arrival | None = None) -> bytes:
        """See `RangeReader.get_range`."""
        condition = {"IfMatch": wanted.etag} if wanted.etag else {}
        try:
            with mapped(self._bucket, wanted.key, "GetObject"):
                answer = await self._client.get_object(
                    Bucket=self._bucket,
                    Key=wanted.key,
                    Range=f"bytes={span.start}-{span.stop - 1}",
                    **condition,
                    **self._arguments,
                )
                first_byte_at = trio.current_time()
                async with answer["Body"] as body:
                    content: bytes = await body.read()
        except ObjectNotFound as error:
            raise as_change(error) from error
        if arrival is not None:
            arrival.first_byte_at, arrival.last_byte_at = first_byte_at, trio.current_time()
        check_content(len(content), answer.get("ETag", ""), wanted, span)
        checksum = checksum_of(answer["ResponseMetadata"]["HTTPHeaders"])
        if checksum is not None:
            checksum.update(content)
            checksum.verify(wanted.key)
        return content


@contextmanager
def mapped(bucket: str, key: str, operation: str) -> Iterator[None]:
    """No exception of botocore crosses this seam, nor what a garbled answer makes of its parser."""
    try:
        yield
    except (BotoCoreError, ClientError, ResponseParserError, KeyError, ValueError) as error:
        if isinstance(error, ClientError) and error.operation_name == CREATE_SESSION:
            operation = CREATE_SESSION
        if isinstance(error, ClientError) and error.operation_name != operation:
            raise from_provider(error) from error  # signing renewed the credentials by a request of its own
        raise from_botocore(error, bucket=bucket, key=key, operation=operation) from error


def stat_from_head(key: str, answer: dict[str, Any]) -> ObjectStat:
    """The object in what botocore parsed of a HeadObject answer."""
    return ObjectStat(
        key=key,
        etag=answer.get("ETag", ""),
        size=answer["ContentLength"],
        mtime_s=int(answer["LastModified"].timestamp()),
        storage_class=answer.get("StorageClass", ""),
        restored='ongoing-request="false"' in answer.get("Restore", ""),
    )


def _ask_for_checksum(params: dict[str, Any], **_: Any) -> None:
    """By header: by argument botocore would compare a range with the checksum of the whole object."""
    if params["headers"].get("Range", "").startswith("bytes=0-"):
        params["headers"].update([REQUEST_HEADER])


def check_version(etag: str, wanted: ObjectId, operation: str) -> None:
    """Prove that an answer is of the version asked for, whatever the server made of If-Match.

    Raises:
        ObjectChanged: it is of another version.
    """
    if wanted.etag and etag and etag != wanted.etag:
        raise ObjectChanged(f"the object has the ETag {etag} now", key=wanted.key, operation=operation)


def check_content(length: int, etag: str, wanted: ObjectId, span: ByteRange) -> None:
    """Prove that an answer is what was asked for.

    Raises:
        ObjectChanged: it is of another version.
        StoreFailure: it is cut short or too long.
    """
    check_version(etag, wanted, "GetObject")
    if length != span.length:
        raise StoreFailure(f"{length} bytes came of the {span.length} asked for", key=wanted.key, operation="GetObject")


def as_change(error: ObjectNotFound) -> ObjectChanged:
    """A request for a version that finds no object finds that it changed."""
    return ObjectChanged(
        "the object was deleted",
        bucket=error.bucket,
        key=error.key,
        operation=error.operation,
        request_id=error.request_id,
    )


def page_from_botocore(answer: dict[str, Any]) -> ListPage:
    """The page in what botocore parsed of a ListObjectsV2 answer."""
    objects = tuple(
        ObjectStat(
            key=item["Key"],
            etag=item.get("ETag", ""),
            size=item["Size"],
            mtime_s=int(item["LastModified"].timestamp()),
            storage_class=item.get("StorageClass", ""),
            restored="RestoreExpiryDate" in item.get("RestoreStatus", {}),
        )
        for item in answer.get("Contents", ())
    )
    prefixes = tuple(item["Prefix"] for item in answer.get("CommonPrefixes", ()))
    return ListPage(objects, prefixes, answer["NextContinuationToken"] if answer["IsTruncated"] else None)
