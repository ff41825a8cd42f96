"""When to leave a disk alone for a while, and when to ask it again.

Two reasons, each with its own memory.  An `Outage`: operations fail one after the other (a disk
that is gone, read-only, or lost its permissions).  A `Slowness`: reads take longer than S3 would.
In both cases nothing is asked for a time, then one operation is let through as a probe; a good one
ends it, a bad one doubles the time.

The clock is an argument.
"""

from dataclasses import dataclass

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
#: One bad block is not a bad disk.
_FAILURES = 3
#: A moving average over about eight reads: one slow read is not a slow disk.
_WEIGHT = 1 / 8
#: A read that never came back must not be remembered for longer than a few good ones can outweigh.
_WORST_RATIO = 8.0


@dataclass
class Pause:
    """Attributes: until when nothing is asked, how long the next pause is, and whether a probe is out."""

    until: float = 0.0
    length_s: float = _FIRST_PAUSE_S
    is_on: bool = False
    is_probing: bool = False

    def begin(self, now: float) -> None:
        """Ask nothing for a time, the longer the more often in a row; what began before does not lengthen it."""
        if self.is_on and not self.is_probing:
            return
        self.until = now + self.length_s
        self.length_s = min(2 * self.length_s, _LONGEST_PAUSE_S)
        self.is_on, self.is_probing = True, False

    def end(self) -> None:
        """All is well."""
        self.length_s = _FIRST_PAUSE_S
        self.is_on = self.is_probing = False

    def lets_through(self, now: float) -> bool:
        """Whether to ask; in a pause one probe, when it is over."""
        if not self.is_on:
            return True
        if now < self.until:
            return False
        self.until = now + self.length_s  # the others wait for what the probe finds
        self.is_probing = True
        return True


class Outage:
    """Operations that fail in a row."""

    def __init__(self) -> None:
        self._pause = Pause()
        self._failures = 0

    @property
    def is_on(self) -> bool:
        """Whether the disk is taken for gone."""
        return self._pause.is_on

    def lets_through(self, now: float) -> bool:
        """Whether to try."""
        return self._pause.lets_through(now)

    def note(self, now: float, *, is_good: bool) -> None:
        """An operation ended."""
        if is_good:
            self._failures = 0
            self._pause.end()
            return
        self._failures += 1
        if self._failures >= _FAILURES:
            self._pause.begin(now)


class Slowness:
    """Reads that take longer than S3 would."""

    def __init__(self) -> None:
        self._pause = Pause()
        self._ratio = 0.0

    @property
    def is_on(self) -> bool:
        """Whether the disk is taken for slower than S3."""
        return self._pause.is_on

    def lets_through(self, now: float) -> bool:
        """Whether to read from the disk."""
        return self._pause.lets_through(now)

    def note(self, took_s: float, patience_s: float, now: float) -> None:
        """A read ended, or was given up.

        Args:
            patience_s: what the same read would take from S3.
        """
        ratio = min(took_s / patience_s, _WORST_RATIO) if patience_s > 0 else _WORST_RATIO
        if self._pause.is_on:
            if ratio <= 1:
                self._ratio = 0.0
                self._pause.end()
            else:
                self._pause.begin(now)
            return
        self._ratio += (ratio - self._ratio) * _WEIGHT
        if self._ratio > 1:
            self._pause.begin(now)
