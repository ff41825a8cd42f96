"""Directories that were removed here a while ago, and that a server may go on listing with nothing below.

SeaweedFS keeps directories of its own for minutes.  Such a ghost is not believed until S3 says what is below it.
"""

import math
from collections.abc import Callable

from s3mount.core.keys import SEPARATOR
from s3mount.core.listing import Entry

#: Seconds for which a removed directory is not believed in, and how many are remembered.
GHOST_S = 600.0
_MAX_GHOSTS = 100_000


class Ghosts:
    """By path.

    Args:
        timer: of the metadata cache.
    """

    def __init__(self, timer: Callable[[], float]) -> None:
        self._timer = timer
        self._until: dict[str, float] = {}

    def __bool__(self) -> bool:
        """Whether there may be any."""
        return bool(self._until)

    def __contains__(self, path: str) -> bool:
        """Whether a directory was removed here, so that it is not believed in."""
        return self._until.get(path, 0.0) > self._timer()

    def has(self, directory_key: str, entry: Entry) -> bool:
        """Whether an entry of a listing is one of them."""
        return entry.found is None and directory_key + entry.name in self

    def add(self, key: str) -> None:
        """A directory was removed now."""
        path = key.removesuffix(SEPARATOR)
        self._until.pop(path, None)
        if len(self._until) >= _MAX_GHOSTS:
            del self._until[next(iter(self._until))]
        self._until[path] = self._timer() + GHOST_S

    def forget(self, path: str, asked_at: float = math.inf) -> None:
        """A directory is there, or was when S3 was asked at a time: if it was removed since, that says nothing."""
        until = self._until.get(path)
        if until is not None and until <= asked_at + GHOST_S:
            del self._until[path]

    def check_invariants(self) -> None:
        """Raises ValueError when more are remembered than may be."""
        if len(self._until) > _MAX_GHOSTS:
            raise ValueError(f"{len(self._until)} removed directories are remembered")
