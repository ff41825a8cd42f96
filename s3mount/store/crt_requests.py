"""Requests by the AWS CRT, on C threads, off the interpreter's lock: what its users (GET, LIST, PUT) have in common.

* What a request brings comes on C threads, to its `store.transfer.Transfer`.
* The CRT must never see a fork: it hangs in the child (measured).
* What is in flight, either way, is counted in `store.transit` until the CRT is done with it, also when nobody waits
  for it any more: a body is copied into the CRT's memory before it is sent.
"""

import math

import trio
from awscrt.auth import AwsSigningConfig
from awscrt.http import HttpHeaders, HttpRequest
from awscrt.s3 import S3ChecksumConfig, S3Client, S3RequestType

from s3mount.core.waits import Arrival
from s3mount.errors import BadCredentials, ExpiredCredentials, StoreError, StoreFailure
from s3mount.store.bodies import PieceStream
from s3mount.store.express import SERVICE, TOKEN_HEADER, SessionSource
from s3mount.store.session import Endpoint, S3Config
from s3mount.store.signing import KeySource, Signer
from s3mount.store.transfer import Transfer
from s3mount.store.transit import Transit
from s3mount.store.writing import Body, size_of

#: Only a GET of an object is the CRT's to split; it sends the others as they are.
_REQUESTS = {
    "GetObject": (S3RequestType.GET_OBJECT, "GET"),
    "HeadObject": (S3RequestType.DEFAULT, "HEAD"),
    "ListObjectsV2": (S3RequestType.DEFAULT, "GET"),
    "PutObject": (S3RequestType.DEFAULT, "PUT"),
    "UploadPart": (S3RequestType.DEFAULT, "PUT"),
    "CopyObject": (S3RequestType.DEFAULT, "PUT"),
}


class CrtRequests:
    """One bucket by one client of the CRT.

    Attributes:
        transit: what is on its way.
        endpoint: where the requests go.
        ca_bundle: the PEM file that is trusted there; None for the system's.
    """

    def __init__(
        self,
        client: S3Client,
        endpoint: Endpoint,
        credentials: KeySource | None,
        s3: S3Config,
        transit: Transit,
        ca_bundle: str | None = None,
    ) -> None:
        self._client = client
        self.transit = transit
        self.endpoint = endpoint
        self.ca_bundle = ca_bundle
        self._sessions = credentials if isinstance(credentials, SessionSource) else None
        service = "s3" if self._sessions is None else SERVICE
        self._signer = None if credentials is None else Signer(credentials, endpoint.region, service)
        self._bucket = s3.location.bucket
        self._headers = [("Host", endpoint.host), *s3.headers]

    async def send(
        self,
        operation: str,
        path: str,
        headers: list[tuple[str, str]],
        key: str,
        n_bytes: int = 0,
        arrival: Arrival | None = None,
    ) -> Transfer:
        """A request without a body, and its whole answer.

        Args:
            n_bytes: of content that the answer will have.
            arrival: is told when the request was sent.

        Raises:
            StoreError: S3 or the network refused.
        """
        return await self._send(operation, self.request(operation, path, headers), key, n_bytes, arrival)

    async def send_body(
        self,
        operation: str,
        path: str,
        headers: list[tuple[str, str]],
        key: str,
        body: Body,
        checksum: S3ChecksumConfig | None,
    ) -> Transfer:
        """A request with a body, in one go; see `send`."""
        n_bytes = size_of(body)
        length = ("Content-Length", str(n_bytes))
        request = self.request(operation, path, [length, *headers])
        if n_bytes:
            request.body_stream = PieceStream(body)
        return await self._send(operation, request, key, min(n_bytes, self.transit.total), None, checksum)

    async def _send(
        self,
        operation: str,
        request: HttpRequest,
        key: str,
        n_bytes: int,
        arrival: Arrival | None,
        checksum: S3ChecksumConfig | None = None,
    ) -> Transfer:
        signing = await self.signing_of(request)
        taken = await self._enter(n_bytes, arrival)
        transfer = Transfer(trio.lowlevel.current_trio_token(), lambda: self.transit.leave(taken))
        transfer.request = self._client.make_request(
            type=_REQUESTS[operation][0],
            operation_name=operation,
            request=request,
            signing_config=signing,
            checksum_config=checksum,
            part_size=self.transit.part_size,
            on_headers=transfer.on_headers,
            on_body=transfer.on_body,
            on_done=transfer.on_done,
        )
        await transfer.wait()
        if transfer.failure is not None:
            raise self.refused(transfer.failure(operation=operation), key, operation)
        return transfer

    def request(self, operation: str, path: str, headers: list[tuple[str, str]]) -> HttpRequest:
        """What is sent, but for its body and signature."""
        return HttpRequest(_REQUESTS[operation][1], path, HttpHeaders([*self._headers, *headers]))

    async def signing_of(self, request: HttpRequest) -> AwsSigningConfig | None:
        """How to sign a request that is sent now; None for not at all.  A session's token is added to its headers.

        Raises:
            StoreError: see `KeySource.refresh`.
        """
        signing = None if self._signer is None else await self._signer.config()
        if self._sessions is not None and self._sessions.newest is not None:
            request.headers.set(TOKEN_HEADER, self._sessions.newest.session_token)
        return signing

    def refused(self, error: StoreError, key: str, operation: str) -> StoreError:
        """The error of a request as it is to be raised, with bucket, key and operation."""
        error.locate(self._bucket, key, operation)
        if self._sessions is None or not isinstance(error, BadCredentials | ExpiredCredentials):
            return error
        self._sessions.newest = None  # S3 knows it no more; asked again, it is another
        return StoreFailure(error.message, bucket=self._bucket, key=key, operation=operation)

    async def _enter(self, n_bytes: int, arrival: Arrival | None) -> int:
        """Wait for memory; meanwhile the request is not sent, and must not be taken for one that S3 keeps waiting."""
        if arrival is None:
            return await self.transit.enter(n_bytes)
        arrival.sent_at = math.inf
        taken = await self.transit.enter(n_bytes)
        arrival.sent_at = trio.current_time()
        return taken
