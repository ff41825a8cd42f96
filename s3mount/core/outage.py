"""S3 does not answer: who asks again, and when.  One `Outage` for a mount.

Each request that fails is asked again after a time of its own (`core.backoff`).  That is right for one that met a
broken host; when every request fails, hundreds of readers would ask at once and again.  So after
`_CLOSE_AFTER` failures without an answer between them nobody goes on its own account any more:

| state  | an answer | a failure                        | a request wants to go                         |
|--------|-----------|----------------------------------|-----------------------------------------------|
| open   | open      | the fifth in a row: closed       | goes                                          |
| closed | open      | closed                           | one of each line at `probe_at`, the others wait |

Probes follow each other by a growing interval with jitter, 5 s at most: that is how late the end can be
noticed.  A probe is a request that somebody waits for; it need not have failed before the next one goes, for in
some outages nothing fails for a minute.

Any answer ends an outage, also a refusal: S3 is there.  A 503 is no answer and no failure here, but
`core.send_rate`'s; it ends nothing, and counts for how long S3 has not answered.
"""

from dataclasses import dataclass

from s3mount.core.backoff import jittered

#: Five in a row come about once in three million requests when one of twenty fails.
_CLOSE_AFTER = 5
#: Seconds without an answer, while somebody asks, that the person on call wants to know of.
_NOTICE_S = 5.0
#: Failures further apart are two matters: nobody asked meanwhile.  Longer than a request may take.
_ROW_S = 300.0


@dataclass(frozen=True)
class OutageStatistics:
    """Whether requests wait, and since the start: how often they had to, and the probes sent meanwhile."""

    is_closed: bool
    times: int
    probes: int


class Outage:
    """What is known of S3's absence.  All times are seconds on one clock.

    Attributes:
        is_closed: whether requests wait for a probe.
        probe_at: when the next probe may go, while closed.
        since: since when nothing was answered; None when nothing failed since the last answer.
    """

    __slots__ = ("_failed_at", "_failures", "_interval", "_is_noticed", "_probes", "_times", "is_closed", "probe_at",
                 "since")  # fmt: skip

    def __init__(self) -> None:
        self.is_closed = False
        self.probe_at = 0.0
        self.since: float | None = None
        self._failed_at = 0.0
        self._failures = 0
        self._interval = 0
        self._is_noticed = False
        self._times = self._probes = 0

    def failed(self, asked_at: float, now: float, chance: float, *, is_refusal: bool) -> None:
        """A request was not answered.

        Args:
            asked_at: when it was sent, or the last answer came if that was later.
            chance: a random number from 0 to 1.
            is_refusal: S3 asked to slow down.
        """
        if self.since is None or now - self._failed_at > _ROW_S:
            self.since = asked_at
        self._failed_at = now
        if is_refusal:
            return
        self._failures += 1
        if not self.is_closed and self._failures >= _CLOSE_AFTER:
            self.is_closed = True
            self._interval = 0
            self._times += 1
            self.probe_at = now + jittered(self._interval, chance)

    def probe(self, now: float, chance: float) -> None:
        """A request goes although the outage lasts."""
        self._probes += 1
        self._interval += 1
        self.probe_at = now + jittered(self._interval, chance)

    def notice(self, now: float) -> float | None:
        """Seconds without an answer, once for each outage, when they are worth a line in the log."""
        if self.since is None or self._is_noticed or now - self.since < _NOTICE_S:
            return None
        self._is_noticed = True
        return now - self.since

    def answered(self, now: float) -> float | None:
        """S3 is there.

        Returns:
            How long it was not, if `notice` told of it.
        """
        lasted_s = now - self.since if self._is_noticed and self.since is not None else None
        self.is_closed = self._is_noticed = False
        self.since = None
        self._failures = 0
        return lasted_s

    def statistics(self) -> OutageStatistics:
        """A snapshot."""
        return OutageStatistics(self.is_closed, self._times, self._probes)

    def check_invariants(self) -> None:
        """Raises ValueError when requests wait although nothing failed."""
        if self.is_closed and (self.since is None or self._failures < _CLOSE_AFTER):
            raise ValueError("requests wait for the end of an outage that is none")
