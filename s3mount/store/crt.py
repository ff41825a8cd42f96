"""Content by the AWS CRT: ranged GET with If-Match, on C threads, off the interpreter's lock.

* One GET per range: the CRT would split one longer than a part, so `fs` never asks for that.
* What a request brings comes on C threads, to its `store.transfer.Transfer`.
* The CRT must never see a fork: it hangs in the child (measured).
* What is in flight is counted in `store.transit` until the CRT is done with it, also when nobody waits for
  it any more; what such a GET still brings is not kept.
"""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import quote, urlencode

import trio
from awscrt.http import HttpHeaders, HttpRequest
from awscrt.io import ClientBootstrap, ClientTlsContext, DefaultHostResolver, EventLoopGroup, TlsContextOptions
from awscrt.s3 import (
    S3Client,
    S3RequestTlsMode,
    S3RequestType,
    S3RetryConfig,
    S3RetryMode,
)

from s3mount.core.attrs import ObjectId
from s3mount.core.listing import ListPage
from s3mount.core.ranges import ByteRange
from s3mount.core.waits import Arrival
from s3mount.errors import ObjectNotFound
from s3mount.store import checksums
from s3mount.store.base import MAX_PAGE
from s3mount.store.list_xml import parse_list_page
from s3mount.store.s3 import as_change, check_content, check_version
from s3mount.store.session import CONNECT_TIMEOUT_S, Endpoint, S3Config
from s3mount.store.signing import CredentialSource, Signer
from s3mount.store.transfer import Transfer
from s3mount.store.transit import MIN_TRANSIT, Transit

#: The CRT opens 25 connections for each 10 Gbps of its target and no more (measured), so the
#: target is derived from the connections we want and says nothing about the network.
_GBPS_PER_CONNECTION = 10 / 25
#: S3 API, ListObjectsV2: archived objects say whether they are restored only when asked.
_LIST_HEADERS = [("x-amz-optional-object-attributes", "RestoreStatus")]
#: Only a GET of an object is the CRT's to split; it sends the others as they are.
_REQUESTS = {
    "GetObject": (S3RequestType.GET_OBJECT, "GET"),
    "HeadObject": (S3RequestType.DEFAULT, "HEAD"),
    "ListObjectsV2": (S3RequestType.DEFAULT, "GET"),
}


@dataclass(frozen=True)
class CrtConfig:
    """Attributes: connections at once, the largest GET in bytes, C threads for the network, bytes in flight."""

    connections: int
    part_size: int
    threads: int
    transit_bytes: int = MIN_TRANSIT


