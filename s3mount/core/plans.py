"""What the planner is told with a read, and what it answers (`core.readahead`)."""

from typing import NamedTuple

from s3mount.core.distance import Distance
from s3mount.core.ranges import ByteRange


class Plan(NamedTuple):
    """What to have for a read.

    Attributes:
        fetch: contains the read; what of it is missing is fetched on demand.
        ahead: in order of need; fetched only while the budget has room.
        left: speculation that is in flight there, and nothing waits for, is to be cancelled.
        is_whole: `fetch` and `ahead` are whole parts; small pieces held of them may be fetched again.
    """

    fetch: ByteRange
    ahead: tuple[ByteRange, ...] = ()
    left: tuple[ByteRange, ...] = ()
    is_whole: bool = False


class Situation(NamedTuple):
    """What the planner cannot see.

    Attributes:
        ahead_limit: bytes that may be in flight or unread ahead of this reader.
        distance: of S3, as observed.
        now: seconds, of any clock that goes forward.
        is_held: whether the read's bytes are held or on their way.
        is_late: whether some of them are on their way, so that the reader waits.
        is_on_disk: whether the disk cache answered the read: a jump there costs next to nothing.
    """

    ahead_limit: int
    distance: Distance
    now: float
    is_held: bool
    is_late: bool = False
    is_on_disk: bool = False
