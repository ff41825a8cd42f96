"""Look-ups that had to ask S3, counted by directory: after a few the directory is listed in the background.

A program that opens many names of a directory which nobody listed pays one LIST for each.  A thousand
names come with one LIST of the directory.  But the directory may be huge, and the program may want few of
its names; so the listing goes on only as further look-ups pay for it: `_PAGES_PER_MISS` pages for each that
has to ask S3, and the one LIST that it saved for each that has not.

The names listed so far answer look-ups; the whole listing is kept by the lister as any other.

A program that makes many files has each looked up by the kernel first, in vain: a LIST for every file.  A directory in
which this mount makes files is FILLING.  A look-up in it believes for `FILLING_S` that a name which was not listed is
not there; the write that follows says If-None-Match all the same.  What is listed for it:

    names come in order       one page, from the least of the last names on (cache.stretches)
    three showed too little   for a while no such page, but as long as the directory is small all of it, whenever four
                              more look-ups had to ask

INVARIANT: a directory is listed at most once at a time, and at most `_MAX_AT_ONCE` are.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import trio

from s3mount.core.keys import split_key
from s3mount.core.listing import Entry
from s3mount.errors import StoreError
from s3mount.fs.directories import DirectoryLister
from s3mount.fs.scans import DirectoryScan

V = TypeVar("V")

#: Misses that make it worth it, and pages that each then pays for.
_WORTH_LISTING = 4
_PAGES_PER_MISS = 2
_MAX_AT_ONCE = 4
#: Pages asked for before they are paid.
_AHEAD_PAGES = 8
#: Seconds without a look-up after which a listing that waits for one ends; and before the next of that directory.
_IDLE_S = 10.0
_REST_S = 60.0
#: A directory is filling when as many files were made in it, none of them longer after the one before it.
_FILLING_FILES = 4
#: Several processes make names in turn, each by its own pace.
_LAST_PATHS = 16
#: Names in no order: after so many pages in vain there is none for `_REST_S`.
_MAX_VAIN = 3
FILLING_S = 1.0
#: One with more pages is not worth it.
_SMALL_PAGES = 8
#: Directories counted; the least recently missed goes first.
_MAX_COUNTED = 1_000


@dataclass(frozen=True)
class MissStatistics:
    """Directories listed in the background since the start, and now."""

    started: int
    running: int


class _Background:
    """One directory that is being listed.  `paid`: pages that may be read."""

    def __init__(self, scan: DirectoryScan) -> None:
        self.scan = scan
        self.paid = _WORTH_LISTING * _PAGES_PER_MISS
        self.more = trio.Event()

    def pay(self, pages: int) -> None:
        self.paid += pages
        self.more.set()
        self.more = trio.Event()


class _Rest(NamedTuple):
    """Attributes: no listing before that time, on trio's clock, and the pages of the last one."""

    until: float
    pages: int


class _Filling(NamedTuple):
    """Attributes: files made in a directory, each soon after another; when the last was; the last paths."""

    files: int
    last_at: float
    paths: tuple[str, ...]


class _Vain(NamedTuple):
    """Attributes: pages of a directory, one after the other, that did not tell of the path; when the last came."""

    pages: int
    last_at: float


