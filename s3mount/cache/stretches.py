"""Stretches of directories: what one page of names said of everything between its first and its last.

Who makes many files mostly makes them in order, so that none of the names to come is there, and one page says so of
all of them (fs.misses).

Bounded by directories: the least recently used go first.
"""

from typing import NamedTuple

from cachetools import LRUCache

from s3mount.core.keys import SEPARATOR, is_directory_key
from s3mount.core.listing import ListPage
from s3mount.core.symlinks import link_key

#: Each counts for a second (fs.misses), and may be 100 keys of 1 KiB: 7 MiB at most, some 1 MiB mostly.
_MAX_STRETCHES = 64


class Stretch(NamedTuple):
    """Attributes: its first path; the first behind it, None for all; keys and common prefixes; when S3 was asked."""

    start: str
    end: str | None
    keys: frozenset[str]
    asked_at: float

    def lacks(self, path: str) -> bool:
        """Whether it shows that nothing is under a path: no file, no directory, no symbolic link."""
        return self.covers(path) and self.keys.isdisjoint(_names(path))

    def covers(self, path: str) -> bool:
        """Whether it shows whether there is something."""
        return path >= self.start and (self.end is None or max(_names(path)) < self.end)


def _names(path: str) -> tuple[str, str, str]:
    return path, path + SEPARATOR, link_key(path)


class Stretches:
    """The newest, by the directory's key."""

    def __init__(self) -> None:
        self._stretches: LRUCache[str, Stretch] = LRUCache(_MAX_STRETCHES)

    def put(self, directory_key: str, start: str, page: ListPage, asked_at: float) -> Stretch:
        """Keep a page of a directory that shows everything from a path on; returns the newest."""
        held = self._stretches.get(directory_key)
        if held is not None and held.asked_at > asked_at:
            return held
        # Not all servers have a directory's name where its key would be, with the slash.
        end = None if page.next_token is None else page.last_key.removesuffix(SEPARATOR)
        keys = frozenset([*(found.key for found in page.objects), *page.prefixes])
        self._stretches[directory_key] = made = Stretch(start, end, keys, asked_at)
        return made

    def get(self, directory_key: str) -> Stretch | None:
        """What was kept last, however long ago."""
        return self._stretches.get(directory_key)

    def check_invariants(self) -> None:
        """Raises ValueError when a stretch is not of a directory."""
        for key in self._stretches:
            if not is_directory_key(key):
                raise ValueError(f"the stretch of {key!r} is not of a directory")
