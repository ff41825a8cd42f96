"""Bytes at the end of an object of a directory bucket (S3 API, PutObject with x-amz-write-offset-bytes).

The object stays one: whoever reads it sees the old end or the new one.  A checksum of the new bytes must be of the kind
that the object has, so who appends to an object that was not made here asks for that first: a HEAD.
"""

from collections import OrderedDict
from typing import Any

from s3mount.errors import ObjectChanged, StoreError
from s3mount.store.bodies import as_file
from s3mount.store.checksums import checksum_of_body
from s3mount.store.writing import Body, size_of

#: Kinds that are computed here; an append to an object with another one has none.
_KINDS = ("crc32c", "crc64nvme", "crc32")
#: Versions whose kind is remembered.
_MAX_KNOWN = 1_000


class Appends:
    """Appends to the objects of one bucket, by aiobotocore.

    Args:
        arguments: of every request.
    """

    def __init__(self, client: Any, arguments: dict[str, str]) -> None:
        self._client = client
        self._arguments = arguments
        self._known: OrderedDict[str, str] = OrderedDict()

    async def append(self, key: str, etag: str, offset: int, body: Body, made: dict[str, Any]) -> str:
        """The ETag of the object with the bytes at its end.

        Args:
            etag: of the version that has ended there so far.
            made: arguments of a request that makes an object.

        Raises:
            ObjectChanged: that is not the version.
            StoreError: the server knows nothing of offsets; and what botocore raises.
        """
        kind = self._known.get(etag)
        if kind is None:
            kind = await self._kind_of(key, etag)
        checksum = {f"Checksum{kind.upper()}": checksum_of_body(kind, body)} if kind else {}
        answer = await self._client.put_object(
            Key=key, Body=as_file(body), WriteOffsetBytes=offset, **checksum, **{**made, "IfMatch": etag}
        )
        if answer.get("Size") != offset + size_of(body):  # that of what was appended to (S3 API)
            raise StoreError("the server did not append: it may have replaced the object", key=key)
        self._known[answer["ETag"]] = kind
        if len(self._known) > _MAX_KNOWN:
            self._known.popitem(last=False)
        return str(answer["ETag"])

    async def _kind_of(self, key: str, etag: str) -> str:
        """Of the checksum that an object has; empty for one that is not computed here, and for none."""
        answer = await self._client.head_object(Key=key, ChecksumMode="ENABLED", **self._arguments)
        if answer["ETag"] != etag:
            raise ObjectChanged("somebody else wrote it", key=key, operation="PutObject")
        return next((kind for kind in _KINDS if f"Checksum{kind.upper()}" in answer), "")
