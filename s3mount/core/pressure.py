"""Memory is short: what to let go of, in which order, and when all is well again.

Memory is what a control group, or the host, has no more of: the kernel kills the largest process then, and that
may be this one.  `Use.used` is what cannot be reclaimed without us: page cache is not in it, for the kernel
gives that up by itself.

    used above `high`       this look: speculation goes and the windows are halved; if that did not bring it down to
                            `low`, the caches go as well, where they hold enough to matter
    between                 nothing: what is narrow stays narrow
    used at most `low`      for `CALM_S`: the windows are doubled again; after the last, it is over

Before any of that, content never takes more than half of the room below `high` from one look to the next
(`may_hold`): S3 may bring more in a second than the reserve of a small group.

The marks lie below the limit by a tenth of it, and at most by 1 GiB: a training job that fills its 64 GiB by plan is
no reason to read slowly for days.  Between them lies half of that.

INVARIANT: windows are narrow only while memory is short, and by no more than `MAX_NARROWING`.
"""

import math
from enum import Enum
from typing import NamedTuple

from s3mount.units import GIB

#: Halvings: to a 32nd of the budget, which for the smallest is a part or two.
MAX_NARROWING = 5
_RESERVE_SHARE = 10
_MOST_RESERVE = GIB
#: Caches below this share of the reserve are not worth the requests that fill them again.
_WORTH_SHARE = 8
#: A batch or two of a training loop, so that what comes and goes with each neither ends nor begins anything.
CALM_S = 10.0


class Use(NamedTuple):
    """Bytes that are used of a limit."""

    used: int
    limit: int

    @property
    def reserve(self) -> int:
        """Bytes below the limit that are kept free."""
        return min(self.limit // _RESERVE_SHARE, _MOST_RESERVE)

    @property
    def high(self) -> int:
        """Above it memory is short."""
        return self.limit - self.reserve

    @property
    def low(self) -> int:
        """At most this, and it is not."""
        return self.limit - self.reserve * 3 // 2

    @property
    def room(self) -> int:
        """Bytes up to the high mark."""
        return max(self.high - self.used, 0)

    @property
    def fullness(self) -> float:
        """1 at the limit, 0 at the high mark, -1/2 at the low one: so limits of any size can be compared."""
        return (self.used - self.high) / max(self.reserve, 1)


class Step(Enum):
    """What to do."""

    SPECULATION = "let go of all content that no reader waits for, and narrow the windows"
    CACHES = "let go of what was remembered of names"
    WIDEN = "double the windows"
    END = "say that memory is no longer short"


class PressureRule:
    """One process's state.

    Attributes:
        is_short: between the first step and `END`.
        narrowing: how often the windows are to be halved.
    """

    def __init__(self) -> None:
        self.is_short = False
        self.narrowing = 0
        self._calm_since = math.inf

    def look(self, use: Use, now: float) -> Step | None:
        """The first step of a look.

        Args:
            now: seconds on any clock.
        """
        if use.used > use.low:
            self._calm_since = math.inf
        if use.used > use.high:
            self.is_short = True
            self.narrowing = min(self.narrowing + 1, MAX_NARROWING)
            return Step.SPECULATION
        if not self.is_short or use.used > use.low:
            return None
        self._calm_since = min(self._calm_since, now)
        if now - self._calm_since < CALM_S:
            return None
        self._calm_since = now
        if self.narrowing:
            self.narrowing -= 1
            return Step.WIDEN
        self.is_short = False
        return Step.END

    def after_speculation(self, use: Use, cached_bytes: int) -> Step | None:
        """What else the look must do.

        Args:
            cached_bytes: what the caches hold, estimated.
        """
        is_worth_it = cached_bytes > use.reserve // _WORTH_SHARE
        return Step.CACHES if use.used > use.low and is_worth_it else None

    def may_hold(self, use: Use, held: int, total: int) -> int:
        """Bytes of content that may be held until the next look.

        Args:
            held: bytes held now.
            total: bytes that may be held at most, when memory is plenty.
        """
        return max(min(total >> self.narrowing, held + use.room // 2), total >> MAX_NARROWING)

    def check_invariants(self) -> None:
        """Raises ValueError when windows are narrow without a reason."""
        if not 0 <= self.narrowing <= MAX_NARROWING or (self.narrowing and not self.is_short):
            raise ValueError(f"the windows are halved {self.narrowing} times")
