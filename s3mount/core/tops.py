"""Which of very many things have most: a bounded count of bytes and uses by name.

Twice as many names as are kept are counted; then those with fewest bytes go.  So a name that has a large part of all is
never lost for long, and to count one costs the same whether a hundred names are read or a hundred million.

INVARIANT: at most twice `limit` names.
"""

from collections.abc import Hashable
from heapq import nlargest
from operator import itemgetter
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)


class Share(NamedTuple):
    """Attributes: bytes, and uses."""

    n_bytes: int
    uses: int


class Tops(Generic[K]):
    """Counts by name.

    Args:
        limit: names that are kept at the least.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._shares: dict[K, list[int]] = {}  # of bytes and uses: each close pays for it

    def add(self, name: K, n_bytes: int) -> None:
        """It was used once more."""
        known = self._shares.get(name)
        if known is not None:
            known[0] += n_bytes
            known[1] += 1
            return
        if len(self._shares) >= 2 * self._limit:
            self._shares = dict(nlargest(self._limit, self._shares.items(), key=itemgetter(1)))
        self._shares[name] = [n_bytes, 1]

    def largest(self, n: int) -> list[tuple[K, Share]]:
        """Those with most bytes, the most first."""
        largest = nlargest(n, self._shares.items(), key=itemgetter(1))
        return [(name, Share(n_bytes, uses)) for name, (n_bytes, uses) in largest]

    def check_invariants(self) -> None:
        """Raises ValueError when there are more names than there may be."""
        if len(self._shares) > 2 * self._limit:
            raise ValueError("too many names are counted")
