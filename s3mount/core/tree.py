"""A flat listing of a subtree folded into whole directories.

LIST without a delimiter gives every key below a prefix in UTF-8 order, which is the order of code
points.  The keys below one directory are neighbours there, so the directories that are not yet
complete are those the last key lies in: a stack.  A directory is complete when a key comes that
does not start with its key, or when the listing ends.  What it shows and hides is decided as
`ListingFold` decides it from pages with a delimiter, only without waiting: `a` and `a/` are both
there before the directory they are in is complete.

A listing may start in the middle, after some key.  A directory which that key lies in has lost its
first entries and is never reported; what lies deeper and starts later is.

A store that promises order but does not keep it would make whole directories of halves.  So a key
that is not greater than its predecessor, or not below the root, ends all reports: `is_broken`.

INVARIANT: a directory is reported once, and equals what `ListingFold` makes of its own listing.
INVARIANT: entries are held only of directories on the stack, and only where they will be reported.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from s3mount.core.attrs import ObjectStat
from s3mount.core.keys import SEPARATOR, is_legal_component
from s3mount.core.listing import BAD_COMPONENT, BAD_NAME, MARKER_WITH_CONTENT, Entry, HiddenKey, shadowed
from s3mount.core.symlinks import shown_name


class TreeDirectory(NamedTuple):
    """A whole directory: its entries in order of name, and the keys directly in it that cannot be shown."""

    directory_key: str
    entries: list[Entry]
    hidden: list[HiddenKey]


@dataclass(frozen=True)
class TreeStatistics:
    """Directories on the stack, and the entries held for them."""

    open: int
    held: int


@dataclass(slots=True)
class _Open:
    """A directory on the stack, or a prefix that cannot be shown.

    Attributes:
        is_whole: all its keys are in the listing; of another nothing is kept.
        is_shown: False below an illegal component; nothing there is looked at.
    """

    key: str
    is_whole: bool
    is_shown: bool = True
    entries: dict[str, ObjectStat | None] = field(default_factory=dict)
    hidden: list[HiddenKey] = field(default_factory=list)

    def take_object(self, name: str, found: ObjectStat) -> None:
        if name == "":
            if found.size:
                self.hidden.append(HiddenKey(found.key, MARKER_WITH_CONTENT))
        elif is_legal_component(shown_name(name)):
            self.entries.setdefault(shown_name(name), found)  # the file comes before the link
        else:
            self.hidden.append(HiddenKey(found.key, BAD_NAME))

    def take_directory(self, name: str) -> None:
        if not is_legal_component(name):
            self.hidden.append(HiddenKey(self.key + name + SEPARATOR, BAD_COMPONENT))
            return
        if name in self.entries:  # as a file: a directory is opened once
            self.hidden.append(shadowed(self.key + name))
        self.entries[name] = None

    def close(self) -> TreeDirectory:
        entries = [Entry(name, self.entries[name]) for name in sorted(self.entries)]
        return TreeDirectory(self.key, entries, self.hidden)


class TreeFold:
    """The directories of a subtree out of its flat LIST pages.

    Args:
        root_key: the prefix that was listed, empty or ending in `/`.
        start_after: the listing has only keys greater than this; empty when it has all.

    Attributes:
        frontier: the last key seen, at first `start_after`.
        is_broken: a key came out of order, or from outside the root; nothing more is reported.
    """

    def __init__(self, root_key: str, *, start_after: str = "") -> None:
        self._root_key = root_key
        self._start_after = start_after
        self.frontier = start_after
        self.is_broken = False
        self._stack = [_Open(root_key, self._has_all_of(root_key))]

    def add(self, objects: Sequence[ObjectStat], *, is_last: bool) -> list[TreeDirectory]:
        """Directories that are complete with this page, each before the one it lies in.

        The root is among those of the last page even when nothing was listed.  What was reported
        before a listing turned out to be broken may be wrong.

        Args:
            objects: the page's keys in UTF-8 order, each greater than all before; may be empty.
            is_last: no key follows; nothing may be added afterwards.
        """
        complete: list[TreeDirectory] = []
        if not self._take(objects, complete):
            self.is_broken = True
            self._stack.clear()
            return []
        while is_last and self._stack:
            self._close_top(complete)
        return complete

    def _take(self, objects: Sequence[ObjectStat], complete: list[TreeDirectory]) -> bool:
        """Put each object in its directory; False when a key cannot come here."""
        for found in objects:
            key = found.key
            if key <= self.frontier or not (self._stack and key.startswith(self._root_key)):
                return False
            self.frontier = key
            while not key.startswith(self._stack[-1].key):
                self._close_top(complete)
            top = self._stack[-1]
            name = key[len(top.key) :]
            if SEPARATOR in name:
                top, name = self._descend(name)
            if top.is_whole and top.is_shown:
                top.take_object(name, found)
        return True

    def _descend(self, path: str) -> tuple[_Open, str]:
        """Open the directories in a path below the top; returns the new top and the name in it."""
        top = self._stack[-1]
        while SEPARATOR in path and top.is_shown:
            component, _, path = path.partition(SEPARATOR)
            if top.is_whole:
                top.take_directory(component)
            key = top.key + component + SEPARATOR
            top = _Open(key, self._has_all_of(key), is_shown=is_legal_component(component))
            self._stack.append(top)
        return top, path

    def _has_all_of(self, directory_key: str) -> bool:
        """Whether the listing started before the first key that a directory can have."""
        return not self._start_after or self._start_after < directory_key

    def _close_top(self, complete: list[TreeDirectory]) -> None:
        top = self._stack.pop()
        if top.is_whole and top.is_shown:
            complete.append(top.close())

    @property
    def innermost(self) -> str | None:
        """The directory that the last key lies in directly; None when nothing is open."""
        return self._stack[-1].key if self._stack else None

    def is_inside(self, directory_key: str) -> bool:
        """Whether the listing is in a directory that will be reported, as far as one can tell by now."""
        return any(each.key == directory_key and each.is_whole and each.is_shown for each in self._stack)

    def statistics(self) -> TreeStatistics:
        """A snapshot of the counts."""
        return TreeStatistics(len(self._stack), sum(len(each.entries) for each in self._stack))

    def check_invariants(self) -> None:
        """Raises ValueError when the stack is not a chain of directories that holds the frontier."""
        for outer, inner in pairwise(self._stack):
            if not inner.key.startswith(outer.key) or len(inner.key) == len(outer.key):
                raise ValueError(f"{inner.key!r} is on the stack, but not inside {outer.key!r}")
            if not outer.is_shown:
                raise ValueError(f"something is open below {outer.key!r}, which cannot be shown")
        for each in self._stack:
            if each.entries and not (each.is_whole and each.is_shown):
                raise ValueError(f"entries are held of {each.key!r}, which is never reported")
        if len(self._stack) > 1 and not self.frontier.startswith(self._stack[-1].key):
            raise ValueError(f"the listing is at {self.frontier!r}, but {self._stack[-1].key!r} is open")
