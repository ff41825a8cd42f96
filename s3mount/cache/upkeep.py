"""What one disk needs beside reads and writes: look at the space, keep last uses, know what is there.

* Every second: give way when the disk is fuller than it may be, and close what others evicted.
* Every half a minute: write down last uses, as mtimes.  Of very many blocks a part each time; what
  no data set uses any more is never among them, and that is what a restart has to tell apart.
* All the time, a folder at a time: what is on disk.  The first pass after a start takes half of a
  core at most, and until it is over a block is found by its path; later ones read the folders that
  changed, to find what other processes wrote and removed, and take 5 % of a core at most.
"""

import itertools
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import trio

from s3mount.cache.descriptors import OpenBlocks
from s3mount.cache.directory import BlockDirectory
from s3mount.cache.faults import Faults
from s3mount.cache.space import SpaceKeeper
from s3mount.cache.writing import BlockWriter
from s3mount.core.lru import N_FOLDERS, BlockIndex

#: The cache gives way within a second or two.
_LOOK_EVERY_S = 1.0
#: A file is touched twice a minute at most, and 16,384 of them take 0.1 s.
_TOUCH_EVERY = 30
_TOUCHES = 16_384
_FIRST_PASS_REST = 1.0
_LATER_REST = 19.0
#: A folder that changed in the second before it was read may have changed after it, too.
_SETTLED_NS = 1_000_000_000
_NS = 1_000_000_000

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Upkeep:
    """The background of one directory.

    Args:
        clock: seconds since the epoch.

    Attributes:
        is_scanned: every folder was read once.
    """

    def __init__(
        self,
        directory: BlockDirectory,
        opened: OpenBlocks,
        index: BlockIndex,
        keeper: SpaceKeeper,
        writer: BlockWriter,
        faults: Faults,
        clock: Callable[[], float],
    ) -> None:
        self._directory = directory
        self._opened = opened
        self._index = index
        self._keeper = keeper
        self._writer = writer
        self._faults = faults
        self._clock = clock
        self._limiter = trio.CapacityLimiter(1)
        self._used: dict[bytes, float] = {}
        self._read_at = [0] * N_FOLDERS
        self.is_scanned = trio.Event()

    def note_use(self, name: bytes, now: float) -> None:
        """A block was used, which is to survive a restart; some of very many do not."""
        if len(self._used) < _TOUCHES:
            self._used[name] = now

    async def run(self) -> None:
        """Look at the space every second, for ever."""
        for turn in itertools.count(1):
            try:
                await self.give_way()
                if turn % _TOUCH_EVERY == 0:
                    await self.flush()
                for name in await self._in_thread(self._tidy):
                    self._index.discard(name)
            except OSError as error:
                self._faults.note("look", error)
            await trio.sleep(_LOOK_EVERY_S)

    async def give_way(self) -> None:
        """Evict until the limits hold, as far as blocks are known.

        Raises:
            OSError: the disk failed.
        """
        space = await self._in_thread(self._directory.space)
        await self._writer.evict(self._keeper.plan_giving_way(space))

    def _tidy(self) -> list[bytes]:
        removed = self._opened.removed()
        for name in removed:
            self._opened.drop(name)
        return removed

    async def flush(self) -> None:
        """Write down the last uses.

        Raises:
            OSError: the disk failed; what was not written down is lost.
        """
        used, self._used = self._used, {}
        await self._in_thread(self._touch, used)

    def _touch(self, used: dict[bytes, float]) -> None:
        for name, now in used.items():
            self._directory.touch(name, now)

    async def scan(self) -> None:
        """Read the folders that changed one after the other, for ever."""
        while True:
            rest = _LATER_REST if self.is_scanned.is_set() else _FIRST_PASS_REST
            try:
                await self._clean()
                times = await self._in_thread(self._directory.folder_times)
                for folder in range(N_FOLDERS):
                    if times[folder] + _SETTLED_NS > self._read_at[folder]:
                        await trio.sleep(await self._scan_folder(folder) * rest)
                self.is_scanned.set()
            except OSError as error:
                self._faults.note("scan", error)
            await trio.sleep(_LOOK_EVERY_S)

    async def _clean(self) -> None:
        """Remove what was left behind; what cannot be removed stays, and keeps nobody from looking at the rest."""
        space = await self._in_thread(self._directory.space)
        try:
            await self._in_thread(self._directory.clean, self._clock(), self._keeper.room(space))
        except OSError as error:
            self._faults.note("clean", error)

    async def _scan_folder(self, folder: int) -> float:
        """What is in one folder now; of one that cannot be read what is known stays. Returns the seconds it took."""
        began_at, began_s = trio.current_time(), self._clock()
        self._index.begin_reading(folder)
        try:
            found = await self._in_thread(self._directory.blocks, folder)
        except OSError as error:
            self._faults.note("scan", error)
            return trio.current_time() - began_at
        now = self._clock()
        blocks = (block._replace(used_s=min(block.used_s, now)) for block in found)
        self._index.reconcile(folder, blocks, began_s)
        self._read_at[folder] = int(began_s * _NS)
        return trio.current_time() - began_at

    async def _in_thread(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        return await trio.to_thread.run_sync(function, *args, abandon_on_cancel=True, limiter=self._limiter)
