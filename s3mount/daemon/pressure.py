"""Let go of memory before the kernel kills the process: looks, and does what core.pressure says.

There is a look each second, one for each `_LOOK_EVERY` bytes that came from S3, since these come fastest, and the next
comes in time for what the fastest walk could add meanwhile.  After one that let go of something the next comes a
quarter of a second later: to give memory back takes time, too.

The resident size of this process decides nothing: what a host can spare, it may use.  By itself it keeps to the
memory target (daemon.allocator), with the names that the kernel remembers beside it.  Those are a cache, too, and
can be the largest: they go when the kernel is asked to forget them.

Nothing that is let go of is missed by a reader: what one waits for stays, the rest is asked for again.
"""

import logging
from collections import Counter
from dataclasses import dataclass

import trio

from s3mount.core.pressure import PressureRule, Step, Use
from s3mount.daemon.allocator import resident_bytes, trim
from s3mount.daemon.keeper import Keeper
from s3mount.fs.budget import ByteBudget
from s3mount.fs.filesystem import S3FileSystem
from s3mount.limits import MemoryUse
from s3mount.units import MIB, format_size

log = logging.getLogger(__name__)

_LOOK_S = 1.0
_SOONEST_S = 0.05
#: A walk adds 50 MB of names a second; others in the same group may do as much.
_FASTEST_PER_S = 200 * MIB
_AFTER_S = 0.25
_LOOK_EVERY = 32 * MIB
#: Bytes for each name that the kernel knows, answer and listed name: docs/operations.md, cache.metadata.
_INODE_BYTES, _ANSWER_BYTES, _LISTED_BYTES = 1000, 400, 65


@dataclass(frozen=True)
class PressureStatistics:
    """How often memory became short, speculation and caches were let go of; and how often the windows are halved."""

    times: int
    speculation: int
    caches: int
    narrowing: int


class MemoryWatch:
    """Looks at the memory for as long as it runs.

    Args:
        memory: what may be used, and is.
        keeper: is told, for its standby is in the same group.
    """

    def __init__(self, budget: ByteBudget, memory: MemoryUse, keeper: Keeper) -> None:
        self._budget = budget
        self._memory = memory
        self._keeper = keeper
        self._rule = PressureRule()
        self._counts: Counter[str] = Counter()
        self._arrived = 0
        self._has_grown = trio.Event()
        self._has_let_go = False

    def grew(self, n_bytes: int) -> None:
        """So many bytes were allocated since the last call."""
        self._arrived += n_bytes
        if self._arrived >= _LOOK_EVERY and not self._has_let_go:
            self._arrived = 0
            self._has_grown.set()

    async def run(self, filesystem: S3FileSystem) -> None:
        """Until cancelled; never fails for want of files to look at."""
        while True:
            use = await self.look(filesystem)
            self._has_grown = trio.Event()
            with trio.move_on_after(_AFTER_S if self._has_let_go else _pause_s(use)):
                await self._has_grown.wait()

    async def look(self, filesystem: S3FileSystem) -> Use:
        """Look once, and let go of what must go; returns what is used now."""
        was_short = self._rule.is_short
        use, what = self._memory.fullest()
        step = self._rule.look(use, trio.current_time())
        if self._rule.is_short and not was_short:
            self._counts["times"] += 1
            self._keeper.memory_is_short(is_short=True)
            log.warning(
                "memory is short: %s of the %s of %s are in use, %s by this process; what is read ahead and remembered "
                "is let go of", format_size(use.used), format_size(use.limit), what, format_size(resident_bytes()),
            )  # fmt: skip
        if step is Step.END:
            self._keeper.memory_is_short(is_short=False)
            log.info("memory is no longer short: %s of the %s of %s are in use", *map(format_size, use), what)
        self._has_let_go = step is Step.SPECULATION
        if self._has_let_go:
            await self._let_go(filesystem, use)
            use, _ = self._memory.fullest()
        self._budget.limit = self._rule.may_hold(use, self._budget.used, self._budget.total)
        return use

    async def _let_go(self, filesystem: S3FileSystem, use: Use) -> None:
        self._counts["speculation"] += 1
        self._budget.limit = self._rule.may_hold(use, 0, self._budget.total)
        self._budget.shed()
        await trio.lowlevel.checkpoint()  # what was cancelled ends, and frees what it held
        trim()
        use, _ = self._memory.fullest()
        if self._rule.after_speculation(use, _cached_bytes(filesystem)) is Step.CACHES:
            self._counts["caches"] += 1
            await filesystem.refresh()
            trim()

    def statistics(self) -> PressureStatistics:
        """A snapshot of the counters."""
        count = self._counts
        return PressureStatistics(count["times"], count["speculation"], count["caches"], self._rule.narrowing)

    def check_invariants(self) -> None:
        """Raises ValueError when the windows are narrow without a reason."""
        self._rule.check_invariants()


def _pause_s(use: Use) -> float:
    return min(max((use.limit - use.used) / _FASTEST_PER_S, _SOONEST_S), _LOOK_S)


def _cached_bytes(filesystem: S3FileSystem) -> int:
    known = filesystem.statistics()
    answers, listed = known.metadata.records, known.metadata.listed_names
    return known.inodes.inodes * _INODE_BYTES + answers * _ANSWER_BYTES + listed * _LISTED_BYTES
