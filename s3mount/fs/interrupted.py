"""Calls that a dead daemon was handling: the kernel sends them again, and S3 may have done them already.

Which they were is in the marks that outlive a daemon (`fuse.marks`): a call is marked before anything is asked of S3,
and until it is answered.  So what is marked is the intent, and it needs no other record.

A call that is repeated finds its own work in its way: the directory exists, the file is gone.  For such a call that is
success.  Each is taken once, and none a while after the takeover: by then what comes is a call of its own.
"""

import zlib
from collections.abc import Callable, Iterable
from typing import NamedTuple

#: Seconds after a takeover: the kernel sends again at once, and a request may take its time.
VALID_S = 30.0


class InterruptedCall(NamedTuple):
    """One call of the kernel: the name of its handler, the directory, and CRC-32 of the name in it."""

    verb: str
    parent_ino: int
    name: int


class InterruptedCalls:
    """What was not answered.

    Args:
        clock: seconds.
    """

    def __init__(self, calls: Iterable[InterruptedCall], clock: Callable[[], float]) -> None:
        self._calls = set(calls)
        self._clock = clock
        self._until = clock() + VALID_S

    def take(self, verb: str, parent_ino: int, name: bytes) -> bool:
        """Whether a call is one of them; the next one like it is not."""
        if not self._calls:
            return False
        if self._clock() > self._until:
            self._calls.clear()
        call = InterruptedCall(verb, parent_ino, zlib.crc32(name))
        is_one = call in self._calls
        self._calls.discard(call)
        return is_one
