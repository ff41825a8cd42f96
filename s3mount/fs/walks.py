"""A program that walks a tree: the subtree is listed flat, ahead of it.

One LIST per directory is what a walk costs; 1,000 directories of 100 files are 1,000 of them.  A LIST
without a delimiter gives the same keys in 100 pages.  The walk shows itself: it lists the
sub-directories of one directory one after the other, in the order of their keys.  When the third in a
row is listed, a flat listing of what is below their parent begins there.

A flat listing that the program does not follow is waste, so it is kept short:

* It reads ahead only as the program follows (`PageStream`).
* When a directory is asked for that lies beyond the next few pages, the listing does not read up to it:
  it begins anew there.  After too many starts that did not pay, the walk is left alone for a while.
* A directory with a large tree below it is not read to its end for its own names: after `_PATIENCE` pages that
  went deeper, it is listed by itself, and the flat listing goes on for what is below it.
* Where one directory takes many pages itself, or is too old when it is whole, there is nothing to gain:
  the walk is left alone at once.

What it completes is kept as the directory's listing, as old as its oldest page: with a TTL as any other listing;
in the minimal mode for one reader, who came within a second.

Several programs may walk through one directory: each of its `Front`s is followed by itself.  A directory
comes from whichever flat listing has it; a program that none has anything for makes its own front.

Never on a store that lists in no order.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import trio

from s3mount.cache.answers import Listing
from s3mount.cache.metadata import MetadataCache
from s3mount.core.keys import SEPARATOR, just_before, split_key
from s3mount.core.tree import TreeDirectory
from s3mount.errors import StoreError
from s3mount.fs.pages import PageStream
from s3mount.fs.subtree import Front, Parent, SubtreeWalk
from s3mount.store.base import Catalogue

#: Sub-directories listed in a row before it is a walk.
_RECOGNISED = 3
#: Pages read for one directory without coming to its end, or to it at all; and pages of its own names.
_PATIENCE = 2
_MAX_OWN_PAGES = 16
#: Pages.  In the minimal mode one is good for a second: further ahead it would be read in vain.
_AHEAD_MINIMAL = 8
#: Starts below one directory, and one for each four sub-directories served, before it rests for so many seconds.
_MAX_STARTS = 6
_REST_S = 60.0
#: Directories watched, and flat listings kept open.
_MAX_PARENTS = 256
#: Seconds without a directory wanted from it, after which a flat listing ends with the pages it holds.
_IDLE_S = 10.0
_MAX_WALKS = 8


@dataclass(frozen=True)
class WalkStatistics:
    """Flat listings begun, directories that readers got from them, and flat listings open now."""

    started: int
    served: int
    open: int


class SubtreeWalks:
    """Recognises walks and lists ahead of them.

    Args:
        nursery: outlives every request; they run in it.
        remember: gets each directory that is complete, and when the oldest page of it was asked for.
    """

    def __init__(
        self,
        store: Catalogue,
        cache: MetadataCache,
        nursery: trio.Nursery,
        remember: Callable[[TreeDirectory, float], None],
    ) -> None:
        self._store = store
        self._cache = cache
        self._nursery = nursery
        self._remember = remember
        self._parents: OrderedDict[str, Parent] = OrderedDict()
        self._open: OrderedDict[SubtreeWalk, None] = OrderedDict()
        self._started = 0
        self._served = 0

    async def listing(self, key: str) -> Listing | None:
        """The listing of a directory that a program wants now, if a walk gives it.

        Args:
            key: not the mount's root, and not known.
        """
        if not self._store.is_ordered or not key:
            return None
        if (followed := self._following(key)) is not None:
            parent, front = followed
            listing = await self._serve(parent, front, key)
            if listing is not None or (front.walk is not None and front.walk.fold.is_inside(key)):
                return listing
        parent, front = self._front(key)
        if front.in_row < _RECOGNISED or not self._may_start(parent):
            return None
        self._start(parent, front, key)
        return await self._serve(parent, front, key)

    async def bring(self, key: str) -> None:
        """Let a walk that is under way come to a directory, if it is there soon."""
        if (followed := self._following(key)) is not None:
            await self._read_to(*followed, key)

    def _following(self, key: str) -> tuple[Parent, Front] | None:
        """Whose flat listing has a directory or is least far behind it, in the nearest directory above."""
        above = key.removesuffix(SEPARATOR)
        while above:
            above = split_key(above)[0].removesuffix(SEPARATOR)
            parent = self._parents.get(above + SEPARATOR if above else "")
            if parent is not None and (front := parent.nearest(key)) is not None:
                return parent, front
        return None

    async def _serve(self, parent: Parent, front: Front, key: str) -> Listing | None:
        walk = front.walk
        was_ready = walk is not None and key in walk.ready
        if walk is None or not await self._read_to(parent, front, key):
            return self._cache.listings.current(key)  # another reader was quicker
        walk.ready.pop(key, None)
        listing = self._cache.listings.current(key, is_walked=True)
        if listing is not None:
            parent.served += 1
            self._served += 1
        elif not was_ready:
            self._rest(parent, front)
        elif front.walk is walk:
            self._close(front)  # it was too far ahead of the program; what it has is too old
            parent.ahead_pages = max(1, parent.ahead_pages // 2)
        return listing

    async def _read_to(self, parent: Parent, front: Front, key: str) -> bool:
        """Whether the walk came to the end of a directory."""
        walk = front.walk
        if walk is None:
            return False
        walk.uses += 1
        if key in walk.ready:
            return True
        try:
            is_worth_it = await self._read_pages(walk, key)
        except StoreError:  # the directory is listed by itself, and says what is wrong
            is_worth_it = False
        finally:
            walk.settle()
        if walk.is_over:
            self._open.pop(walk, None)
        if not is_worth_it:
            self._rest(parent, front)
        elif key not in walk.ready and front.walk is walk and (walk.is_over or walk.fold.frontier < key):
            self._close(front)
        return key in walk.ready

    async def _read_pages(self, walk: SubtreeWalk, key: str) -> bool:
        """Read up to the end of a directory, or until patience ends; False when it is too large by itself."""
        patience, own_pages = _PATIENCE, _MAX_OWN_PAGES
        async with walk.lock:
            while key not in walk.ready and not walk.cannot_give(key) and patience >= 0 and own_pages > 0:
                for found, asked_at in await walk.read_page():
                    self._remember(found, asked_at)
                if walk.fold.innermost == key:
                    own_pages -= 1
                else:
                    patience -= 1
        return key in walk.ready or own_pages > 0

    # -- fronts and walks -----------------------------------------------------------------------

    def _front(self, key: str) -> tuple[Parent, Front]:
        """The front that a program which lists this sub-directory is at; it is there now."""
        parent_key = split_key(key.removesuffix(SEPARATOR))[0]
        parent = self._parents.setdefault(parent_key, Parent(parent_key))
        self._parents.move_to_end(parent_key)
        if len(self._parents) > _MAX_PARENTS:
            self._drop(self._parents.popitem(last=False)[1].fronts)
        front, displaced = parent.front_at(key)
        self._drop(displaced)
        return parent, front

    def _drop(self, fronts: list[Front]) -> None:
        for front in fronts:
            self._close(front)

    def _may_start(self, parent: Parent) -> bool:
        if parent.starts > _MAX_STARTS + parent.served // 4:
            self._rest(parent)
        return parent.rests_until <= self._cache.now()

    def _start(self, parent: Parent, front: Front, key: str) -> None:
        self._close(front)
        most_pages = _AHEAD_MINIMAL if self._cache.ages.is_minimal(parent.key) else parent.ahead_pages
        stream = PageStream(
            self._store,
            self._nursery,
            parent.key,
            delimiter="",
            start_after=key,  # which skips a marker; and what is just before it skips the directory on some servers
            ahead_pages=min(parent.ahead_pages, most_pages),
            clock=self._cache.now,
        )
        front.walk = SubtreeWalk(stream, parent.key, just_before(key))
        self._nursery.start_soon(self._end_when_idle, front, front.walk)
        parent.starts += 1
        self._started += 1
        self._open[front.walk] = None
        if len(self._open) > _MAX_WALKS:
            self._open.popitem(last=False)[0].close()

    async def _end_when_idle(self, front: Front, walk: SubtreeWalk) -> None:
        uses = -1
        while not walk.is_over and walk.uses != uses:
            uses = walk.uses
            await trio.sleep(_IDLE_S)
        if front.walk is walk and not walk.is_over:
            self._close(front)

    def _rest(self, parent: Parent, front: Front | None = None) -> None:
        parent.rests_until = self._cache.now() + _REST_S
        parent.starts = parent.served = 0
        if front:
            self._close(front)

    def _close(self, front: Front) -> None:
        if front.walk is not None:
            front.walk.close()
            self._open.pop(front.walk, None)
            front.walk = None

    def statistics(self) -> WalkStatistics:
        """A snapshot of the counters."""
        return WalkStatistics(self._started, self._served, len(self._open))

    def check_invariants(self) -> None:
        """Raises ValueError when a flat listing is open that no front follows, or one is inconsistent."""
        followed = {front.walk for parent in self._parents.values() for front in parent.fronts}
        for walk in self._open:
            walk.stream.check_invariants()
            if walk not in followed:
                raise ValueError("a flat listing is open that no front follows")
