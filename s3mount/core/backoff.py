"""When a request that failed is asked again, and for how long.

A failure that may pass is asked again after a random part of a time that doubles ("full jitter": who failed
together must not come back together), until the request has

* had its attempts, when an outage is an error (`window_s` is 0), or
* been asked for `window_s` since it first failed, however many attempts that takes,

and never beyond `deadline_s` and the window from when it was first asked.

The last attempt is known as such before it is made.
"""

from dataclasses import dataclass
from typing import NamedTuple

#: Seconds: S3's own hiccups are over within tenths of one; and at 5 s a recovery is noticed soon enough.
_FIRST_S, _LONGEST_S = 0.1, 5.0
#: 0.1 s doubled so often is more than the longest.
_DOUBLINGS = 6


@dataclass(frozen=True)
class Patience:
    """How long a request is asked again.

    Attributes:
        deadline_s: of the request itself, with all its attempts when there is no window.
        window_s: how long an outage is waited for; 0 counts attempts instead.
        max_attempts: the first one included.
    """

    deadline_s: float = 60.0
    window_s: float = 90.0
    max_attempts: int = 10

    @property
    def total_s(self) -> float:
        """The longest that one request can take."""
        return self.deadline_s + self.window_s


class Step(NamedTuple):
    """The next attempt: not before `at`, which for the last one is its time."""

    at: float
    is_last: bool


def jittered(doublings: int, chance: float) -> float:
    """Half to all of the time that doubles, at most 5 s: for probes, which must not follow at once.

    Args:
        chance: a random number from 0 to 1.
    """
    return _grown(doublings) * (1 + chance) / 2


def next_step(
    patience: Patience, began_at: float, failed_at: float, attempts: int, now: float, chance: float
) -> Step | None:
    """What to do after an attempt that failed, at `now`; None to give up.

    Args:
        began_at: when the request was first asked.
        failed_at: when it first failed.
        attempts: made so far, at least 1.
        chance: a random number from 0 to 1.
    """
    at = now + _grown(attempts - 1) * chance
    if patience.window_s > 0:
        ends_at = failed_at + patience.window_s
        is_over, is_last, at = now >= ends_at, at >= ends_at, min(at, ends_at)
    else:
        is_over, is_last = attempts >= patience.max_attempts, attempts + 1 >= patience.max_attempts
    if is_over or at >= began_at + patience.total_s:
        return None
    return Step(at, is_last)


def _grown(doublings: int) -> float:
    return min(_FIRST_S * (1 << min(doublings, _DOUBLINGS)), _LONGEST_S)
