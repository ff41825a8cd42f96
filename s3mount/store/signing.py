"""The chain's credentials as the CRT signs with them: a snapshot, made anew when they changed.

Every request asks botocore first, on the trio side: a no-op until it finds the credentials old.  The CRT
then has them as its own and signs in C.  If it had to ask Python (a delegate), each request would wait on a
C thread for a turn of the interpreter's lock.
"""

from typing import Any, Protocol

from awscrt.auth import AwsCredentialsProvider, AwsSigningConfig
from awscrt.s3 import create_default_s3_signing_config
from botocore.exceptions import BotoCoreError, ClientError

from s3mount.store.s3_errors import from_provider

#: What providers let out besides botocore's own: a program or token file that is not there, an
#: answer without keys, and "refreshed, but still expired".
PROVIDER_ERRORS = (BotoCoreError, ClientError, OSError, KeyError, ValueError, RuntimeError)


class CredentialSource:
    """What botocore's chain found.

    Attributes:
        newest: the credentials as of the last refresh, the same object until they change.
        method: botocore's name of the provider.
    """

    def __init__(self, credentials: Any) -> None:
        self._credentials = credentials
        self.newest: Any = None
        self.method = str(credentials.method)

    async def refresh(self) -> None:
        """Renew the credentials if botocore finds them old.

        Raises:
            AccessDenied, most often as NoCredentials: the provider failed.
            StoreUnreachable: nobody answers at the provider's endpoint.
        """
        try:
            frozen = await self._credentials.get_frozen_credentials()
        except PROVIDER_ERRORS as error:
            raise from_provider(error) from error
        if frozen != self.newest:  # those that never change are frozen anew each time
            self.newest = frozen


class KeySource(Protocol):
    """Keys that are renewed: `CredentialSource`, or the sessions of a directory bucket (store.express).

    Attributes:
        newest: has `access_key`, `secret_key` and `token`; None before the first refresh.
    """

    newest: Any

    async def refresh(self) -> None:
        """Renew them if they are old.  Raises StoreError."""
        ...


class Signer:
    """The CRT's signing configuration for one region.

    Args:
        source: of the credentials.
        service: that requests are signed for.
    """

    def __init__(self, source: KeySource, region: str, service: str = "s3") -> None:
        self._source = source
        self._region = region
        self._service = service
        self._signed_with: Any = None
        self._config: AwsSigningConfig | None = None

    async def config(self) -> AwsSigningConfig:
        """What a request is given that starts now.

        Raises:
            StoreError: see `KeySource.refresh`.
        """
        await self._source.refresh()
        newest = self._source.newest
        if self._config is None or newest is not self._signed_with:
            provider = AwsCredentialsProvider.new_static(newest.access_key, newest.secret_key, newest.token)
            config = create_default_s3_signing_config(region=self._region, credential_provider=provider)
            self._config = config.replace(service=self._service)
            self._signed_with = newest
        return self._config
