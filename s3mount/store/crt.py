"""Content by the AWS CRT: ranged GET with If-Match, on C threads, off the interpreter's lock.

* One GET per range: the CRT would split one longer than a part, so `fs` never asks for that.
* Requests themselves are `store.crt_requests`; what a GET brings that nobody waits for any more is not kept.
"""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from awscrt.io import ClientBootstrap, ClientTlsContext, DefaultHostResolver, EventLoopGroup, TlsContextOptions
from awscrt.s3 import (
    S3Client,
    S3RequestTlsMode,
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
from s3mount.store.crt_requests import CrtRequests
from s3mount.store.list_xml import parse_list_page
from s3mount.store.s3 import as_change, check_content, check_version
from s3mount.store.session import CONNECT_TIMEOUT_S, Endpoint, S3Config
from s3mount.store.signing import KeySource
from s3mount.store.transfer import Transfer
from s3mount.store.transit import MIN_TRANSIT, Transit

#: The CRT opens 25 connections for each 10 Gbps of its target and no more (measured), so the
#: target is derived from the connections we want and says nothing about the network.
_GBPS_PER_CONNECTION = 10 / 25
#: S3 API, ListObjectsV2: archived objects say whether they are restored only when asked; directory buckets have none.
_LIST_HEADERS = [("x-amz-optional-object-attributes", "RestoreStatus")]


@dataclass(frozen=True)
class CrtConfig:
    """Attributes: connections at once, the largest GET in bytes, C threads for the network, bytes in flight."""

    connections: int
    part_size: int
    threads: int
    transit_bytes: int = MIN_TRANSIT


class CrtReader:
    """`RangeReader` of one bucket.

    Attributes:
        requests: for other requests by the same client.
    """

    def __init__(self, requests: CrtRequests, s3: S3Config) -> None:
        self.requests = requests
        self._prefix = s3.location.prefix
        self._list_headers = [] if s3.location.is_directory_bucket else _LIST_HEADERS

    @property
    def transit(self) -> Transit:
        """What is on its way."""
        return self.requests.transit

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
        path = self.requests.endpoint.base_path + "?" + urlencode(query, quote_via=quote, safe="")
        transfer = await self.requests.send("ListObjectsV2", path, self._list_headers, prefix)
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
            path = self.requests.endpoint.path(wanted.key)
            return await self.requests.send(operation, path, headers, wanted.key, n_bytes, arrival)
        except ObjectNotFound as error:
            raise as_change(error) from error


@asynccontextmanager
async def crt_reader(
    endpoint: Endpoint,
    credentials: KeySource | None,
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
    yield CrtReader(CrtRequests(client, endpoint, credentials, s3, transit, ca_bundle), s3)
