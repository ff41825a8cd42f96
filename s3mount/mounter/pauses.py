"""How long to wait before the next daemon is started.

Not at all, as long as each served for a while: whatever killed it, the mount got further.  One that dies as soon
as it serves, or before, would be started without end: after `_FREE` of them in a row each waits twice as long
as the one before, up to a minute.  Pure.
"""

#: Seconds of service with which a daemon counts as one that worked.
_WORKED_S = 1.0
_FREE = 2
_FIRST_S = 1.0
_LONGEST_S = 60.0


class Pauses:
    """The deaths of one mount's daemons."""

    def __init__(self) -> None:
        self._in_a_row = 0

    def after(self, served_s: float) -> float:
        """Seconds to wait after a daemon died that had served so long; 0 when it never did."""
        self._in_a_row = 0 if served_s >= _WORKED_S else self._in_a_row + 1
        if self._in_a_row <= _FREE:
            return 0.0
        return float(min(_FIRST_S * 2.0 ** min(self._in_a_row - _FREE - 1, 10), _LONGEST_S))
