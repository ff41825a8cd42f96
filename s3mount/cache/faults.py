"""What went wrong with one cache directory: counted, told once, and when to leave it alone.

Nothing on the disk can make a read fail, so errors end here: each kind (verb and errno) is one WARN
for the directory and a counter.  A full disk is the evictor's business and no outage.  Reading
and writing stand still separately: a disk that became read-only goes on being read.
"""

import errno
import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from s3mount.core.standstill import Outage

log = logging.getLogger(__name__)

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def is_full(error: OSError) -> bool:
    """Whether the disk works, but has no room."""
    return error.errno in _FULL


class Faults:
    """The errors of one directory.

    Args:
        timer: monotonic seconds.

    Attributes:
        reading, writing: whether to try.
    """

    def __init__(self, path: Path, timer: Callable[[], float]) -> None:
        self._path = path
        self._timer = timer
        self.reading = Outage()
        self.writing = Outage()
        self._counts: Counter[str] = Counter()

    def may_read(self) -> bool:
        """Whether to read from the directory now."""
        return self.reading.lets_through(self._timer())

    def may_write(self) -> bool:
        """Whether to write to the directory now."""
        return self.writing.lets_through(self._timer())

    def note(self, verb: str, error: OSError, outage: Outage | None = None) -> None:
        """An operation failed.

        Args:
            verb: what failed, in a word.
            outage: of its side of the directory, if it tells of that.
        """
        kind = f"{verb} {errno.errorcode.get(error.errno or 0, 'unknown')}"
        self._counts[kind] += 1
        if self._counts[kind] == 1:
            log.warning(
                "the cache directory %s has a fault, reading goes on from S3: %s: %s (told once, counted from now on)",
                self._path,
                verb,
                error.strerror or error,
            )
        if outage is not None and not is_full(error):
            outage.note(self._timer(), is_good=False)

    def note_good(self, outage: Outage) -> None:
        """An operation succeeded."""
        outage.note(self._timer(), is_good=True)

    def counts(self) -> dict[str, int]:
        """How often each kind was seen."""
        return dict(self._counts)
