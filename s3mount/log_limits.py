"""One cause, few lines: what is said again and again is left out, and counted.

A failure can meet a thousand readers a second.  So of each cause `BURST` lines are written in `WINDOW_S`; how many more
there were is told when that time is over, with the next line of any cause, or at the end.  A cause is what is the
same of two lines: who says it, the words without what stands in them, and the errno and the kind of the error.

Limited is what can come of what programs and S3 do: warnings, errors, and whatever a program got as an errno.  What
only the daemon says of itself, and what --debug asks for, is not.

INVARIANT: what was left out was told, or is counted.
"""

import logging
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

BURST = 10
WINDOW_S = 10.0
#: Causes that are told apart at once; there are as many as there are places in the code and errnos, some hundreds.
_MAX_CAUSES = 1000


class LeftOut(NamedTuple):
    """Attributes: how many lines, who would have said them, how loudly, and the words without what stands in them."""

    n_lines: int
    logger: str
    level: int
    words: str


@dataclass(slots=True)
class _Window:
    began_at: float
    written: int
    left_out: LeftOut


class LogLimit:
    """Of one log.

    Args:
        timer: seconds.
    """

    def __init__(self, timer: Callable[[], float]) -> None:
        self._timer = timer
        self._windows: dict[Hashable, _Window] = {}
        self._over: dict[Hashable, _Window] = {}  # of these, those that left something out

    def admits(self, record: logging.LogRecord) -> bool:
        """Whether a record is written; else it is counted.  Ask for what is `due` first."""
        if not _is_limited(record):
            return True
        now = self._timer()
        cause = _cause_of(record)
        window = self._windows.get(cause)
        if window is None or now - window.began_at >= WINDOW_S:
            if len(self._windows) >= _MAX_CAUSES:
                self._windows = dict(self._over)
            left_out = LeftOut(0, record.name, record.levelno, str(record.msg))
            window = self._windows[cause] = _Window(now, 0, left_out)
        window.written += 1
        if window.written <= BURST:
            return True
        window.left_out = window.left_out._replace(n_lines=window.left_out.n_lines + 1)
        self._over[cause] = window
        return False

    def due(self) -> Iterator[LeftOut]:
        """What was left out in windows that are over; each is told once."""
        if not self._over:
            return
        now = self._timer()
        for cause in [each for each, window in self._over.items() if now - window.began_at >= WINDOW_S]:
            yield self._over.pop(cause).left_out

    def rest(self) -> Iterator[LeftOut]:
        """What was left out and not told, at the end."""
        while self._over:
            yield self._over.popitem()[1].left_out

    def check_invariants(self) -> None:
        """Raises ValueError when a window leaves nothing out, and is taken for one that does."""
        if any(not window.left_out.n_lines for window in self._over.values()):
            raise ValueError("a window left nothing out")


def _is_limited(record: logging.LogRecord) -> bool:
    if record.levelno <= logging.DEBUG:
        return False
    return record.levelno >= logging.WARNING or hasattr(record, "errno")


def _cause_of(record: logging.LogRecord) -> Hashable:
    arguments = record.args if isinstance(record.args, tuple) else ()
    kinds = tuple(type(each) for each in arguments if isinstance(each, BaseException))
    return record.name, record.levelno, record.msg, getattr(record, "errno", ""), getattr(record, "call", ""), kinds