class CrtReader:
    """`RangeReader` of one bucket."""

    def __init__(
        self, client: S3Client, endpoint: Endpoint, credentials: CredentialSource | None, s3: S3Config, transit: Transit
    ) -> None:
        self._client = client
        self.transit = transit
        self._endpoint = endpoint
        self._signer = None if credentials is None else Signer(credentials, endpoint.region)
        self._bucket = s3.location.bucket
        self._prefix = s3.location.prefix
        self._headers = [("Host", endpoint.host), *s3.headers]

    async def confirm(self, wanted: ObjectId) -> None:
        """See `RangeReader.confirm`."""
        transfer = await self._send_for("HeadObject", wanted)
        check_version(transfer.etag, wanted, "HeadObject")

    async def get_range(self, wanted: ObjectId, span: ByteRange, arrival: Arrival | None = None) -> bytes:
        """See `RangeReader.get_range`."""
        arrival = arrival or Arrival(math.inf)
        transfer = await self._send_for("GetObject", wanted, span, arrival)
        arrival.last_byte_at = transfer.ended_at
        content = transfer.content()
        check_content(len(content), transfer.etag, wanted, span)
        if transfer.checksum is not None:
            transfer.checksum.verify(wanted.key)
        return content

    async def list_page(
        self,
        prefix: str,
        *,
        delimiter: str = "/",
        token: str | None = None,
        max_keys: int = MAX_PAGE,
        start_after: str = "",
    ) -> ListPage:
        """See `Catalogue.list_page`.

        A quarter of the CPU of botocore's for one name, a tenth for a full page (measured).
        """
        query = {"list-type": "2", "prefix": prefix, "max-keys": str(max_keys), "encoding-type": "url"}
        if delimiter:
            query["delimiter"] = delimiter
        if token is not None:
            query["continuation-token"] = token
        elif start_after:
            query["start-after"] = start_after
        path = self._endpoint.base_path + "?" + urlencode(query, quote_via=quote, safe="")
        transfer = await self._send("ListObjectsV2", path, _LIST_HEADERS, prefix)
        return parse_list_page(transfer.content())

    async def probe(self) -> None:
        """Prove that the CRT reaches, trusts and may list the bucket.

        Raises:
            StoreError: it does not.
        """
        await self.list_page(self._prefix, max_keys=1)

    async def _send_for(
        self, operation: str, wanted: ObjectId, span: ByteRange | None = None, arrival: Arrival | None = None
    ) -> Transfer:
        """A request for one version of an object, or for a range of it."""
        headers = [("If-Match", wanted.etag)] if wanted.etag else []
        if span is not None:
            headers.append(("Range", f"bytes={span.start}-{span.stop - 1}"))
            if span.start == 0:
                headers.append(checksums.REQUEST_HEADER)
        n_bytes = 0 if span is None else span.length
        try:
            return await self._send(operation, self._endpoint.path(wanted.key), headers, wanted.key, n_bytes, arrival)
        except ObjectNotFound as error:
            raise as_change(error) from error

    async def _send(
        self,
        operation: str,
        path: str,
        headers: list[tuple[str, str]],
        key: str,
        n_bytes: int = 0,
        arrival: Arrival | None = None,
    ) -> Transfer:
        kind, method = _REQUESTS[operation]
        signing = None if self._signer is None else await self._signer.config()
        taken = await self._enter(n_bytes, arrival)
        transfer = Transfer(trio.lowlevel.current_trio_token(), lambda: self.transit.leave(taken))
        transfer.request = self._client.make_request(
            type=kind,
            operation_name=operation,
            request=HttpRequest(method, path, HttpHeaders([*self._headers, *headers])),
            signing_config=signing,
            part_size=self.transit.part_size,
            on_headers=transfer.on_headers,
            on_body=transfer.on_body,
            on_done=transfer.on_done,
        )
        await transfer.wait()
        if transfer.failure is not None:
            raise transfer.failure(bucket=self._bucket, key=key, operation=operation)
        return transfer

    async def _enter(self, n_bytes: int, arrival: Arrival | None) -> int:
        """Wait for memory; meanwhile the request is not sent, and must not be taken for one that S3 keeps waiting."""
        if arrival is None:
            return await self.transit.enter(n_bytes)
        arrival.sent_at = math.inf
        taken = await self.transit.enter(n_bytes)
        arrival.sent_at = trio.current_time()
        return taken


@asynccontextmanager
async def crt_reader(
    endpoint: Endpoint,
    credentials: CredentialSource | None,
    ca_bundle: str | None,
    s3: S3Config,
    config: CrtConfig,
) -> AsyncIterator[CrtReader]:
    """A reader with a CRT client of its own, gone when the block ends."""
    transit = Transit(config.transit_bytes, config.part_size)
    loops = EventLoopGroup(config.threads)
    bootstrap = ClientBootstrap(loops, DefaultHostResolver(loops))
    tls = None
    if endpoint.is_tls:
        options = TlsContextOptions()
        if ca_bundle is not None:
            options.override_default_trust_store_from_path(ca_filepath=ca_bundle)
        tls = ClientTlsContext(options).new_connection_options()
    client = S3Client(
        bootstrap=bootstrap,
        region=endpoint.region,
        tls_mode=S3RequestTlsMode.ENABLED if endpoint.is_tls else S3RequestTlsMode.DISABLED,
        tls_connection_options=tls,
        part_size=transit.pool_part_size,  # each request says what its own parts are
        throughput_target_gbps=config.connections * _GBPS_PER_CONNECTION,
        memory_limit=transit.pool_limit,
        retry_config=S3RetryConfig(retry_mode=S3RetryMode.NONE),  # store.retries repeats, and sees each failure
        connect_timeout_ms=CONNECT_TIMEOUT_S * 1000,
    )
    yield CrtReader(client, endpoint, credentials, s3, transit)
