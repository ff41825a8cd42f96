"""Everything that changes a bucket, by aiobotocore on trio.

Bodies by the CRT cost less (`store.crt_writer`); here they are the last attempt, whose errors say most.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from s3mount.core.attrs import ObjectId, ObjectStat
from s3mount.core.ranges import ByteRange
from s3mount.errors import AlreadyExists, ObjectChanged, ObjectNotFound, StoreError, UploadNotFound
from s3mount.store.appending import Appends
from s3mount.store.bodies import as_file
from s3mount.store.checksums import checksum_of_body
from s3mount.store.heads import described, tagged
from s3mount.store.s3 import as_change, mapped
from s3mount.store.s3_errors import from_answer
from s3mount.store.session import S3Config
from s3mount.store.write_config import WriteConfig
from s3mount.store.writing import (
    ANYTHING,
    PLAIN,
    STORAGE_CLASS,
    SYSTEM_HEADERS,
    TAGS,
    Attributes,
    Body,
    Condition,
    Description,
    Part,
    PartPage,
    Upload,
    UploadPage,
    Written,
    size_of,
)

#: botocore's names of headers that are not the user's to choose.
_ARGUMENTS = {
    **SYSTEM_HEADERS,
    "if-match": "IfMatch",
    "if-none-match": "IfNoneMatch",
    STORAGE_CLASS: "StorageClass",
    TAGS: "Tagging",
    "expires": "Expires",
    "x-amz-server-side-encryption": "ServerSideEncryption",
    "x-amz-server-side-encryption-aws-kms-key-id": "SSEKMSKeyId",
}


class S3Writer:
    """A bucket by aiobotocore (`Writer`).

    Args:
        client: an open S3 client; the owner closes it.
    """

    def __init__(self, client: Any, s3: S3Config, config: WriteConfig) -> None:
        self._client = client
        self._bucket = s3.location.bucket
        self._arguments = {"Bucket": self._bucket, **s3.arguments}
        self._appends = Appends(client, self._arguments)
        self._config = config
        self._algorithm = "" if config.checksums == "off" else config.checksums.upper()

    async def put(
        self, key: str, body: Body, condition: Condition = ANYTHING, attributes: Attributes = PLAIN, offset: int = 0
    ) -> Written:
        """See `Writer.put`."""
        with self._refused(key, "PutObject", condition):
            if offset:
                made = self._made(PLAIN, ANYTHING)
                return Written(ObjectId(key, await self._appends.append(key, condition.etag, offset, body, made)))
            answer = await self._client.put_object(
                Key=key, Body=as_file(body), **self._checksum(body), **self._made(attributes, condition)
            )
            return Written(ObjectId(key, answer["ETag"]))

    async def upload_part(self, upload: Upload, number: int, body: Body) -> Part:
        """See `Writer.upload_part`."""
        with self._refused(upload.key, "UploadPart"):
            answer = await self._client.upload_part(
                PartNumber=number, Body=as_file(body), **self._checksum(body), **self._of(upload)
            )
            return Part(number, answer["ETag"], size_of(body), self._checksum_in(answer))

    async def create_upload(self, key: str, attributes: Attributes = PLAIN) -> Upload:
        """See `Writer.create_upload`."""
        kept: dict[str, str] = {}
        if self._algorithm:
            kind = "FULL_OBJECT" if self._algorithm == "CRC64NVME" else "COMPOSITE"
            kept = {"ChecksumAlgorithm": self._algorithm, "ChecksumType": kind}
        with self._refused(key, "CreateMultipartUpload"):
            answer = await self._client.create_multipart_upload(Key=key, **kept, **self._made(attributes, ANYTHING))
            return Upload(key, answer["UploadId"])

    async def copy_part(self, upload: Upload, number: int, source: ObjectId, span: ByteRange) -> Part:
        """See `Writer.copy_part`."""
        with self._refused(upload.key, "UploadPartCopy"):
            answer = await self._client.upload_part_copy(
                PartNumber=number,
                CopySourceRange=f"bytes={span.start}-{span.stop - 1}",
                **self._from(source),
                **self._of(upload),
            )
            found = answer["CopyPartResult"]
            return Part(number, found["ETag"], span.length, self._checksum_in(found))

    async def complete(self, upload: Upload, parts: Sequence[Part], condition: Condition = ANYTHING) -> Written:
        """See `Writer.complete`."""
        named: list[dict[str, Any]] = [
            {"PartNumber": part.number, "ETag": part.etag}
            | ({f"Checksum{self._algorithm}": part.checksum} if part.checksum else {})
            for part in parts
        ]
        with self._refused(upload.key, "CompleteMultipartUpload", condition):
            answer = await self._client.complete_multipart_upload(
                MultipartUpload={"Parts": named}, **_renamed(condition.headers), **self._of(upload)
            )
            return Written(ObjectId(upload.key, quoted(answer["ETag"])))

    async def abort(self, upload: Upload) -> None:
        """See `Writer.abort`."""
        try:
            with self._refused(upload.key, "AbortMultipartUpload"):
                await self._client.abort_multipart_upload(**self._of(upload))
        except UploadNotFound:
            return

    async def list_uploads(self, prefix: str, after: Upload | None = None) -> UploadPage:
        """See `Writer.list_uploads`."""
        paging = {} if after is None else {"KeyMarker": after.key}
        if after is not None and after.upload_id:  # a directory bucket has no such marker
            paging["UploadIdMarker"] = after.upload_id
        with self._refused(prefix, "ListMultipartUploads"):
            answer = await self._client.list_multipart_uploads(Prefix=prefix, **paging, **self._arguments)
            found = tuple(
                Upload(each["Key"], each["UploadId"], "", int(each["Initiated"].timestamp()))
                for each in answer.get("Uploads", ())
            )
            if not answer.get("IsTruncated"):
                return UploadPage(found, None)
            return UploadPage(found, Upload(answer["NextKeyMarker"], answer.get("NextUploadIdMarker", "")))

    async def list_parts(self, upload: Upload, after: int = 0) -> PartPage:
        """See `Writer.list_parts`."""
        with self._refused(upload.key, "ListParts"):
            answer = await self._client.list_parts(PartNumberMarker=after, **self._of(upload))
            found = tuple(
                Part(each["PartNumber"], each["ETag"], each["Size"], self._checksum_in(each))
                for each in answer.get("Parts", ())
            )
            return PartPage(found, answer["NextPartNumberMarker"] if answer.get("IsTruncated") else None)

    async def copy(
        self, source: ObjectStat, key: str, condition: Condition = ANYTHING, attributes: Attributes | None = None
    ) -> Written:
        """See `Writer.copy`."""
        made = self._made(attributes or PLAIN, condition)
        if source.kept_class:
            made.setdefault("StorageClass", source.kept_class)
        directive = "COPY" if attributes is None else "REPLACE"
        with self._refused(key, "CopyObject", condition):
            answer = await self._client.copy_object(
                Key=key, MetadataDirective=directive, **self._from(source.id), **made
            )
            found = answer["CopyObjectResult"]
            return Written(ObjectId(key, quoted(found["ETag"])), int(found["LastModified"].timestamp()))

    async def describe(self, key: str, *, has_tags: bool = False) -> Description:
        """See `Writer.describe`."""
        with mapped(self._bucket, key, "HeadObject"):
            found = described(key, answer := await self._client.head_object(Key=key, **self._arguments))
        if not has_tags or not answer.get("TagCount"):
            return found
        with mapped(self._bucket, key, "GetObjectTagging"):
            return tagged(found, await self._client.get_object_tagging(Key=key, **self._arguments))

    async def delete(self, key: str, condition: Condition = ANYTHING) -> None:
        """See `Writer.delete`."""
        with self._refused(key, "DeleteObject", condition):
            await self._client.delete_object(Key=key, **_renamed(condition.headers), **self._arguments)

    async def delete_many(self, keys: Sequence[str]) -> dict[str, StoreError]:
        """See `Writer.delete_many`."""
        named = {"Quiet": True, "Objects": [{"Key": key} for key in keys]}
        with self._refused(keys[0], "DeleteObjects"):
            answer = await self._client.delete_objects(Delete=named, **self._arguments)
            context = {"bucket": self._bucket, "operation": "DeleteObjects"}
            return {
                each["Key"]: from_answer(each.get("Code", ""), each.get("Message", ""), 200, key=each["Key"], **context)
                for each in answer.get("Errors", ())
            }

    # -- what requests have in common -------------------------------------------------------

    def _of(self, upload: Upload) -> dict[str, Any]:
        return {"Key": upload.key, "UploadId": upload.upload_id, **self._arguments}

    def _from(self, source: ObjectId) -> dict[str, Any]:
        condition = {"CopySourceIfMatch": source.etag} if source.etag else {}
        return {"CopySource": {"Bucket": self._bucket, "Key": source.key}, **condition}

    def _made(self, attributes: Attributes, condition: Condition) -> dict[str, Any]:
        """Of a request that makes an object."""
        headers = {**attributes.headers, **self._config.headers, **condition.headers}
        metadata = {"Metadata": dict(attributes.metadata)} if attributes.metadata else {}
        return {**_renamed(headers), **metadata, **self._arguments}

    def _checksum(self, body: Body) -> dict[str, str]:
        if not self._algorithm:
            return {}
        return {f"Checksum{self._algorithm}": checksum_of_body(self._config.checksums, body)}

    def _checksum_in(self, answer: Mapping[str, Any]) -> str:
        return str(answer.get(f"Checksum{self._algorithm}", "")) if self._algorithm else ""

    @contextmanager
    def _refused(self, key: str, operation: str, condition: Condition = ANYTHING) -> Iterator[None]:
        """Errors of ours, which say what the condition was."""
        try:
            with mapped(self._bucket, key, operation):
                yield
        except (ObjectChanged, ObjectNotFound) as error:
            raise as_refusal(error, condition) from error


def quoted(etag: str) -> str:
    """An ETag as headers have it; SeaweedFS leaves out the quotes in the XML of a copy."""
    return etag if etag.startswith('"') or not etag else f'"{etag}"'


def as_refusal(error: ObjectChanged | ObjectNotFound, condition: Condition) -> StoreError:
    """What it means that a precondition failed, or that something was not there."""
    if isinstance(error, ObjectNotFound):
        return as_change(error)
    if not condition.is_new:
        return error
    return AlreadyExists(
        "there is an object already",
        bucket=error.bucket,
        key=error.key,
        operation=error.operation,
        request_id=error.request_id,
    )


def _renamed(headers: Mapping[str, str]) -> dict[str, str]:
    return {_ARGUMENTS[name]: value for name, value in headers.items()}
