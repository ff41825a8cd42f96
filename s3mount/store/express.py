"""Sessions of a directory bucket (S3 Express One Zone): what the CRT signs with there.

S3 gives keys for one bucket that live five minutes; requests are signed for the service `s3express` and carry the
session's token in a header of their own.  aiobotocore does so by itself, with a session of its own.  The CRT could,
too, but would ask on C threads, past the chain's refresh and past the errors that say what is wrong.

INVARIANT: one CreateSession at a time; whoever comes meanwhile waits for its answer.
"""

from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

import trio

from s3mount.store.s3 import CREATE_SESSION, mapped

SERVICE = "s3express"
TOKEN_HEADER = "x-amz-s3session-token"
#: Of the life of a session; what is signed later might arrive too late.
_USED_SHARE = 0.8


class SessionKeys(NamedTuple):
    """As the CRT signs with them: the token is a header, not part of the credentials."""

    access_key: str
    secret_key: str
    session_token: str
    token: None = None


class SessionSource:
    """The sessions of one bucket, one after the other.

    Args:
        client: an open S3 client of aiobotocore.

    Attributes:
        newest: the keys as of the last refresh, the same object until they change.
    """

    def __init__(self, client: Any, bucket: str) -> None:
        self._client = client
        self._bucket = bucket
        self._renewing = trio.Lock()
        self._renew_at = 0.0
        self.newest: SessionKeys | None = None

    async def refresh(self) -> None:
        """Another session, if there is none or most of the life of the last is over.

        Raises:
            StoreError: S3 gives none.
        """
        if self.newest is not None and trio.current_time() < self._renew_at:
            return
        async with self._renewing:
            if self.newest is None or trio.current_time() >= self._renew_at:
                await self._renew()

    async def _renew(self) -> None:
        asked_at = trio.current_time()
        with mapped(self._bucket, "", CREATE_SESSION):
            answer = await self._client.create_session(Bucket=self._bucket)
            keys = answer["Credentials"]
            until: datetime = keys["Expiration"]
            said = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])  # by the same clock
            self._renew_at = asked_at + (until - said).total_seconds() * _USED_SHARE
            self.newest = SessionKeys(keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"])
