"""The seam to S3: what the file system asks of an object store, in our own types.

Every implementation (aiobotocore, the AWS CRT, the fakes of the tests) passes the same
conformance suite, tests/store/test_conformance.py.

Contract for all of them: only `errors.StoreError` and its subclasses leave a method; a call can
be cancelled at any time and leaves nothing behind; bytes returned are exactly the range asked
for, of exactly the version asked for.
"""

from typing import Protocol

from s3mount.core.attrs import ObjectId, ObjectStat
from s3mount.core.listing import ListPage
from s3mount.core.ranges import ByteRange
from s3mount.core.waits import Arrival

#: S3 API, ListObjectsV2: the largest page, and the default.
MAX_PAGE = 1000


class Catalogue(Protocol):
    """Names and attributes: the control plane."""

    @property
    def is_ordered(self) -> bool:
        """Whether `list_page` returns keys in UTF-8 order."""
        ...

    async def list_page(
        self,
        prefix: str,
        *,
        delimiter: str = "/",
        token: str | None = None,
        max_keys: int = MAX_PAGE,
        start_after: str = "",
    ) -> ListPage:
        """One page of the keys that start with `prefix`.

        Args:
            start_after: only keys strictly greater than this (S3 API, StartAfter); only for the
                first page, and only where the store is ordered.  Of a common prefix that is not
                itself greater, although keys under it are, servers differ on whether it is there.

        Raises:
            AccessDenied, BucketNotFound, StoreThrottled, StoreFailure, StoreTimeout.
        """
        ...

    async def head(self, key: str) -> ObjectStat:
        """The current version of one object.

        Raises:
            ObjectNotFound: no such key.  Otherwise as `list_page`.
        """
        ...


class RangeReader(Protocol):
    """Content: the data plane."""

    async def confirm(self, wanted: ObjectId) -> None:
        """S3 still has exactly this version under the key: one request without a body.

        Where the ETag is not known, that there is an object.

        Raises:
            ObjectChanged: the key has another version now, or is gone.  Otherwise as
                `Catalogue.list_page`; with no body the HTTP status alone decides.
        """
        ...

    async def get_range(self, wanted: ObjectId, span: ByteRange, arrival: Arrival | None = None) -> bytes:
        """Bytes of one version of one object.

        Args:
            span: not empty, and within the object.
            arrival: is told when the bytes that are returned came, in trio's time.

        Raises:
            ObjectChanged: the key has another version now, or is gone.
            ArchivedObject: it has to be restored first.  Otherwise as `Catalogue.list_page`.
        """
        ...


class ObjectStore(Catalogue, RangeReader, Protocol):
    """Both planes; what `fs` is given."""
