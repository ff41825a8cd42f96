"""How old an answer may be: the two times to live, on the injected timer.

The kernel is told only what is left of an answer's time, so daemon and kernel together are never
older than the TTL.
"""

from collections.abc import Callable
from dataclasses import dataclass

from s3mount.cache.answers import Absence, Record
from s3mount.core.attrs import ObjectStat
from s3mount.core.ttl import MINIMAL, TimeToLive


@dataclass(frozen=True)
class MetadataConfig:
    """Attributes: for how long to believe what is there, and what is not."""

    ttl: TimeToLive = MINIMAL
    negative_ttl: TimeToLive = MINIMAL


class Ages:
    """Gives answers their time.

    Args:
        timer: monotonic seconds.
    """

    def __init__(self, timer: Callable[[], float], config: MetadataConfig) -> None:
        self._timer = timer
        self._ttl = config.ttl
        self._negative_ttl = config.negative_ttl

    @property
    def is_minimal(self) -> bool:
        """Whether an open must ask S3, whatever is known, and a directory is listed anew each time."""
        return self._ttl.is_minimal

    @property
    def fresh_s(self) -> float:
        """For how long the kernel may use an answer that cannot become wrong, in seconds."""
        return self._ttl.kernel_limit_s

    def record(self, found: ObjectStat | None, asked_at: float) -> Record:
        """What S3 said is there when it was asked at a time, with the time it is good for."""
        return Record(found, asked_at, asked_at + self._ttl.seconds)

    def absence(self, asked_at: float) -> Absence:
        """That S3 said nothing is there; without a negative TTL it is good for no time."""
        return Absence(asked_at, asked_at if self._negative_ttl.is_minimal else asked_at + self._negative_ttl.seconds)

    def remaining(self, answer: Record | Absence) -> float:
        """Seconds the kernel may still use an answer for."""
        limit = self._ttl if isinstance(answer, Record) else self._negative_ttl
        return min(max(0.0, answer.expires_at - self._timer()), limit.kernel_limit_s)

    def remaining_since(self, asked_at: float) -> float:
        """Seconds the kernel may still use what S3 said is there when it was asked at that time."""
        return min(max(0.0, asked_at + self._ttl.seconds - self._timer()), self._ttl.kernel_limit_s)

    def is_good(self, asked_at: float) -> bool:
        """Whether what S3 said is there, when it was asked at that time, may still be used."""
        return asked_at + self._ttl.seconds > self._timer()

    def check(self, path: str, answer: Record | Absence) -> None:
        """Raises ValueError when an answer is good for longer than it may be."""
        ttl = self._ttl if isinstance(answer, Record) else self._negative_ttl
        if answer.expires_at > self._timer() + ttl.seconds:
            raise ValueError(f"the record of {path!r} is fresh for longer than allowed")
