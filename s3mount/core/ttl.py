"""How long an answer of S3 may be used without asking again.

A duration, or one of two words: `minimal` is one second and no more than that needs; `indefinite`
has no end.  A duration of 0 is `minimal`, because the kernel's own steps (a look-up, then the open)
already take a moment.
"""

import math
from dataclasses import dataclass

from s3mount.units import parse_duration

_YEAR_S = 365 * 86400.0
#: The kernel counts in jiffies and knows no infinity; nothing is mounted for longer than this.
LONGEST_S = 100 * _YEAR_S


@dataclass(frozen=True)
class TimeToLive:
    """Attributes: seconds, possibly infinite; whether absent names and whole listings are not kept at all."""

    seconds: float
    is_minimal: bool = False

    @property
    def kernel_limit_s(self) -> float:
        """The most that the kernel may be told, in seconds; finite."""
        return min(self.seconds, LONGEST_S)


MINIMAL = TimeToLive(1.0, is_minimal=True)
INDEFINITE = TimeToLive(math.inf)

_WORDS = {"minimal": MINIMAL, "indefinite": INDEFINITE}


def parse_ttl(text: str) -> TimeToLive:
    """The time that "minimal", "indefinite" or a duration such as "60" or "5min" means.

    Raises:
        ValueError: neither, or longer than 100 years.
    """
    word = text.strip().lower()
    if word in _WORDS:
        return _WORDS[word]
    try:
        seconds = parse_duration(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a time; write minimal, indefinite, or a duration such as 60 or 5min"
        ) from None
    if seconds > LONGEST_S:
        raise ValueError(f"{text!r} is more than 100 years; write indefinite")
    return TimeToLive(seconds) if seconds else MINIMAL
