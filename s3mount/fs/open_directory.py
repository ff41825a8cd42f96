"""One handle on one directory: which listing it reads, and where."""

import math
from collections.abc import Set

import trio

from s3mount.core.listing import Entry
from s3mount.fs.scans import DirectoryScan


class OpenDirectory:
    """One handle on one directory.

    Attributes:
        scan: the listing it reads.
        known: names that were known here when it began to be read.
        extras: names that are known here and that the listing lacked; None as long as it is not whole.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        self.lock = trio.Lock()
        self.scan: DirectoryScan | None = None
        self.known: Set[str] = frozenset()
        self.extras: list[str] | None = None
        self._window: list[Entry] = []
        self._window_at = 0

    def read_from(self, scan: DirectoryScan | None, known: Set[str]) -> None:
        """Read another listing, or none, as it was begun when some names were known here."""
        self.scan = scan
        self.known = known
        self.extras = None
        self._window = []

    def some_from(self, offset: int) -> list[Entry]:
        """Some entries of the listing from an offset on, as far as it came.

        The kernel takes twenty at a time, so what was unpacked is kept until it goes on to the next page.
        """
        at = offset - self._window_at
        if not 0 <= at < len(self._window):
            self._window = [] if self.scan is None else self.scan.entries.some_from(offset)
            self._window_at, at = offset, 0
        return self._window[at:]

    def asked_at(self, offset: int) -> float:
        """When the page was asked for that the entry at an offset came with."""
        return -math.inf if self.scan is None else self.scan.asked_at(offset)
