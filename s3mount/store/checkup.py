"""What can be found out about a bucket without changing it: who one is there, what is permitted, what its clock says.

Permission to write is found out by beginning a multipart upload under a name of its own and aborting it: no object
comes to be, and nothing is paid for but two requests.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from s3mount.core.ranges import ByteRange
from s3mount.errors import ObjectNotFound
from s3mount.store.connect import Connection, connect
from s3mount.store.crt import CrtConfig
from s3mount.store.s3 import mapped
from s3mount.store.s3_writer import S3Writer
from s3mount.store.session import S3Config, S3Session
from s3mount.store.write_config import WriteConfig

#: What botocore calls its providers, for people.
_SOURCES = {
    "env": "the environment (AWS_ACCESS_KEY_ID)",
    "shared-credentials-file": "the credentials file",
    "config-file": "the configuration file",
    "iam-role": "the role of this instance",
    "container-role": "the role of this container",
    "assume-role": "an assumed role",
    "assume-role-with-web-identity": "a web identity",
    "custom-process": "a credential_process",
    "sso": "single sign-on",
}


class Checkup:
    """A bucket that can be listed."""

    def __init__(self, connection: Connection, s3: S3Config) -> None:
        self._connection = connection
        self._s3 = s3
        self.region = connection.region

    async def clock_skew_s(self) -> float | None:
        """Seconds that this host's clock is ahead of S3's, to a second; None when S3 does not tell the time.

        Raises:
            StoreError: it does not answer.
        """
        location = self._s3.location
        with mapped(bucket=location.bucket, key="", operation="ListObjectsV2"):
            answer = await self._connection.client.list_objects_v2(
                Bucket=location.bucket, Prefix=location.prefix, MaxKeys=1, **self._s3.arguments
            )
        date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
        return None if date is None else (datetime.now(UTC) - parsedate_to_datetime(date)).total_seconds()

    async def read(self) -> str | None:
        """The key of an object of which a byte was read; None where there is no object to read.

        Raises:
            StoreError: it cannot be read.
        """
        page = await self._connection.catalogue.list_page(self._s3.location.prefix, delimiter="")
        found = next((stat for stat in page.objects if stat.size), None)
        if found is None:
            return None
        try:
            await self._connection.reader.get_range(found.id, ByteRange(0, 1))
        except ObjectNotFound:
            return None  # it was deleted meanwhile
        return found.id.key

    async def write_nothing(self) -> None:
        """Begin an upload and abort it.

        Raises:
            StoreError: one of them is not permitted, or not done.
        """
        writer = S3Writer(self._connection.client, self._s3, WriteConfig())
        name = f"{self._s3.location.prefix}.s3mount-doctor-{os.urandom(8).hex()}"
        await writer.abort(await writer.create_upload(name))


async def credential_source(s3: S3Config) -> str:
    """Where the credentials come from, in words.

    Raises:
        StoreError: there are none, or a provider failed.
    """
    source = await S3Session(s3).credentials()
    if source is None:
        return "none are sent (--no-sign-request)"
    return _SOURCES.get(source.method, source.method)


@asynccontextmanager
async def checkup(s3: S3Config, crt: CrtConfig) -> AsyncIterator[Checkup]:
    """Reach the bucket by both clients, and list it.

    Raises:
        StoreError: the first thing that is wrong.
    """
    async with connect(s3, crt) as connection:
        yield Checkup(connection, s3)
