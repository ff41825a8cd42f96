"""How old an answer may be: the two times to live, those of the mount or of the path, on the injected timer.

The kernel is told only what is left of an answer's time, so daemon and kernel together are never
older than the TTL.
"""

from collections.abc import Callable
from dataclasses import dataclass

from s3mount.cache.answers import Absence, Record
from s3mount.core.attrs import ObjectStat
from s3mount.core.policies import PathPolicies
from s3mount.core.ttl import LONGEST_S, MINIMAL, TimeToLive


@dataclass(frozen=True)
class MetadataConfig:
    """Attributes: for how long to believe what is there, and what is not."""

    ttl: TimeToLive = MINIMAL
    negative_ttl: TimeToLive = MINIMAL


class Ages:
    """Gives answers their time.

    Paths are keys, with or without the slash of a directory.

    Args:
        timer: monotonic seconds.
        policies: what holds for some paths instead of `config`.
    """

    def __init__(self, timer: Callable[[], float], config: MetadataConfig, policies: PathPolicies) -> None:
        self._timer = timer
        self._ttl = config.ttl
        self._negative_ttl = config.negative_ttl
        self._policies = policies

    def _ttl_of(self, path: str) -> TimeToLive:
        return self._policies.for_key(path).ttl or self._ttl

    def _negative_ttl_of(self, path: str) -> TimeToLive:
        return self._policies.for_key(path).negative_ttl or self._negative_ttl

    @property
    def is_minimal_everywhere(self) -> bool:
        """Whether no path has more than the minimal times."""
        said = [*self._policies.says_anywhere("ttl"), *self._policies.says_anywhere("negative_ttl")]
        return all(each == MINIMAL for each in (self._ttl, self._negative_ttl, *said))

    def is_minimal(self, path: str) -> bool:
        """Whether an open must ask S3, whatever is known, and a directory is listed anew each time."""
        return self._ttl_of(path).is_minimal

    def fresh_s(self, path: str) -> float:
        """For how long the kernel may use an answer that cannot become wrong, in seconds."""
        return self._ttl_of(path).kernel_limit_s

    def record(self, path: str, found: ObjectStat | None, asked_at: float) -> Record:
        """What S3 said is there when it was asked at a time, with the time it is good for."""
        return Record(found, asked_at, asked_at + self._ttl_of(path).seconds)

    def absence(self, path: str, asked_at: float) -> Absence:
        """That S3 said nothing is there; without a negative TTL it is good for no time."""
        ttl = self._negative_ttl_of(path)
        return Absence(asked_at, asked_at if ttl.is_minimal else asked_at + ttl.seconds)

    def remaining(self, answer: Record | Absence) -> float:
        """Seconds the kernel may still use an answer for."""
        return min(max(0.0, answer.expires_at - self._timer()), LONGEST_S)

    def remaining_in(self, directory_key: str, asked_at: float) -> float | None:
        """As `remaining_since` for every name in a directory, if it is the same for all."""
        if not self._policies.is_one_below(directory_key):
            return None
        return self.remaining_since(directory_key + "x", asked_at)

    def remaining_since(self, path: str, asked_at: float) -> float:
        """Seconds the kernel may still use what S3 said is there when it was asked at that time."""
        return min(max(0.0, asked_at + self._ttl_of(path).seconds - self._timer()), LONGEST_S)

    def is_good(self, path: str, asked_at: float) -> bool:
        """Whether what S3 said is there, when it was asked at that time, may still be used."""
        return asked_at + self._ttl_of(path).seconds > self._timer()

    def check(self, path: str, answer: Record | Absence) -> None:
        """Raises ValueError when an answer is good for longer than it may be."""
        ttl = self._ttl_of(path) if isinstance(answer, Record) else self._negative_ttl_of(path)
        if answer.expires_at > self._timer() + ttl.seconds:
            raise ValueError(f"the record of {path!r} is fresh for longer than allowed")
