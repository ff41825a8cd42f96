"""Name → what is there: from the cache, from a listing on its way, or by asking S3; single flight.

However many callers ask for one path at once, it is resolved once.  Who must have an answer to a
question asked from now on (an open with O_DIRECT) joins only such a question, and nobody one from before this mount
changed what is under the path.
"""

import logging
import math
from dataclasses import dataclass

import trio

from s3mount.cache.answers import Absence, Record
from s3mount.cache.metadata import MetadataCache
from s3mount.core.keys import fits_in_key, split_key
from s3mount.errors import NameNotFound, StoreError
from s3mount.fs.flight import Flight
from s3mount.fs.misses import FILLING_S, MissCounter
from s3mount.fs.probing import NameProbe

log = logging.getLogger(__name__)


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


class _PageQuestion:
    """A page of a directory that S3 is being asked for: from a path on."""

    def __init__(self, start: str) -> None:
        self.start = start
        self.landed = trio.Event()


class Resolver:
    """Answers what is under a path."""

    def __init__(self, probe: NameProbe, cache: MetadataCache, misses: MissCounter) -> None:
        self._probe = probe
        self._cache = cache
        self._misses = misses
        self._questions: dict[str, _Question] = {}
        self._pages: dict[str, _PageQuestion] = {}
        self._resolved = 0
        self._joined = 0

    def created(self, path: str) -> None:
        """This mount makes a file: see `fs.misses`."""
        self._misses.created(path)

    async def look_up(self, path: str) -> Record:
        """As `resolve`, for the kernel: where this mount fills a directory, a recent listing says what is not there.

        Raises:
            NameNotFound, StoreError.
        """
        if self._misses.is_filling(path) and self._cache.get(path) is None:
            if not self._is_not_listed(path):
                await self._list_from(path)
            if self._is_not_listed(path):
                now = self._cache.now()
                raise self._not_found(path, Absence(now, now))
        return await self.resolve(path)

    def _is_not_listed(self, path: str) -> bool:
        return self._cache.is_not_listed(path, self._cache.now() - FILLING_S)

    async def _list_from(self, path: str) -> None:
        """Ask for the names around it, unless that was done, or wait for who asks; a failure is no matter."""
        directory_key, start = split_key(path)[0], self._misses.page_from(path)
        known, asked_at = self._cache.stretches.get(directory_key), self._cache.now()
        if start is None or (known is not None and known.asked_at >= asked_at - FILLING_S and known.covers(path)):
            return
        question = self._pages.get(directory_key)
        if question is not None and question.start <= path:
            await question.landed.wait()
            return
        question, is_enough = _PageQuestion(start), False
        self._pages[directory_key] = question
        try:
            with trio.move_on_after(FILLING_S):  # a page that is older says nothing
                page = await self._probe.ask_from(start, asked_at)
                stretches = self._cache.stretches
                is_enough = page is not None and stretches.put(directory_key, start, page, asked_at).covers(path)
        except StoreError as error:
            log.debug("the names after %r cannot be listed: %s", start, error)
        finally:
            if self._pages.get(directory_key) is question:
                del self._pages[directory_key]
            question.landed.set()
        self._misses.paged(path, is_enough=is_enough)

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
                may_be_older = not_before == -math.inf
                listed = self._being_listed(path) if may_be_older else None
                return listed if listed is not None else await self._fly(path)
            self._joined += 1
            await question.flight.landed.wait()
            is_in_time = question.asked_at >= not_before and not self._is_outdated(path, question)
            if is_in_time and not question.flight.is_cancelled:
                return question.flight.result()
        if isinstance(known, Absence):
            raise self._not_found(path, known)
        return known

    def _is_outdated(self, path: str, question: _Question) -> bool:
        """Whether something was learnt since a question: this mount may have made or removed what is asked about."""
        known = self._cache.newer(path, question.asked_at)
        return known is not None and known.asked_at > question.asked_at

    def _being_listed(self, path: str) -> Record | None:
        """What a listing under way in the background has seen, unless something newer is known."""
        seen = self._misses.find(path)
        if seen is None:
            return None
        self._cache.put(path, seen[0].found, seen[1])
        known = self._cache.get(path)
        return known if isinstance(known, Record) else None

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
        answer = await self._probe.ask(path, asked_at)
        if not answer.is_directory and answer.found is None:
            absence = self._cache.put_absent(path, asked_at)
            if absence.expires_at > asked_at or self._misses.is_filling(path):  # else a listing would not answer either
                self._missed(path)
            raise self._not_found(path, absence)
        if not answer.is_proven:
            last = self._cache.last_record(path)
            if last is not None and last.found is not None and last.found != answer.found:
                self._cache.drop(path)  # or the look-up that comes next would answer with it again
            return self._cache.ages.record(path, answer.found, asked_at)
        self._missed(path)
        if answer.is_directory:
            self._cache.local.ghosts.forget(path, asked_at)
        return self._cache.put(path, answer.found, asked_at)

    def _missed(self, path: str) -> None:
        if self._probe.may_list:
            self._misses.missed(path)

    def _not_found(self, path: str, absence: Absence) -> NameNotFound:
        error = NameNotFound(f"nothing is under {path!r}")
        error.ttl_s = self._cache.ages.remaining(absence)
        return error

    def statistics(self) -> ResolverStatistics:
        """A snapshot of the counters."""
        return ResolverStatistics(self._resolved, self._joined)

    def check_invariants(self) -> None:
        """Raises ValueError when a question that was answered is still listed as on its way."""
        flights = [question.flight.landed for question in self._questions.values()]
        if any(landed.is_set() for landed in [*flights, *(page.landed for page in self._pages.values())]):
            raise ValueError("a question that was answered is still listed")
