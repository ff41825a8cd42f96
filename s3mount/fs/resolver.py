"""Name → what is there, in one LIST; single flight.

`LIST(prefix=path, delimiter="/")` tells a file from a directory in one request (decision 4).  A
second, `LIST(prefix=path/)`, only when the page ended before `path/` would have come, that is
when more than a page of names lies between `path` and `path/`.  HEAD is used for a store that
lists in no order, where a page proves nothing about what it lacks.

However many callers ask for one path at once, it is resolved once.  Who must have an answer to a
question asked from now on (an open with O_DIRECT) joins only such a question.
"""

import math
from dataclasses import dataclass

from s3mount.cache.answers import Absence, Record
from s3mount.cache.metadata import MetadataCache
from s3mount.core.attrs import ObjectStat
from s3mount.core.keys import SEPARATOR, fits_in_key
from s3mount.core.listing import ListPage, Verdict, judge
from s3mount.errors import NameNotFound, ObjectNotFound
from s3mount.fs.flight import Flight
from s3mount.store.base import ObjectStore

#: A LIST for one name needs the names that start with it: rarely more, and parsing costs.
_LOOKUP_PAGE = 100


@dataclass(frozen=True)
class ResolverStatistics:
    """Paths resolved by asking S3, and callers who waited for somebody else's question."""

    resolved: int
    joined: int


class _Question:
    """A path that S3 is being asked about, since `asked_at` on the cache's timer."""

    def __init__(self, asked_at: float) -> None:
        self.asked_at = asked_at
        self.flight: Flight[Record] = Flight()


class Resolver:
    """Answers what is under a path, from the cache or from S3."""

    def __init__(self, store: ObjectStore, cache: MetadataCache) -> None:
        self._store = store
        self._cache = cache
        self._questions: dict[str, _Question] = {}
        self._resolved = 0
        self._joined = 0

    async def resolve(self, path: str, *, not_before: float = -math.inf) -> Record:
        """What is under a path, not older than the cache allows.

        Args:
            path: a full key without a trailing slash.
            not_before: S3 must have been asked then or later, on the cache's timer.

        Raises:
            NameNotFound: neither an object nor a key below it.
            StoreError: S3 could not be asked.
        """
        if not fits_in_key(path):
            raise NameNotFound(f"{path!r} is longer than a key can be")
        while (known := self._cache.get(path)) is None or known.asked_at < not_before:
            question = self._questions.get(path)
            if question is None:
                return await self._fly(path)
            self._joined += 1
            await question.flight.landed.wait()
            if not question.flight.is_cancelled and question.asked_at >= not_before:
                return question.flight.result()
        if isinstance(known, Absence):
            raise self._not_found(path, known)
        return known

    async def _fly(self, path: str) -> Record:
        question = self._questions[path] = _Question(self._cache.now())
        self._resolved += 1
        try:
            await question.flight.carry(self._ask, path, question.asked_at)
        finally:
            del self._questions[path]
            question.flight.landed.set()
        return question.flight.result()

    async def _ask(self, path: str, asked_at: float) -> Record:
        found, is_directory = await (self._by_list(path) if self._store.is_ordered else self._by_head(path))
        if not is_directory and found is None:
            raise self._not_found(path, self._cache.put_absent(path, asked_at))
        return self._cache.put(path, None if is_directory else found, asked_at)

    def _not_found(self, path: str, absence: Absence) -> NameNotFound:
        error = NameNotFound(f"nothing is under {path!r}")
        error.ttl_s = self._cache.remaining(absence)
        return error

    async def _by_list(self, path: str) -> tuple[ObjectStat | None, bool]:
        page = await self._first_page(path, _LOOKUP_PAGE)
        verdict, found = judge(path, page)
        if verdict is Verdict.CUT_OFF:
            return found, await self._is_directory(path)
        return found, verdict is Verdict.DIRECTORY

    async def _by_head(self, path: str) -> tuple[ObjectStat | None, bool]:
        if await self._is_directory(path):
            return None, True
        try:
            return await self._store.head(path), False
        except ObjectNotFound:
            return None, False

    async def _is_directory(self, path: str) -> bool:
        page = await self._first_page(path + SEPARATOR, 1)
        return not page.is_empty

    async def _first_page(self, prefix: str, max_keys: int) -> ListPage:
        """The first page with anything on it: some stores send empty ones before the last."""
        page = await self._store.list_page(prefix, max_keys=max_keys)
        while page.is_empty and page.next_token is not None:
            page = await self._store.list_page(prefix, token=page.next_token, max_keys=max_keys)
        return page

    def statistics(self) -> ResolverStatistics:
        """A snapshot of the counters."""
        return ResolverStatistics(self._resolved, self._joined)

    def check_invariants(self) -> None:
        """Raises ValueError when a question that was answered is still listed as on its way."""
        if any(question.flight.landed.is_set() for question in self._questions.values()):
            raise ValueError("a question that was answered is still listed")
