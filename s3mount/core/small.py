"""The planner of a small object: one request brings it whole, whatever is read of it.

Most files of a data set are small, and each is opened, read and closed once an epoch: this one has no state, so
that an open costs none.  `core.readahead` plans the others.
"""

from s3mount.core.plans import Plan, Situation
from s3mount.core.ranges import ByteRange


class SmallPlanner:
    """As `core.readahead.Planner`.

    Args:
        size: of the object, in bytes.
    """

    __slots__ = ("_all",)

    #: Nothing is learned of its readers, and its content goes with the last handle.
    keeps_content = False
    keeps_state = False

    def __init__(self, size: int) -> None:
        self._all = ByteRange(0, size)

    def on_open(self) -> ByteRange:
        """All of it."""
        return self._all

    def on_close(self) -> None:
        """Nothing changes."""

    def on_hit(self, wanted: ByteRange) -> bool:
        """Whatever is held, there is nothing more to plan."""
        return True

    def on_read(self, wanted: ByteRange, situation: Situation) -> Plan:
        """All of it, and nothing ahead."""
        return Plan(self._all)

    def on_refused(self, span: ByteRange) -> None:
        """Nothing is ahead that could be."""

    def check_invariants(self) -> None:
        """Raises ValueError when the object has less than no bytes."""
        if self._all.length < 0:
            raise ValueError(f"an object of {self._all.length} bytes")
