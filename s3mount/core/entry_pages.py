"""The entries of one directory as they were listed: packed pages, and offsets that stay.

A page is sorted in itself (`core.listing.place`) and never changes, so the place of an entry is its offset for good,
and on a store that keeps its order it is the same however the directory was listed.  Where a store lists in no
order the ranges of pages overlap, so a name is searched in every page whose range holds it.

INVARIANT: a name is in one page at most.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from s3mount.core.keys import SEPARATOR
from s3mount.core.listing import Entry, place
from s3mount.core.packed import PackedEntries

#: Entries unpacked at once: a page may hold a whole directory, of which a reader takes a reply's worth.
_MAX_UNPACKED = 1000


class _Index(NamedTuple):
    """Pages in the order of their first entries' places, and the greatest place of each and of all before it."""

    firsts: list[str]
    lasts: list[str]
    greatest: list[str]
    pages: list[PackedEntries]


class EntryPages:
    """Grows by pages.

    Args:
        directory_key: the prefix that is listed.
    """

    __slots__ = ("_directory_key", "_index", "_length", "_pages", "_starts")

    def __init__(self, directory_key: str, entries: Iterable[Entry] = ()) -> None:
        self._directory_key = directory_key
        self._pages: list[PackedEntries] = []
        self._starts: list[int] = []
        self._length = 0
        self._index: _Index | None = None
        self.append(entries)

    def append(self, entries: Iterable[Entry]) -> None:
        """Add what one page of the listing made final."""
        page = PackedEntries(self._directory_key, entries)
        if len(page):
            self._starts.append(self._length)
            self._pages.append(page)
            self._length += len(page)
            self._index = None

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Entry]:
        for page in self._pages:
            yield from page

    def some_from(self, offset: int) -> list[Entry]:
        """Some entries from an offset on, of one page; empty only at the end of all."""
        if offset >= self._length:
            return []
        at = bisect_right(self._starts, offset) - 1
        begin = offset - self._starts[at]
        return self._pages[at][begin : begin + _MAX_UNPACKED]

    def get(self, name: str) -> Entry | None:
        """The entry of a name."""
        if self._index is None:
            self._index = self._make_index()
        wanted = name + SEPARATOR
        at = bisect_right(self._index.firsts, wanted) - 1
        while at >= 0 and self._index.greatest[at] >= wanted:
            if self._index.lasts[at] >= wanted and (entry := self._index.pages[at].get(name)) is not None:
                return entry
            at -= 1
        return None

    def pages(self) -> Iterator[Sequence[Entry]]:
        """The entries, some at a time."""
        return iter(self._pages)

    def has_names_of(self, other: "EntryPages") -> bool:
        """Whether both have the same names; what came in other pages counts as different."""
        pairs = zip(self._pages, other._pages, strict=False)
        return len(self._pages) == len(other._pages) and all(mine.has_names_of(theirs) for mine, theirs in pairs)

    def lost(self, newer: "EntryPages") -> Iterator[list[Entry]]:
        """The entries whose names a newer listing of the directory has not, some at a time."""
        for page in self._pages:
            beside = newer._beside(page)
            if not any(page.has_names_of(each) for each in beside):
                yield page.without({raw for each in beside for raw in each.raw_names()})

    def _beside(self, page: PackedEntries) -> list[PackedEntries]:
        """Pages that may have a name of another listing's page."""
        if self._index is None:
            self._index = self._make_index()
        first, last = place(page[0]), place(page[-1])
        found = []
        at = bisect_right(self._index.firsts, last) - 1
        while at >= 0 and self._index.greatest[at] >= first:
            if self._index.lasts[at] >= first:
                found.append(self._index.pages[at])
            at -= 1
        return found

    def _make_index(self) -> _Index:
        pages = sorted(self._pages, key=lambda page: place(page[0]))
        lasts = [place(page[-1]) for page in pages]
        return _Index([place(page[0]) for page in pages], lasts, list(accumulate(lasts, max)), pages)

    def check_invariants(self) -> None:
        """Raises ValueError when a name is there twice, or a page is not in order."""
        for page in self._pages:
            page.check_invariants()
        if len({entry.name for page in self._pages for entry in page}) != self._length:
            raise ValueError(f"a name is twice in {self._directory_key!r}")
