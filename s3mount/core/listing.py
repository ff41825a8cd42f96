"""LIST pages folded into directory entries, and one LIST read as the answer to a lookup.

S3 sorts keys as UTF-8 bytes, so the directory `a/` does not stand beside the object `a`:
`a-1` and `a.txt` lie between them, perhaps a page away.  A directory shadows a file of the
same name, so `ListingFold` holds an object back until the listing has passed the place where
its directory would stand.  At the end of a page those are only objects whose key is a prefix
of the page's last key: never more than the length of a key.

A store that lists in no order (S3 Express directory buckets) gives no such point; there every
entry is held until the listing is complete.

A symbolic link is an object beside (core.symlinks): its entry has the name of the link, and the object that it is.

So the entries of an ordered listing come in the order of `place`, whatever the pages: the n-th is the n-th for a
daemon that lists the directory anew.

INVARIANT: each name comes out once; a directory wins over a file, a file over a link; what comes out is final.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from s3mount.core.attrs import ObjectStat
from s3mount.core.keys import SEPARATOR, is_legal_component
from s3mount.core.symlinks import is_link_key, link_key, shown_name


@dataclass(frozen=True, slots=True)
class ListPage:
    """One answer to a LIST.

    Attributes:
        objects: keys that have no delimiter after the prefix asked for.
        prefixes: common prefixes, each ending in the delimiter.
        next_token: where the next page starts; None on the last page.
    """

    objects: tuple[ObjectStat, ...]
    prefixes: tuple[str, ...]
    next_token: str | None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is on it; an empty page need not be the last."""
        return not self.objects and not self.prefixes

    @property
    def last_key(self) -> str:
        """The greatest key or prefix of the page in S3's order; empty for an empty page."""
        tails = ([self.objects[-1].key] if self.objects else []) + list(self.prefixes[-1:])
        return max(tails, key=_utf8, default="")


class Entry(NamedTuple):
    """One name in a directory.  `found` is None for a directory."""

    name: str
    found: ObjectStat | None

    @property
    def is_directory(self) -> bool:
        """Whether it has no object of its own."""
        return self.found is None


@dataclass(frozen=True, slots=True)
class HiddenKey:
    """A key that cannot be shown, and why."""

    key: str
    reason: str


BAD_COMPONENT = "a component is empty, '.', '..', or holds a NUL"
BAD_NAME = "the name is '.', '..', or holds a NUL"
MARKER_WITH_CONTENT = "a directory marker with content"


def shadowed(key: str) -> HiddenKey:
    """A file that a directory of the same name hides."""
    return HiddenKey(key, f"shadowed by the directory {key + SEPARATOR!r}")


class ListingFold:
    """The entries of one directory out of its LIST pages.

    Args:
        directory_key: the prefix that was listed, empty or ending in `/`.
        is_ordered: whether the store lists in key order.
    """

    def __init__(self, directory_key: str, *, is_ordered: bool = True) -> None:
        self._directory_key = directory_key
        self._is_ordered = is_ordered
        self._held: dict[str, ObjectStat] = {}
        self._directories: set[str] = set()
        self._files: set[str] = set()
        self._last_key = ""  # the greatest of all pages: one may be empty, or behind its predecessor's end
        self.hidden: list[HiddenKey] = []

    def add(self, page: ListPage, *, is_last: bool | None = None) -> list[Entry]:
        """Entries that are final after this page, in the order of `place`.

        Args:
            page: may repeat keys of earlier pages; of an ordered store every key up to the
                greatest one seen so far must have been on this page or an earlier one.
            is_last: whether the listing ends with it; None when the page itself tells, as it
                does unless the directory is listed by several ranges of keys.
        """
        is_complete = page.next_token is None if is_last is None else is_last
        fresh = self._take_prefixes(page.prefixes)
        self._take_objects(page.objects)
        self._last_key = max(self._last_key, page.last_key, key=_utf8)
        if not self._is_ordered and not is_complete:
            return fresh
        return sorted([*fresh, *self._release(is_complete=is_complete)], key=place)

    def _take_prefixes(self, prefixes: Iterable[str]) -> list[Entry]:
        fresh = []
        for prefix in prefixes:
            name = prefix[len(self._directory_key) : -1]
            if not is_legal_component(name):
                self.hidden.append(HiddenKey(prefix, BAD_COMPONENT))
            elif name not in self._directories and name not in self._files:  # the file may be out, and stays
                self._directories.add(name)
                if self._held.pop(name, None) is not None:
                    self._hide_shadowed(name)
                fresh.append(Entry(name, None))
        return fresh

    def _take_objects(self, objects: Iterable[ObjectStat]) -> None:
        for found in objects:
            name = shown_name(found.key[len(self._directory_key) :])
            if found.key == self._directory_key:
                if found.size:
                    self.hidden.append(HiddenKey(found.key, MARKER_WITH_CONTENT))
            elif not is_legal_component(name):
                self.hidden.append(HiddenKey(found.key, BAD_NAME))
            elif name in self._directories:
                self._hide_shadowed(name)
            elif name not in self._files and not (is_link_key(found.key) and name in self._held):
                self._held[name] = found

    def _hide_shadowed(self, name: str) -> None:
        self.hidden.append(shadowed(self._directory_key + name))

    def _release(self, *, is_complete: bool) -> list[Entry]:
        """Held objects that no later page can shadow."""
        final = [
            Entry(name, found)
            for name, found in self._held.items()
            if is_complete or not _could_be_shadowed_after(self._directory_key + name, self._last_key)
        ]
        for entry in final:
            del self._held[entry.name]
            self._files.add(entry.name)
        return final

    def check_invariants(self) -> None:
        """Raises ValueError when a name is both a file and a directory, or held though decided."""
        both = self._directories & (self._files | self._held.keys())
        if both or self._files & self._held.keys():
            raise ValueError(f"names decided twice: {both or self._files & self._held.keys()}")


def _could_be_shadowed_after(key: str, last_key: str) -> bool:
    """Whether `key + "/"` may still come after `last_key`, given that key <= last_key.

    UTF-8 sorts as its code points do, so a key between `key` and `key + "/"` starts with `key`.
    """
    return last_key.startswith(key) and _utf8(last_key) < _utf8(key + SEPARATOR)


def place(entry: Entry) -> str:
    """Where an entry stands among those of its directory: where a listing comes past its directory, were it one."""
    return entry.name + SEPARATOR


def _utf8(key: str) -> bytes:
    return key.encode("utf-8", "surrogatepass")


class Verdict(Enum):
    """What one LIST with the path as its prefix says about the path."""

    FILE = "file"
    DIRECTORY = "directory"
    ABSENT = "absent"
    #: The page ended before `path/` would have come: ask for `path/` alone.
    CUT_OFF = "cut off"


def judge(path: str, page: ListPage) -> tuple[Verdict, ObjectStat | None]:
    """File or directory in one request: reads LIST(prefix=path, delimiter="/").

    Returns:
        The verdict, and the object with exactly that key, or else that of a link, where the page has one.  With
        CUT_OFF the object is the answer unless something lies below `path/`; if there is none, a link may come.
    """
    there = {each.key: each for each in page.objects if each.key in (path, link_key(path))}
    found = there.get(path) or there.get(link_key(path))
    if path + SEPARATOR in page.prefixes:
        return Verdict.DIRECTORY, found
    if page.next_token is not None and _utf8(page.last_key) < _utf8(path + SEPARATOR):
        return Verdict.CUT_OFF, found
    return (Verdict.FILE if found else Verdict.ABSENT), found