class MissCounter:
    """Counts misses and lists in the background.

    Args:
        nursery: outlives every request; the listings run in it.
    """

    def __init__(self, lister: DirectoryLister, nursery: trio.Nursery) -> None:
        self._lister = lister
        self._nursery = nursery
        self._misses: OrderedDict[str, int] = OrderedDict()
        self._rests: OrderedDict[str, _Rest] = OrderedDict()
        self._filling: OrderedDict[str, _Filling] = OrderedDict()
        self._vain: OrderedDict[str, _Vain] = OrderedDict()
        self._running: dict[str, _Background] = {}
        self._started = 0

    def missed(self, path: str) -> None:
        """A look-up had to ask S3 about a path; its directory's listing would have had the answer."""
        key = split_key(path)[0]
        if key in self._running:
            self._running[key].pay(_PAGES_PER_MISS)
        if key in self._running or self._lister.is_oversized(key):
            return
        count = self._misses.pop(key, 0) + 1
        if count < _WORTH_LISTING or len(self._running) >= _MAX_AT_ONCE or self._is_resting(key):
            _note(self._misses, key, count)
            return
        self._started += 1
        scan = self._lister.scan(key, ahead_pages=_AHEAD_PAGES)
        scan.join()
        background = self._running[key] = _Background(scan)
        self._nursery.start_soon(self._list, key, background)

    def find(self, path: str) -> tuple[Entry, float] | None:
        """What a listing that is under way has seen under a path, and when it was asked."""
        key, name = split_key(path)
        background = self._running.get(key)
        entry = None if background is None else background.scan.entries.get(name)
        if background is None or entry is None:
            return None
        background.pay(1)
        return entry, background.scan.first_asked_at

    def created(self, path: str) -> None:
        """This mount makes a file."""
        key, now = split_key(path)[0], trio.current_time()
        known = self._filling.pop(key, None)
        if known is None or now - known.last_at > FILLING_S:
            known = _Filling(0, now, ())
        _note(self._filling, key, _Filling(known.files + 1, now, (*known.paths[1 - _LAST_PATHS :], path)))

    def page_from(self, path: str) -> str | None:
        """The path from which on a directory being filled is to be listed for a look-up; None for not at all."""
        key = split_key(path)[0]
        vain = self._vain.get(key)
        if vain is not None and vain.pages >= _MAX_VAIN and trio.current_time() - vain.last_at < _REST_S:
            return None
        return min((path, *self._filling[key].paths)) if self._is_filling(key) else None

    def paged(self, path: str, *, is_enough: bool) -> None:
        """Such a page came; it may have shown too little to tell of the path."""
        key = split_key(path)[0]
        before = self._vain.pop(key, None)
        if not is_enough:
            _note(self._vain, key, _Vain(1 if before is None else before.pages + 1, trio.current_time()))

    def is_filling(self, path: str) -> bool:
        """Whether this mount is making many files in the directory of a path."""
        return self._is_filling(split_key(path)[0])

    def _is_filling(self, key: str) -> bool:
        known = self._filling.get(key)
        return known is not None and known.files >= _FILLING_FILES and trio.current_time() - known.last_at <= FILLING_S

    def _is_resting(self, key: str) -> bool:
        rest = self._rests.get(key)
        if rest is None or rest.until <= trio.current_time():
            return False
        return rest.pages > _SMALL_PAGES or not self._is_filling(key)

    async def _list(self, key: str, background: _Background) -> None:
        try:
            while not background.scan.is_complete:
                if background.scan.pages >= background.paid:
                    with trio.fail_after(_IDLE_S):
                        await background.more.wait()
                await background.scan.advance()
        except (StoreError, trio.TooSlowError):
            pass  # nobody waits for it; who needs a name asks for it alone
        finally:
            del self._running[key]
            self._lister.leave(background.scan)
            _note(self._rests, key, _Rest(trio.current_time() + _REST_S, background.scan.pages))

    def statistics(self) -> MissStatistics:
        """A snapshot of the counters."""
        return MissStatistics(self._started, len(self._running))

    def check_invariants(self) -> None:
        """Raises ValueError when too many directories are listed at once, or one that nobody reads."""
        if len(self._running) > _MAX_AT_ONCE:
            raise ValueError("too many directories are listed in the background")
        if any(background.scan.users < 1 for background in self._running.values()):
            raise ValueError("a background listing has no user")


def _note(table: OrderedDict[str, V], key: str, value: V) -> None:
    table[key] = value
    if len(table) > _MAX_COUNTED:
        table.popitem(last=False)
