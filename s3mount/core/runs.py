"""The pieces of a listing that is read in several places: runs, and the seam between two of them.

The run on the left reads past the start of the run on its right.  Those keys are delivered from
the left, and the `Seam` holds them: what follows must begin with exactly them.

Why that loses nothing, whatever order the store lists in: let the left run have listed S[:q] of
the store's own sequence S, and the right run, from the key g on, S[j:].  All keys of the right run
are > g, and the left run saw at least one such key.  If the smallest keys of the right run are the
keys > g that the left run saw, and no others, then these are S[j:q], so j <= q: what remains of the
right run is S[q:], which is where the left run would have gone on.

INVARIANT: `Seam.token` continues the listing after everything delivered.
"""

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise

from s3mount.core.listing import ListPage


@dataclass(frozen=True, eq=False, slots=True)
class Ask:
    """One LIST to send: with the token, or without one and from `start_after`.

    Attributes:
        number: of this request in its listing, from 1.
    """

    number: int
    run: "Run"
    token: str | None
    start_after: str


@dataclass(frozen=True, eq=False, slots=True)
class Held:
    """A page received.

    Attributes:
        items: its keys and common prefixes in S3's order; empty where the store has none.
    """

    page: ListPage
    items: list[str]
    asked_at: float

    @classmethod
    def of(cls, page: ListPage, asked_at: float, *, is_ordered: bool) -> "Held":
        """A page as it came."""
        items = [found.key for found in page.objects] + list(page.prefixes) if is_ordered else []
        return cls(page, sorted(items), asked_at)

    def is_after(self, last: str) -> bool:
        """Whether the page came in order, and all of it is beyond `last`."""
        keys = [found.key for found in self.page.objects]
        if any(a >= b for part in (keys, self.page.prefixes) for a, b in pairwise(part)):
            return False
        return not self.items or self.items[0] > last


@dataclass(eq=False, slots=True)
class Run:
    """A stretch of the listing, read serially.

    Attributes:
        start: it lists the keys after this one.
        last: the greatest key seen; `start` before there is any.
        token: where to go on, once `pages` were received.
        failure: why its next page is not there; nothing is asked before that was told.
        empty_from: nothing lies between this key and the next run, a guess has shown.
    """

    start: str
    last: str
    token: str | None = None
    pages: int = 0
    ask: Ask | None = None
    failure: Exception | None = None
    held: deque[Held] = field(default_factory=deque)
    empty_from: str | None = None

    @property
    def is_exhausted(self) -> bool:
        """Whether the listing ends here."""
        return self.pages > 0 and self.token is None

    def receive(self, held: Held) -> None:
        """The answer to `ask`."""
        self.ask = None
        self.pages += 1
        self.token = held.page.next_token
        self.held.append(held)
        self.last = max([self.last, *held.items[-1:]])


class Seam:
    """What was delivered of the runs ahead, and how to go on if they do not join.

    Attributes:
        token: where to go on after what was delivered.
        last: the greatest key delivered; no run may be put in before it any more.
    """

    def __init__(self) -> None:
        self.token: str | None = None
        self.last = ""
        self._tail: list[str] = []  # beyond the start of the run after the one being delivered
        self._echo: list[str] = []  # to be seen once more in the run being delivered

    def trim(self, held: Held) -> ListPage | None:
        """The page without what was delivered before; None when it does not join that."""
        page, items = held.page, held.items
        again = min(len(self._echo), len(items))
        if self._echo[:again] != items[:again] or (len(self._echo) > again and page.next_token is None):
            return None
        del self._echo[:again]
        if not self._echo:
            self.token = page.next_token
        if again == 0:
            return page
        seen = items[again - 1]
        objects = tuple(found for found in page.objects if found.key > seen)
        return ListPage(objects, tuple(prefix for prefix in page.prefixes if prefix > seen), page.next_token)

    def deliver(self, items: list[str], beyond: str | None) -> None:
        """A page was delivered; the next run starts at `beyond`."""
        self.last = max([self.last, *items[-1:]])
        if beyond is None:
            self._tail = []
        else:
            known = max([beyond, *self._tail[-1:]])
            self._tail += [item for item in items if item > known]

    def join(self, start: str, beyond: str | None) -> None:
        """The run that starts at `start` comes next, and after it the one that starts at `beyond`."""
        self._echo = [item for item in self._tail if item > start]
        self._tail = [] if beyond is None else [item for item in self._tail if item > beyond]
