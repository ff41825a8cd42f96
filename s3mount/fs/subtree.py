"""A flat listing of what is below one directory, in progress: the directories that it completes, and who follows it.

Each directory is as old as the oldest page that had a key of it.

INVARIANT: what is `ready` was completed, and nobody took it yet.
INVARIANT: the stream is not closed while somebody waits for a page of it.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import trio

from s3mount.core.tree import TreeDirectory, TreeFold
from s3mount.fs.pages import PageStream

#: Completed directories that nobody came for yet, and pages of which the time is remembered one by one.
_MAX_READY = 10_000
_MAX_STAMPS = 64
#: Pages ahead of the program, at first.
_AHEAD_PAGES = 32
#: Programs told apart in one directory.
_MAX_FRONTS = 8


class SubtreeWalk:
    """A flat listing of what is below a directory, from one of its sub-directories on.

    Attributes:
        uses: how often a directory was wanted from it.
    """

    def __init__(self, stream: PageStream, parent_key: str, start_after: str) -> None:
        self.stream = stream
        self.lock = trio.Lock()
        self.fold = TreeFold(parent_key, start_after=start_after)
        self.ready: dict[str, None] = {}
        self.is_over = False
        self.uses = 0
        self._stamps: deque[tuple[str, float]] = deque(maxlen=_MAX_STAMPS)  # (last key, when asked for) of each page
        self._oldest = float("inf")

    async def read_page(self) -> Iterator[tuple[TreeDirectory, float]]:
        """The directories that one more page completes, each with when the oldest page of it was asked for."""
        page = await self.stream.next()
        if page is None:
            self.is_over = True
            return iter(())
        complete = self.fold.add(page.page.objects, is_last=page.is_last)
        self._stamps.append((self.fold.frontier, page.asked_at))
        self._oldest = min(self._oldest, page.asked_at)
        self.is_over |= page.is_last or self.fold.is_broken
        for found in complete:
            if len(self.ready) >= _MAX_READY:
                del self.ready[next(iter(self.ready))]
            self.ready[found.directory_key] = None
        return ((found, self._asked_at(found.directory_key)) for found in complete)

    def _asked_at(self, directory_key: str) -> float:
        if self._stamps[0][0] >= directory_key:  # it may have begun before what is remembered
            return self._oldest
        return min(asked_at for last_key, asked_at in self._stamps if last_key >= directory_key)

    def close(self) -> None:
        """Nobody follows it any more; who waits for a page of it still gets that."""
        self.is_over = True
        self.settle()

    def settle(self) -> None:
        """Cancel what is in flight, once it is over and nobody waits for it."""
        if self.is_over and not self.lock.locked():
            self.stream.close()

    def can_give(self, directory_key: str) -> bool:
        """Whether the listing has a directory, or may come to it."""
        return directory_key in self.ready or not self.cannot_give(directory_key)

    def cannot_give(self, directory_key: str) -> bool:
        """Whether the listing is past a directory without having it whole."""
        is_past = directory_key <= self.fold.frontier and not self.fold.is_inside(directory_key)
        return self.is_over or is_past


@dataclass(eq=False)
class Front:
    """One program's way through the sub-directories of one directory.

    Attributes:
        last: where its flat listing began, or else the last one that was listed; and how many were in a row.
    """

    last: str
    in_row: int = 1
    walk: SubtreeWalk | None = None

    def is_behind(self, key: str) -> bool:
        """Whether the program that lists a directory may be this one, and needs a flat listing."""
        return self.last < key and (self.walk is None or self.walk.is_over or self.walk.fold.frontier < key)


@dataclass(eq=False)
class Parent:
    """A directory with the fronts in it.

    Attributes:
        ahead_pages: how far ahead of the program a flat listing may be; less once what it had was too old.
        starts, served: flat listings begun, and sub-directories that readers got from them, since the last rest.
    """

    key: str
    fronts: list[Front] = field(default_factory=list)
    ahead_pages: int = _AHEAD_PAGES
    starts: int = 0
    served: int = 0
    rests_until: float = -float("inf")

    def nearest(self, key: str) -> Front | None:
        """The front whose flat listing has a directory, or comes to it soonest."""
        able = [(key in walk.ready, walk.fold.frontier, at) for at, walk in self._walks() if walk.can_give(key)]
        return self.fronts[max(able)[2]] if able else None

    def _walks(self) -> Iterator[tuple[int, SubtreeWalk]]:
        return ((at, front.walk) for at, front in enumerate(self.fronts) if front.walk is not None)

    def front_at(self, key: str) -> tuple[Front, list[Front]]:
        """The front that a program which lists this sub-directory is at, least far behind; it is there now.

        Returns:
            The front, and those that make room for it.
        """
        behind = [front for front in self.fronts if front.is_behind(key)]
        front = max(behind, key=lambda front: front.last, default=None)
        if front is not None:
            front.in_row += 1
            front.last = key
            return front, []
        displaced, kept = self.fronts[: 1 - _MAX_FRONTS], self.fronts[1 - _MAX_FRONTS :]
        self.fronts = [*kept, Front(key)]
        return self.fronts[-1], displaced
