"""How many requests a second S3 takes from this mount, found out from its 503 answers.

Without a limit a mount keeps every connection busy.  Behind a server that is full most of its
requests are then refused, and of several mounts the one that asks most gets most.  So a 503 sets a
rate, and every `_INTERVAL_S` the rate becomes:

| state   | the interval had           | the rate afterwards                                       |
|---------|----------------------------|-----------------------------------------------------------|
| open    | few 503, or none           | none: requests go when they come                          |
| open    | many (at once)             | limited: what came well a second, then or before          |
| limited | many                       | `_KEEP` of what came well, and `_EXTRA_PER_S`             |
| limited | few                        | and `_EXTRA_PER_S`                                        |
| limited | none, and it was used      | grows by a quarter, then a half, then doubles             |
| limited | none, and it was not used  | the same                                                  |
| limited | no many for `_FORGET_S`    | open                                                      |

Many are two or more, and more than 1/`_FEW` of the answers.  A server that is full refuses more than that of
who asks for too much; one that refuses now and then is not full, and a mount that made way for it would crawl
(measured).

Additive increase and multiplicative decrease, as of TCP (RFC 5681), which is what makes mounts
that do not know of each other come to equal shares: `_EXTRA_PER_S` is the same for each, `_KEEP`
takes more from who has more.  But the decrease starts from what came well, not from what was
asked: a refused request costs the server nothing, so that asking for a little more than it gives
leaves none of it idle.

INVARIANT: a limited rate is at least `_EXTRA_PER_S`, so that a server which recovers is asked.
"""

from dataclasses import dataclass

#: Seconds; servers count by the second, and a shorter interval of ours would see only the refused end of theirs.
_INTERVAL_S = 1.0
#: Simulated with 1 to 16 mounts at 200/s, by a token bucket and by the second: 0.9 and 10 a second
#: halve an unfair share in 4 s, leave under 4 % idle, and have 9 % refused when four share.
_KEEP = 0.9
_EXTRA_PER_S = 10.0
_FIRST_GROWTH, _LARGEST_GROWTH = 0.25, 1.0
#: Four mounts that share a full server have a tenth of their requests refused (simulated).
_FEW = 32
#: The share of the rate that must have been sent, or the server was not asked what it would take.
_USED_SHARE = 0.5
#: Who is throttled is told so every few seconds.
_FORGET_S = 30.0
#: Less time than this is no measure of how much comes in a second.
_LEAST_MEASURE_S = 0.1


@dataclass(frozen=True)
class RateStatistics:
    """Requests a second allowed now, 0 when there is no limit, and 503 answers since the start."""

    per_s: float
    refusals: int


class SendRate:
    """The rate of one mount.  All times are seconds on one clock.

    Attributes:
        is_limited: whether a request has to wait for its turn.
    """

    __slots__ = ("_good", "_good_per_s", "_next_at", "_per_s", "_quiet", "_refused", "_sent", "_since",
                 "_throttled_at", "_total_refused", "is_limited")  # fmt: skip

    def __init__(self) -> None:
        self.is_limited = False
        self._per_s = 0.0
        self._good_per_s = 0.0
        self._next_at = 0.0
        self._since = 0.0
        self._sent = self._good = self._refused = 0
        self._quiet = 0
        self._throttled_at = 0.0
        self._total_refused = 0

    def turn_at(self, now: float) -> float:
        """When the next request may be sent."""
        self._end_interval(now)
        return max(self._next_at, now) if self.is_limited else now

    def sent(self, now: float) -> None:
        """A request took its turn."""
        self._sent += 1
        if self.is_limited:
            self._next_at = max(self._next_at, now) + 1 / self._per_s

    def answered(self, now: float) -> None:
        """S3 answered a request, with anything but a 503."""
        if now - self._since >= _INTERVAL_S:
            self._end_interval(now)
        self._good += 1

    def refused(self, now: float) -> None:
        """S3 answered a request with a 503."""
        self._end_interval(now)
        self._refused += 1
        self._total_refused += 1
        if not self._has_many_refused:
            return
        self._throttled_at = now
        if not self.is_limited:
            self.is_limited = True
            just_now = self._good / max(now - self._since, _LEAST_MEASURE_S)
            self._per_s = max(just_now, self._good_per_s, _EXTRA_PER_S)
            self._next_at = now

    def _end_interval(self, now: float) -> None:
        took_s = now - self._since
        if took_s < _INTERVAL_S:
            return
        self._good_per_s = self._good / took_s
        if now - self._throttled_at >= _FORGET_S:
            self.is_limited = False
        elif self._has_many_refused:
            self._per_s = _KEEP * self._good_per_s + _EXTRA_PER_S
            self._quiet = 0
        elif self._refused:
            self._per_s += _EXTRA_PER_S
            self._quiet = 0
        elif self._sent / took_s >= _USED_SHARE * self._per_s:
            self._per_s *= 1 + min(_FIRST_GROWTH * 2**self._quiet, _LARGEST_GROWTH)
            self._quiet += 1
        self._since = now
        self._sent = self._good = self._refused = 0

    @property
    def _has_many_refused(self) -> bool:
        return self._refused > 1 and self._refused * _FEW > self._good + self._refused

    def statistics(self) -> RateStatistics:
        """A snapshot."""
        return RateStatistics(self._per_s if self.is_limited else 0.0, self._total_refused)

    def check_invariants(self) -> None:
        """Raises ValueError when a server that recovers would not be asked."""
        if self.is_limited and not self._per_s >= _EXTRA_PER_S:
            raise ValueError(f"{self._per_s} requests a second is less than the least")
