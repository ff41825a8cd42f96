"""One listing of one directory, on its way or whole, for any number of readers.

Entries only come, in pages; the offset of an entry is its place, for good.  Whoever needs the next page
reads it for all.  A page that fails is not remembered: that reader fails, and the next one asks again.
"""

from bisect import bisect_right
from collections.abc import Callable

import trio

from s3mount.core.entry_pages import EntryPages
from s3mount.core.keys import child_key
from s3mount.core.listing import Entry, HiddenKey, ListingFold, ListPage
from s3mount.fs.pages import PageStream, StampedPage

#: Called when a page was added.
Remember = Callable[["DirectoryScan", list[Entry], float], None]


class DirectoryScan:
    """A directory that is being listed.

    Args:
        started_at: on the cache's timer; no page was asked for earlier.
        stream: the pages to come; None when everything is there.
        remember: gets this scan, the entries of each page, and when it was asked for.

    Attributes:
        users: who reads it; with the last one it ends.
    """

    def __init__(
        self, key: str, started_at: float, stream: PageStream | None, remember: Remember, *, is_ordered: bool
    ) -> None:
        self.key = key
        self.started_at = started_at
        self.entries = EntryPages(key)
        self.users = 0
        self.is_complete = False
        self.pages = 0
        self._is_ordered = is_ordered
        self._fold = ListingFold(key, is_ordered=is_ordered)
        self._stream = stream
        self._remember = remember
        self._lock = trio.Lock()
        self._is_left = False
        #: (offset of a page's first entry, when it was asked for), one per page.
        self._stamps: list[tuple[int, float]] = []

    @classmethod
    def whole(cls, key: str, entries: EntryPages, asked_at: float) -> "DirectoryScan":
        """A directory that was listed before."""
        scan = cls(key, asked_at, None, _forget, is_ordered=True)
        scan.entries = entries
        scan.is_complete = True
        scan._stamps.append((0, asked_at))
        return scan

    @property
    def is_started(self) -> bool:
        """Whether anything was read, be it that there is nothing."""
        return bool(self._stamps)

    @property
    def first_asked_at(self) -> float:
        """When the oldest page was asked for."""
        return min(asked_at for _, asked_at in self._stamps)

    @property
    def hidden(self) -> list[HiddenKey]:
        """Keys that cannot be shown, so far."""
        return self._fold.hidden

    def asked_at(self, offset: int) -> float:
        """When the page was asked for that the entry at an offset came with."""
        return self._stamps[bisect_right(self._stamps, (offset, float("inf"))) - 1][1]

    async def reach(self, offset: int) -> None:
        """Until there is an entry at an offset, or everything is there.

        Raises:
            StoreError: a page could not be listed; the next call tries again.
        """
        async with self._lock:
            while len(self.entries) <= offset and not self.is_complete:
                await self._read_page()

    async def advance(self) -> None:
        """One page more, whether an entry comes with it or not.

        Raises:
            StoreError: as `reach`.
        """
        async with self._lock:
            if not self.is_complete:
                await self._read_page()

    async def _read_page(self) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()  # the stream may be closed by what cancels this task, too
        page = None if self._stream is None else await self._next_of(self._stream)
        if page is None:
            self.is_complete = True
            return
        self.pages += 1
        fresh = self._fold.add(page.page, is_last=page.is_last)
        asked_at = page.asked_at
        if self._stamps and self._has_older(fresh, page.page):
            asked_at = min(asked_at, self.first_asked_at)
        self._stamps.append((len(self.entries), asked_at))
        self.entries.append(fresh)
        self.is_complete = page.is_last
        self._remember(self, fresh, asked_at)

    async def _next_of(self, stream: PageStream) -> StampedPage | None:
        if self._is_left:
            self._is_left = False
            stream.forget_failure()
        try:
            return await stream.next()
        except trio.Cancelled:
            self._is_left = True  # the page may fail when nobody waits
            raise

    def _has_older(self, fresh: list[Entry], page: ListPage) -> bool:
        """Whether the fold held entries of earlier pages back until this one."""
        heads = [found.key for found in page.objects[:1]] + list(page.prefixes[:1])
        first = min((entry.name for entry in fresh), default=None)
        return not self._is_ordered or not heads or (first is not None and child_key(self.key, first) < min(heads))

    def join(self) -> None:
        """A reader came; pair it with the lister's `leave`.  What failed before does not fail it."""
        self.users += 1
        self._is_left = True

    def close(self) -> None:
        """Nobody reads it any more."""
        if self._stream is not None:
            self._stream.close()

    def check_invariants(self) -> None:
        """Raises ValueError when more users left than came, or the stream is inconsistent."""
        if self.users < 0:
            raise ValueError("more readers left a listing than joined it")
        if self._stream is not None:
            self._stream.check_invariants()


def _forget(_scan: DirectoryScan, _fresh: list[Entry], _asked_at: float) -> None:
    return
