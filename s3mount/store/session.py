"""Credentials, region, endpoint and trust: chosen once, for aiobotocore and the CRT alike.

* The whole botocore credential chain runs on trio.  The default client config must name the
  httpx session class before the first client, because the providers (process, assume role, IMDS,
  container) make clients of their own and would otherwise ask for an asyncio loop.
* The CRT signs by itself, with what the chain gives on the trio side (`store.signing`).
* One CA choice: `--ca-bundle`, AWS_CA_BUNDLE or the profile's ca_bundle, else the system's.
* botocore resolves the endpoint (regions, path style, ARNs); the CRT is given what came out.
"""

import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

from aiobotocore.config import AioConfig
from aiobotocore.httpxsession import HttpxSession
from aiobotocore.session import AioSession
from botocore import UNSIGNED
from botocore.exceptions import BotoCoreError

from s3mount import __version__
from s3mount.core.location import Location
from s3mount.errors import BadOption, NoCredentials
from s3mount.store.s3_errors import from_provider
from s3mount.store.signing import PROVIDER_ERRORS, CredentialSource

#: Used when nothing names a region; the bucket's answer corrects it.
DEFAULT_REGION = "us-east-1"
#: Seconds; S3 connects within milliseconds or not at all, and ten attempts follow.
CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 30
#: Where distributions keep their CA bundle when OpenSSL's own default is elsewhere.
_SYSTEM_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")


@dataclass(frozen=True)
class S3Config:
    """Which bucket, and how to reach it.

    Attributes:
        region: given by the user, so a wrong one is an error; None to infer it.
        inferred_region: from AWS_REGION; corrected from the bucket's answer.
        is_anonymous: send unsigned requests.
        ca_bundle: PEM file of trusted authorities; None for AWS_CA_BUNDLE or the system's.
        max_attempts: of every request (AWS_MAX_ATTEMPTS); here, of those before the mount is ready.
        may_list: False accepts a bucket that denies LIST.
    """

    location: Location
    region: str | None = None
    inferred_region: str | None = None
    endpoint_url: str | None = None
    force_path_style: bool = False
    profile: str | None = None
    is_anonymous: bool = False
    requester_pays: bool = False
    expected_bucket_owner: str | None = None
    ca_bundle: str | None = None
    max_attempts: int = 10
    may_list: bool = True

    @property
    def origin(self) -> str:
        """Endpoint and bucket, the same for every mount of it: a name is one bucket in all regions of AWS."""
        return f"{(self.endpoint_url or 'https://s3.amazonaws.com').rstrip('/')}/{self.location.bucket}"

    @property
    def headers(self) -> list[tuple[str, str]]:
        """Extra headers that every request carries."""
        payer = [("x-amz-request-payer", "requester")] if self.requester_pays else []
        owner = [("x-amz-expected-bucket-owner", self.expected_bucket_owner)] if self.expected_bucket_owner else []
        return payer + owner

    @property
    def arguments(self) -> dict[str, str]:
        """The same, as botocore's arguments."""
        payer = {"RequestPayer": "requester"} if self.requester_pays else {}
        owner = {"ExpectedBucketOwner": self.expected_bucket_owner} if self.expected_bucket_owner else {}
        return payer | owner


@dataclass(frozen=True)
class Endpoint:
    """Where a bucket's requests go: what botocore's endpoint rules gave.

    Attributes:
        host: with the port, as the Host header needs it.
        base_path: before the key, ending in `/`; it names the bucket in path style.
    """

    is_tls: bool
    host: str
    base_path: str
    region: str

    @property
    def is_proxied(self) -> bool:
        """Whether the environment has a proxy for it, and NO_PROXY no exception."""
        return ("https" if self.is_tls else "http") in getproxies() and not proxy_bypass(self.host)

    def path(self, key: str) -> str:
        """The request target of a key: every byte that is not unreserved is escaped (RFC 3986)."""
        return self.base_path + quote(key, safe="/-_.~")


