"""Connect to a bucket, and prove both clients before anybody says ready.

The first LIST by aiobotocore finds out everything a user can have got wrong: name, permission,
credentials, region, endpoint, certificate.  Its answer is kept, because it is also the first page
of the root directory.  The CRT then proves the same with a request of its own, since it resolves,
trusts and signs by itself.  Where the user says that listing is not permitted, a LIST that S3
denies proves as much, because S3 checks the signature first; there is no first page then.

Nothing is waited for yet, and retries must not hide a plain mistake for a minute: `_Watch` sees every attempt and
ends the probe at once when the certificate is not trusted or the answer is not S3's, and after
`_MAX_REFUSALS` failed connections; and everything together has `PROBE_DEADLINE_S`, after which the
last answer is the reason.
"""

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import trio
from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from s3mount.core.backoff import Patience
from s3mount.core.listing import ListPage
from s3mount.errors import AccessDenied, StoreError, StoreUnreachable, WrongRegion
from s3mount.store.base import ObjectStore
from s3mount.store.crt import CrtConfig, CrtReader, crt_reader
from s3mount.store.express import SessionSource
from s3mount.store.retries import Retries
from s3mount.store.s3 import S3Store
from s3mount.store.s3_errors import from_botocore
from s3mount.store.session import S3Config, S3Session
from s3mount.store.signing import CredentialSource, KeySource

log = logging.getLogger(__name__)

#: Seconds for all probing; the user waits for it in front of a prompt.
PROBE_DEADLINE_S = 10.0
_MAX_REFUSALS = 2


@dataclass(frozen=True)
class Connection:
    """A bucket that answered.

    Attributes:
        client: of aiobotocore, open as long as the connection.
        root_page: the first page of the prefix, asked for at `root_asked_at` (trio's clock); None
            where S3 denies it and `S3Config.may_list` is False.
    """

    client: Any
    catalogue: ObjectStore
    reader: CrtReader
    region: str
    root_page: ListPage | None
    root_asked_at: float


@dataclass(eq=False)
class _Watch:
    """What every attempt of a botocore request showed, by its public events."""

    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    region: str = ""
    failure: Exception | None = None
    refusals: int = 0

    def __call__(self, response: Any = None, caught_exception: Any = None, **_: Any) -> None:
        if caught_exception is not None:
            self._refused(caught_exception, is_final=isinstance(caught_exception, boto.SSLError))
        if response is not None and response[0] is not None:
            self._answered(response[0].status_code, response[1])

    def read(self, response_dict: dict[str, Any], **_: Any) -> None:
        """Of each answer; botocore makes a 500 of a body that is not XML, and would ask ten times."""
        body, status = response_dict["body"], response_dict["status_code"]
        if (status < 300 or status == 500) and b"<ListBucketResult" not in body and b"<Error" not in body:
            self._refused(ResponseParserError("the body is not a list of a bucket"), is_final=status < 300)

    def _answered(self, status: int, parsed: dict[str, Any]) -> None:
        if status < 300 or self.scope.cancel_called:
            return
        said = parsed.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("x-amz-bucket-region")
        said = said or parsed.get("Error", {}).get("Region")
        self.region = said or self.region
        self.failure = boto.ClientError(parsed, "ListObjectsV2")
        if status < 400 and not said:  # botocore would look for the region with a HEAD, and again for that one
            self._refused(self.failure)

    def _refused(self, failure: Exception, *, is_final: bool = False) -> None:
        self.failure = failure
        self.refusals += 1
        if is_final or self.refusals >= _MAX_REFUSALS:
            self.scope.cancel()


