"""A bucket's catalogue by the cheaper client for each request: LIST by the CRT, HEAD by aiobotocore.

Measured, CPU of one LIST: aiobotocore 2.9 ms for one name and 60 to 150 ms for 1,000, on the thread
that also answers the kernel; the CRT with `list_xml` 0.8 ms and 6 to 16 ms
(docs/decisions/0008-list-by-the-crt.md).
"""

from typing import Protocol

from s3mount.core.attrs import ObjectStat
from s3mount.core.listing import ListPage
from s3mount.store.base import MAX_PAGE, Catalogue


class Lister(Protocol):
    """What lists, and need not HEAD."""

    async def list_page(
        self,
        prefix: str,
        *,
        delimiter: str = "/",
        token: str | None = None,
        max_keys: int = MAX_PAGE,
        start_after: str = "",
    ) -> ListPage:
        """See `Catalogue.list_page`."""
        ...


class SplitCatalogue:
    """A `Catalogue` out of two.

    Args:
        lister: answers LIST.
        full: answers the rest.
    """

    def __init__(self, lister: Lister, full: Catalogue) -> None:
        self._full = full
        self._lister = lister

    @property
    def is_ordered(self) -> bool:
        """See `Catalogue.is_ordered`."""
        return self._full.is_ordered

    async def list_page(
        self,
        prefix: str,
        *,
        delimiter: str = "/",
        token: str | None = None,
        max_keys: int = MAX_PAGE,
        start_after: str = "",
    ) -> ListPage:
        """See `Catalogue.list_page`."""
        return await self._lister.list_page(
            prefix, delimiter=delimiter, token=token, max_keys=max_keys, start_after=start_after
        )

    async def head(self, key: str) -> ObjectStat:
        """See `Catalogue.head`."""
        return await self._full.head(key)