class S3Session:
    """One botocore session: everything that does not depend on the bucket's region.

    Raises:
        NoCredentials: the AWS configuration cannot be read, or has no such profile.
    """

    def __init__(self, config: S3Config) -> None:
        self._config = config
        self._session = AioSession(profile=config.profile)
        self._session.set_default_client_config(AioConfig(http_session_cls=HttpxSession))
        # botocore knows neither --region nor AWS_REGION, and STS needs a region to assume a role.
        try:
            self._session.set_config_variable("region", self.region)
        except BotoCoreError as error:
            raise from_provider(error) from error
        self._source: CredentialSource | None = None

    @property
    def ca_bundle(self) -> str | None:
        """The PEM file both clients trust; None only where the system has no bundle."""
        configured = self._config.ca_bundle or self._session.get_config_variable("ca_bundle")
        default = ssl.get_default_verify_paths().cafile
        return configured or default or next(filter(_is_readable, _SYSTEM_BUNDLES), None)

    @property
    def region(self) -> str:
        """The user's region, else what the bucket's name, the environment or the profile say, else the default."""
        configured = self._config.region or self._config.location.region or self._config.inferred_region
        return str(configured or self._session.get_config_variable("region") or DEFAULT_REGION)

    async def credentials(self) -> CredentialSource | None:
        """The chain's credentials; None for an anonymous mount.

        Raises:
            NoCredentials: no provider has any.  Otherwise as `CredentialSource.refresh`.
        """
        if self._config.is_anonymous:
            return None
        try:
            found = await self._session.get_credentials()
        except PROVIDER_ERRORS as error:
            raise from_provider(error) from error
        if found is None:
            raise NoCredentials("no credentials were found")
        self._source = CredentialSource(found)
        await self._source.refresh()
        return self._source

    @asynccontextmanager
    async def client(self, region: str) -> AsyncIterator[Any]:
        """An S3 client of aiobotocore for one region.

        Raises:
            BadOption: no client can be made with this region, endpoint or CA bundle.
        """
        config = AioConfig(
            http_session_cls=HttpxSession,
            signature_version=self._signature_version,
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
            max_pool_connections=64,
            user_agent_extra=f"s3mount/{__version__}",
            retries={"mode": "standard", "total_max_attempts": 1},  # store.retries repeats
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={
                "addressing_style": "path" if self._config.force_path_style else "auto",
                "us_east_1_regional_endpoint": "regional",
            },
        )
        creator = self._session.create_client(
            "s3",
            region_name=region,
            endpoint_url=self._config.endpoint_url,
            verify=self.ca_bundle,
            config=config,
        )
        async with AsyncExitStack() as stack:
            try:
                client = await stack.enter_async_context(creator)
            except (BotoCoreError, ValueError, OSError) as error:  # OSError: the CA bundle
                raise BadOption(
                    f"region {region!r}, endpoint or CA bundle cannot be used ({error}); "
                    "check the options, AWS_ variables and the profile"
                ) from error
            client.meta.events.register("before-call.s3", self._refresh)
            yield client

    @property
    def _signature_version(self) -> object:
        """One that is named is used for directory buckets, too, and is wrong there; theirs is chosen by the bucket."""
        if self._config.is_anonymous:
            return UNSIGNED
        return None if self._config.location.is_directory_bucket else "s3v4"

    async def _refresh(self, **_: Any) -> None:
        """Before each call, so that a provider's failure is told as such and not as the request's."""
        if self._source is not None:
            await self._source.refresh()

    async def endpoint(self, client: Any, region: str) -> Endpoint:
        """Where botocore would send a GET of this bucket.

        Raises:
            AccessDenied: the credentials could not be renewed.  Otherwise as `CredentialSource.refresh`.
        """
        bucket = self._config.location.bucket
        try:
            signed = await client.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "x"})
        except PROVIDER_ERRORS as error:  # signing, too, renews the credentials
            raise from_provider(error) from error
        url = urlsplit(signed)
        if bucket.startswith("arn:"):
            region = bucket.split(":")[3]
        return Endpoint(url.scheme == "https", url.netloc, url.path.removesuffix("x"), region)


def _is_readable(path: str) -> bool:
    try:
        with open(path, "rb"):
            return True
    except OSError:
        return False
