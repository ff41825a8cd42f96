"""Which of several directories a block belongs in: rendezvous hashing, weighted by capacity.

Every block goes to each directory in proportion to its capacity; a directory that comes or goes
moves only the blocks that it gets or had; and mounts that list the same directories in another
order agree.
"""

import math
from hashlib import blake2b
from typing import NamedTuple

_SCALE = 1 << 64


class Place(NamedTuple):
    """Attributes: what tells the directory apart, and its capacity in any unit."""

    identity: bytes
    weight: float


def choose(name: bytes, places: list[Place]) -> int:
    """The index of the place for a name; there is at least one.

    C. Schindelhauer, G. Schomaker: "Weighted Distributed Hash Tables" (2005), the logarithmic method.
    """
    if len(places) == 1:
        return 0
    scores = []
    for place in places:
        drawn = int.from_bytes(blake2b(place.identity + name, digest_size=8).digest(), "little")
        scores.append(-place.weight / math.log((drawn + 0.5) / _SCALE))
    return scores.index(max(scores))
