"""Small bodies and copies of objects by the AWS CRT, on C threads; large bodies by threads of ours
(`store.large_bodies`); everything else that changes a bucket by aiobotocore.

Measured: benchmarks/upload.py, docs/decisions/0035-bodies-by-the-crt.md and 0062-large-bodies-by-threads.md.  The CRT
reads a body once, into memory of its own (`store.transit` counts it), computes the checksum there, and sends the body
unsigned: the checksum is signed, and proves more.  A copy has no body, but a renamed directory is a thousand of them.
"""

from typing import Any
from urllib.parse import quote

from awscrt.s3 import S3ChecksumAlgorithm, S3ChecksumConfig, S3ChecksumLocation

from s3mount.core.attrs import ObjectId, ObjectStat
from s3mount.errors import ObjectChanged, ObjectNotFound
from s3mount.store.copy_xml import parse_copy
from s3mount.store.crt_requests import CrtRequests
from s3mount.store.large_bodies import LargeBodies
from s3mount.store.s3_writer import S3Writer, as_refusal, quoted
from s3mount.store.session import S3Config
from s3mount.store.write_config import WriteConfig
from s3mount.store.writing import (
    ANYTHING,
    PLAIN,
    STORAGE_CLASS,
    Attributes,
    Body,
    Condition,
    Part,
    Upload,
    Written,
    size_of,
)

_ALGORITHMS = {"crc32c": S3ChecksumAlgorithm.CRC32C, "crc64nvme": S3ChecksumAlgorithm.CRC64NVME}


class CrtWriter(S3Writer):
    """A `Writer` of one bucket.

    Args:
        client: of aiobotocore, open; the owner closes it.
        large: None to let the CRT send all bodies.
    """

    def __init__(
        self, requests: CrtRequests, client: Any, s3: S3Config, config: WriteConfig, large: LargeBodies | None = None
    ) -> None:
        super().__init__(client, s3, config)
        self._requests = requests
        self._large = large
        self._is_directory = s3.location.is_directory_bucket
        self._checksum_header = f"x-amz-checksum-{config.checksums}"
        self._crt_checksum = None
        if config.checksums != "off":
            self._crt_checksum = S3ChecksumConfig(_ALGORITHMS[config.checksums], S3ChecksumLocation.HEADER)

    async def put(
        self, key: str, body: Body, condition: Condition = ANYTHING, attributes: Attributes = PLAIN, offset: int = 0
    ) -> Written:
        """See `Writer.put`; what is appended is small, and left to aiobotocore."""
        if offset:
            return await super().put(key, body, condition, attributes, offset)
        headers = self._headers(attributes, condition)
        path = self._requests.endpoint.path(key)
        try:
            answered = await self._send("PutObject", path, list(headers.items()), key, body)
        except (ObjectChanged, ObjectNotFound) as error:
            raise as_refusal(error, condition) from error
        return Written(ObjectId(key, answered.get("etag", "")))

    async def copy(
        self, source: ObjectStat, key: str, condition: Condition = ANYTHING, attributes: Attributes | None = None
    ) -> Written:
        """See `Writer.copy`; some are left to aiobotocore.

        It knows how to name an access point, and that a directory bucket's copies are signed as no other request there.
        """
        if self._bucket.startswith("arn:") or self._is_directory:
            return await super().copy(source, key, condition, attributes)
        headers = {
            "x-amz-copy-source": quote(f"{self._bucket}/{source.key}", safe="/~"),
            "x-amz-metadata-directive": "COPY" if attributes is None else "REPLACE",
            **({STORAGE_CLASS: source.kept_class} if source.kept_class else {}),
            **({"x-amz-copy-source-if-match": source.etag} if source.etag else {}),
            **self._headers(attributes or PLAIN, condition),
        }
        path = self._requests.endpoint.path(key)
        try:
            transfer = await self._requests.send_body("CopyObject", path, list(headers.items()), key, (), None)
            etag, mtime_s = parse_copy(transfer.content(), bucket=self._bucket, key=key)
        except (ObjectChanged, ObjectNotFound) as error:
            raise as_refusal(error, condition) from error
        return Written(ObjectId(key, quoted(etag)), mtime_s)

    async def upload_part(self, upload: Upload, number: int, body: Body) -> Part:
        """See `Writer.upload_part`."""
        query = f"?partNumber={number}&uploadId={quote(upload.upload_id, safe='')}"
        path = self._requests.endpoint.path(upload.key) + query
        answered = await self._send("UploadPart", path, [], upload.key, body)
        return Part(number, answered.get("etag", ""), size_of(body), answered.get(self._checksum_header, ""))

    async def _send(
        self, operation: str, path: str, headers: list[tuple[str, str]], key: str, body: Body
    ) -> dict[str, str]:
        """A body on its way; the headers of the answer."""
        if self._large is not None and size_of(body) >= self._large.least:
            return await self._large.send(operation, path, headers, key, body)
        return (await self._requests.send_body(operation, path, headers, key, body, self._crt_checksum)).headers

    def _headers(self, attributes: Attributes, condition: Condition) -> dict[str, str]:
        metadata = {f"x-amz-meta-{name}": value for name, value in attributes.metadata.items()}
        return {**attributes.headers, **self._config.headers, **condition.headers, **metadata}
