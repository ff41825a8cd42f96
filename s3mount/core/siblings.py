"""Objects of one data set: what one of them taught is known of the next.

Shards are named alike but for their numbers (`name-00003-of-00128`, `shard.00042.mds`,
`part-7.npz`).  Where fetching one of them whole paid, the next is fetched whole at its first
read; where it did not, each has to prove it again.

Which shard comes next is not guessed: a shuffle opens them in any order, and the first read of a
learned one already fetches all of it in one round trip.

A user can say of some paths that files are read whole; then there is nothing to learn.

What was learned wrongly costs the bytes of the shards that are opened before the first of them is
closed with less than a quarter of it read: one, with one reader.  No byte of a shard that nobody reads
is fetched, but for the head that `open` begins.

INVARIANT: at most MAX_FAMILIES; the least recently asked for goes.
"""

import re
from collections import OrderedDict

from s3mount.core.policies import PathPolicies

MAX_FAMILIES = 256
_NUMBERS = re.compile(r"\d+")


def family_of(key: str) -> str:
    """What the keys of one data set have in common: the key without its numbers' values."""
    directory, slash, name = key.rpartition("/")
    return directory + slash + _NUMBERS.sub("#", name)


class Siblings:
    """What is known of one family.

    Attributes:
        pays: whether fetching one of them whole was right the last time it was tried.
        is_said: the user says that it is, whatever their size, at each opening.
    """

    __slots__ = ("is_said", "pays")

    def __init__(self, *, is_said: bool = False) -> None:
        self.pays = self.is_said = is_said

    def paid(self) -> None:
        """One that was fetched whole was read."""
        self.pays = True

    def failed(self) -> None:
        """One that was fetched whole was hardly read."""
        self.pays = self.is_said


class SiblingTable:
    """The families of a bucket.

    Args:
        policies: say of which keys whole files are wanted.
    """

    def __init__(self, policies: PathPolicies | None = None) -> None:
        self._families: OrderedDict[str, Siblings] = OrderedDict()
        self._policies = policies or PathPolicies()

    def of(self, key: str) -> Siblings:
        """What is known of a key's family."""
        if self._policies.for_key(key).is_whole:
            return Siblings(is_said=True)
        family = family_of(key)
        siblings = self._families.setdefault(family, Siblings())
        self._families.move_to_end(family)
        if len(self._families) > MAX_FAMILIES:
            self._families.popitem(last=False)
        return siblings

    def __len__(self) -> int:
        return len(self._families)
