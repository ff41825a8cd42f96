"""The last names of directories, from one on: what a single LIST after that name said.

Who makes many files mostly makes them in order, so that none of the names to come is there, and one page says so of
all of them (fs.misses).  A page that was cut off says nothing, and is not kept.

Bounded by directories: the least recently used go first.
"""

from typing import NamedTuple

from cachetools import LRUCache

from s3mount.core.keys import SEPARATOR, is_directory_key
from s3mount.core.listing import ListPage
from s3mount.core.symlinks import link_key

_MAX_TAILS = 1_000


class Tail(NamedTuple):
    """Attributes: the first path that is in it; keys and common prefixes; when S3 was asked."""

    start: str
    keys: frozenset[str]
    asked_at: float

    def lacks(self, path: str) -> bool:
        """Whether it shows that nothing is under a path: no file, no directory, no symbolic link."""
        return path >= self.start and self.keys.isdisjoint((path, path + SEPARATOR, link_key(path)))


class Tails:
    """By the directory's key."""

    def __init__(self) -> None:
        self._tails: LRUCache[str, Tail] = LRUCache(_MAX_TAILS)

    def put(self, directory_key: str, start: str, page: ListPage, asked_at: float) -> None:
        """Keep the last page of a directory, of which everything from `start` on is on it; the newest counts."""
        held = self._tails.get(directory_key)
        if held is None or held.asked_at <= asked_at:
            keys = frozenset([*(found.key for found in page.objects), *page.prefixes])
            self._tails[directory_key] = Tail(start, keys, asked_at)

    def get(self, directory_key: str) -> Tail | None:
        """What was kept last, however long ago."""
        return self._tails.get(directory_key)

    def check_invariants(self) -> None:
        """Raises ValueError when a tail is not of a directory."""
        for key in self._tails:
            if not is_directory_key(key):
                raise ValueError(f"the tail of {key!r} is not of a directory")
