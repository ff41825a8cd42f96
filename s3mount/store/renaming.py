"""Objects of a directory bucket get another key by one request, and no byte is copied (S3 API, RenameObject).

An object keeps what it has, also its ETag and its time.  All attempts of one rename carry the same token, so what was
done before its answer was lost is success when it is asked again.  Keys that end in a slash cannot be renamed.
"""

import secrets
from typing import Any, Protocol
from urllib.parse import quote

import trio

from s3mount.core.attrs import ObjectStat
from s3mount.errors import AlreadyExists, ObjectChanged, ObjectNotFound
from s3mount.store.attempts import Attempts
from s3mount.store.retries import Retries
from s3mount.store.s3 import as_change, mapped
from s3mount.store.session import S3Config
from s3mount.store.writing import Writer

_AT_ONCE = 64


class Mover(Protocol):
    """What renames objects."""

    async def move(self, source: ObjectStat, key: str, *, is_new: bool = False) -> ObjectStat:
        """The object under its new key; what was there is replaced.

        Args:
            is_new: nothing may be there.

        Raises:
            AlreadyExists: something is.
            ObjectChanged: the source has another version, or is gone.
            StoreError.
        """
        ...


class ObjectMover:
    """`Mover` of one bucket.

    Args:
        client: of aiobotocore, open; the owner closes it.
        writer: says what is there.
        attempts: counts what is sent here, too.
    """

    def __init__(self, client: Any, s3: S3Config, writer: Writer, attempts: Attempts, retries: Retries) -> None:
        self._client = client
        self._bucket = s3.location.bucket
        self._writer = writer
        self._attempts = attempts
        self._retries = retries
        self._places = trio.CapacityLimiter(_AT_ONCE)

    async def move(self, source: ObjectStat, key: str, *, is_new: bool = False) -> ObjectStat:
        """See `Mover.move`."""
        token = secrets.token_hex(16)

        async def send() -> None:
            self._attempts.counts["renames"] += 1
            await self._rename(source, key, token, is_new=is_new)

        async def ask() -> None:
            await self._attempts.run(self._places, "RenameObject", key, send)

        try:
            await self._retries.ask("RenameObject", key, (ask, ask))
        except ObjectNotFound as error:
            raise as_change(error) from error
        except ObjectChanged as refusal:  # S3 says the same of either condition
            if is_new and await self._is_there(key):
                raise AlreadyExists("there is an object already", key=key, operation="RenameObject") from refusal
            raise
        return source._replace(key=key)

    async def _rename(self, source: ObjectStat, key: str, token: str, *, is_new: bool) -> None:
        conditions = {"SourceIfMatch": source.etag} if source.etag else {}
        if is_new:
            conditions["DestinationIfNoneMatch"] = "*"
        with mapped(self._bucket, key, "RenameObject"):
            await self._client.rename_object(
                Bucket=self._bucket,
                Key=key,
                RenameSource=quote(f"{self._bucket}/{source.key}", safe="/-_.~"),
                ClientToken=token,
                **conditions,
            )

    async def _is_there(self, key: str) -> bool:
        try:
            await self._writer.describe(key)
        except ObjectNotFound:
            return False
        return True