@asynccontextmanager
async def connect(s3: S3Config, crt: CrtConfig, known_region: str | None = None) -> AsyncIterator[Connection]:
    """Both clients of a bucket, proven, in the bucket's own region.

    Args:
        known_region: where the bucket is known to be; then nothing is proven, and S3 is not asked.

    Raises:
        StoreError: the first thing that is wrong.
    """
    session = S3Session(s3)
    deadline = trio.current_time() + PROBE_DEADLINE_S
    async with AsyncExitStack() as stack:
        with _within(deadline, s3):
            credentials = await session.credentials()
        region = known_region or session.region
        client = await stack.enter_async_context(session.client(region))
        if known_region is not None:
            endpoint = await session.endpoint(client, region)
            keys = _keys(client, credentials, s3)
            reader = await stack.enter_async_context(crt_reader(endpoint, keys, session.ca_bundle, s3, crt))
            yield Connection(client, S3Store(client, s3), reader, region, None, trio.current_time())
            return
        found = await _probe(client, s3, region, deadline)
        if found.region != region:
            log.info("the bucket is in region %s, not %s", found.region, region)
            region = found.region
            client = await stack.enter_async_context(session.client(region))
            found = await _probe(client, s3, region, deadline)
        endpoint = await session.endpoint(client, region)
        keys = _keys(client, credentials, s3)
        reader = await stack.enter_async_context(crt_reader(endpoint, keys, session.ca_bundle, s3, crt))
        with _within(deadline, s3):
            try:
                await _retries(s3).ask("ListObjectsV2", s3.location.prefix, (reader.probe, reader.probe))
            except StoreError as error:
                if not _is_accepted(error, s3):
                    raise
        if found.page is None:
            log.info("S3 denies listing; only what is asked for by its path is there")
        yield Connection(client, found.catalogue, reader, region, found.page, found.asked_at)


def _keys(client: Any, credentials: CredentialSource | None, s3: S3Config) -> KeySource | None:
    """What the CRT signs with."""
    if credentials is None or not s3.location.is_directory_bucket:
        return credentials
    return SessionSource(client, s3.location.bucket)


@dataclass(frozen=True)
class _Found:
    catalogue: ObjectStore
    region: str
    page: ListPage | None
    asked_at: float


async def _probe(client: Any, s3: S3Config, region: str, deadline: float) -> _Found:
    """LIST the prefix; says which region the bucket is in when it is not this one.

    Raises:
        WrongRegion: and the user chose the region.
        StoreError: anything else that is wrong.
    """
    store = S3Store(client, s3)
    watch = _Watch()
    client.meta.events.register_first("needs-retry.s3", watch)
    client.meta.events.register_first("before-parse.s3.ListObjectsV2", watch.read)
    page: ListPage | None = None
    asked_at = trio.current_time()
    failure: StoreError | None = None
    try:
        with _within(deadline, s3), watch.scope:
            try:
                asks = store.list_page, store.list_page
                page = await _retries(s3).ask("ListObjectsV2", s3.location.prefix, asks, s3.location.prefix)
            except StoreError as error:
                failure = error
    except StoreUnreachable as error:
        failure = error
    if watch.failure is not None and (watch.scope.cancelled_caught or isinstance(failure, StoreUnreachable)):
        failure = from_botocore(watch.failure, bucket=s3.location.bucket, key="", operation="ListObjectsV2")
    client.meta.events.unregister("needs-retry.s3", watch)
    client.meta.events.unregister("before-parse.s3.ListObjectsV2", watch.read)
    actual = watch.region or (failure.region if isinstance(failure, WrongRegion) else "")
    if actual and actual != region:
        if s3.region is not None:
            raise WrongRegion(
                f"the bucket is in region {actual}, not in {s3.region}", region=actual, bucket=s3.location.bucket
            )
        return _Found(store, actual, page, asked_at)
    if failure is not None and not _is_accepted(failure, s3):
        raise failure
    return _Found(store, region, page, asked_at)


def _retries(s3: S3Config) -> Retries:
    return Retries(Patience(PROBE_DEADLINE_S, window_s=0.0, max_attempts=s3.max_attempts))


def _is_accepted(error: StoreError, s3: S3Config) -> bool:
    """Whether S3 denied no more than what the user said it would: credentials that fail are another matter."""
    return not s3.may_list and type(error) is AccessDenied and error.operation == "ListObjectsV2"


@contextmanager
def _within(deadline: float, s3: S3Config) -> Iterator[None]:
    """Everything before the mount is ready shares one deadline."""
    try:
        with trio.fail_at(deadline):
            yield
    except trio.TooSlowError as error:
        raise StoreUnreachable(
            f"the endpoint did not answer within {PROBE_DEADLINE_S:g} s", bucket=s3.location.bucket
        ) from error
