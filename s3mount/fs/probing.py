"""What S3 has under one path: which requests to send, and what their answers mean together.

`LIST(prefix=path, delimiter="/")` tells a file from a directory in one request (decision 4).  A
second, `LIST(prefix=path/)`, only when the page ended before `path/` would have come, that is
when more than a page of names lies between `path` and `path/`.

Two requests at once, HEAD of the path and `LIST(prefix=path/)`, where that LIST proves nothing: a store that
lists in no order, and credentials that may not list this prefix.  One that fails does not matter
when the other answered.  Credentials that may read objects but list nothing leave open whether a name
without an object is a directory: it is taken for one, or no path through it could be opened.

Where a page shows neither a file nor a directory, and might have hidden a symbolic link (core.symlinks), one more HEAD
asks for that: only of names that are absent.
"""

import logging
import math
from typing import NamedTuple

import trio

from s3mount.core.attrs import ObjectStat
from s3mount.core.keys import SEPARATOR, just_before, split_key
from s3mount.core.listing import ListingFold, ListPage, Verdict, judge
from s3mount.core.symlinks import link_key
from s3mount.errors import AccessDenied, ObjectNotFound
from s3mount.fs.directories import DirectoryLister
from s3mount.fs.flight import Flight
from s3mount.store.base import MAX_PAGE, Catalogue

log = logging.getLogger(__name__)

#: Seconds for which a directory whose LIST was denied is not listed for a look-up again.
_DENIAL_S = 60.0
_MAX_DENIED = 10_000
#: A LIST for one name needs the names that start with it: rarely more, and parsing costs.
_LOOKUP_PAGE = 100


class Found(NamedTuple):
    """What is there.

    Attributes:
        found: the object; None for a directory, and for nothing.
        is_proven: False when a request failed that might have said otherwise: good for this answer only.
    """

    found: ObjectStat | None
    is_directory: bool = False
    is_proven: bool = True


class NameProbe:
    """Asks S3.

    Args:
        lister: knows which directories are too large to keep, and remembers names that come along.
        may_list: False when the user said that the credentials may not.
    """

    def __init__(self, store: Catalogue, lister: DirectoryLister, *, may_list: bool = True) -> None:
        self._store = store
        self._lister = lister
        self.may_list = may_list
        self._denied: dict[str, float] = {}  # a directory's key → when its LIST was denied

    async def ask(self, path: str, now: float) -> Found:
        """What is under a path: a full key without a trailing slash.

        Args:
            now: on the timer of whoever remembers the answer.

        Raises:
            StoreError: S3 could not be asked.
        """
        directory_key = split_key(path)[0]
        if not self.may_list:
            return await self._by_head(path)
        if not self._may_page(directory_key, now):
            return await self._by_two_requests(path)
        try:
            return await self._by_list(path, now)
        except AccessDenied as error:
            if not _is_plain(error):  # the credentials are bad: nothing else will work
                raise
            self._note_denial(directory_key, now, error)
            return await self._by_two_requests(path)

    async def ask_from(self, start: str, now: float) -> ListPage | None:
        """A page of a path's directory, from that path on; None if a LIST cannot be had.

        Raises StoreError: S3 could not be asked.
        """
        directory_key = split_key(start)[0]
        if not self._may_page(directory_key, now):
            return None
        return await self._first_page(directory_key, _LOOKUP_PAGE, start_after=just_before(start))

    def _may_page(self, directory_key: str, now: float) -> bool:
        """Whether a LIST is in order, and was not refused."""
        is_denied = self._denied.get(directory_key, -math.inf) > now - _DENIAL_S
        return self.may_list and self._store.is_ordered and not is_denied

    def _note_denial(self, directory_key: str, now: float, error: AccessDenied) -> None:
        if not self._denied:
            log.warning("listing is denied, names are looked up one by one: %s", error)
        if len(self._denied) >= _MAX_DENIED:
            self._denied.clear()
        self._denied[directory_key] = now

    async def _by_list(self, path: str, now: float) -> Found:
        directory_key = split_key(path)[0]
        if self._lister.is_oversized(directory_key):  # whoever looks one name up looks up the next
            page = await self._first_page(directory_key, MAX_PAGE, start_after=just_before(path))
            self._lister.remember_names(directory_key, ListingFold(directory_key).add(page), now)
        else:
            page = await self._first_page(path, _LOOKUP_PAGE)
        verdict, found = judge(path, page)
        is_directory = verdict is Verdict.DIRECTORY
        if is_directory and self._lister.was_removed(path):
            is_directory = await self._lister.has_key(path)
        if verdict is Verdict.CUT_OFF:
            is_directory = await self._is_directory(path)
            if not is_directory and found is None:
                found = await self._link(path)
        return Found(None if is_directory else found, is_directory)

    async def _by_head(self, path: str) -> Found:
        """With credentials that may list nothing: what is no object is taken for a directory."""
        try:
            return Found(await self._store.head(path))
        except ObjectNotFound:
            return Found(None, is_directory=True)
        except AccessDenied as error:
            if not _is_plain(error):
                raise
            return Found(None, is_directory=True)

    async def _by_two_requests(self, path: str) -> Found:
        below: Flight[bool] = Flight()
        head: Flight[ObjectStat] = Flight()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(below.carry, self._is_directory, path)
            nursery.start_soon(head.carry, self._store.head, path)
        is_denied = _is_plain(below.failure)
        if below.failure is None and below.result():
            return Found(None, is_directory=True)
        if head.failure is None:
            return Found(head.result(), is_proven=below.failure is None or is_denied)
        if below.failure is not None and not is_denied:
            raise below.failure
        is_absent = isinstance(head.failure, ObjectNotFound)
        if is_denied and (is_absent or _is_plain(head.failure)):
            return Found(None, is_directory=True)
        if not is_absent:
            raise head.failure
        return Found(await self._link(path))

    async def _link(self, path: str) -> ObjectStat | None:
        """The object of a symbolic link, where no page has shown it."""
        try:
            return await self._store.head(link_key(path))
        except ObjectNotFound:
            return None

    async def _is_directory(self, path: str) -> bool:
        page = await self._first_page(path + SEPARATOR, 1)
        return not page.is_empty and (not self._lister.was_removed(path) or await self._lister.has_key(path))

    async def _first_page(self, prefix: str, max_keys: int, start_after: str = "") -> ListPage:
        """The first page with anything on it: some stores send empty ones before the last."""
        page = await self._store.list_page(prefix, max_keys=max_keys, start_after=start_after)
        while page.is_empty and page.next_token is not None:
            page = await self._store.list_page(prefix, token=page.next_token, max_keys=max_keys)
        return page


def _is_plain(error: BaseException | None) -> bool:
    """Whether a permission is missing; not that the credentials are bad, which is a kind of it."""
    return type(error) is AccessDenied
