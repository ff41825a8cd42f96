"""The objects that are open: what is held and planned of each, and for how long.

After the last close all content goes at once, with one exception: an object that is fetched whole
because its readers jump keeps it for `LINGER_S`, since data sets open a shard anew for every
sample.  What its planner learned of the readers is remembered longer, so that such opens add up.

INVARIANT: an object in the table has a handle or lingers.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator

import trio

from s3mount.core.attrs import ObjectId
from s3mount.core.cells import CachedContent
from s3mount.core.policies import PathPolicies
from s3mount.core.readahead import Planner, is_small
from s3mount.core.siblings import SiblingTable
from s3mount.core.small import SmallPlanner
from s3mount.fs.chunks import ChunkList

#: Between two samples of one shard a training loop computes; a longer pause is an epoch's.
LINGER_S = 10.0
#: Planners of closed objects: a data set's shards in use, at about 1 KiB each.
MAX_REMEMBERED = 1024


class OpenObject:
    """What is held and planned for one version of an object.

    Attributes:
        handles: that refer to it.
        cached: what the disk cache calls it, once it was asked.
        lingering: its deadline is when the content of an object without a handle goes.
    """

    def __init__(self, object_id: ObjectId, size: int, planner: Planner | SmallPlanner) -> None:
        self.object_id = object_id
        self.size = size
        self.planner = planner
        self.chunks = ChunkList()
        self.handles = 0
        self.cached: CachedContent | None = None
        self.lingering: trio.CancelScope | None = None


class OpenObjects:
    """One `OpenObject` for each version that is open.

    Args:
        nursery: outlives every handle.
        part_size: the largest GET, bytes.
        let_go: gives up all content of an object, which is no longer in the table.
        policies: say which files are fetched whole.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        part_size: int,
        *,
        let_go: Callable[[OpenObject], None],
        policies: PathPolicies | None = None,
    ) -> None:
        self._nursery = nursery
        self._part_size = part_size
        self._let_go = let_go
        self._objects: dict[ObjectId, OpenObject] = {}
        self._remembered: OrderedDict[ObjectId, Planner | SmallPlanner] = OrderedDict()
        self._siblings = SiblingTable(policies)

    def open(self, object_id: ObjectId, size: int) -> OpenObject:
        """The shared state of one version; pair it with `close`."""
        opened = self._objects.get(object_id)
        if opened is None:
            opened = self._objects[object_id] = OpenObject(object_id, size, self._planner_of(object_id, size))
        opened.handles += 1
        return opened

    def _planner_of(self, object_id: ObjectId, size: int) -> Planner | SmallPlanner:
        if is_small(size, self._part_size):
            return SmallPlanner(size)
        remembered = self._remembered.pop(object_id, None)
        return Planner(size, self._part_size, self._siblings.of(object_id.key)) if remembered is None else remembered

    def close(self, opened: OpenObject) -> None:
        """One handle less; with the last one the content goes, at once or after `LINGER_S`."""
        opened.handles -= 1
        if opened.handles:
            return
        if not opened.planner.keeps_content:
            self._end(opened)
            return
        deadline = trio.current_time() + LINGER_S
        if opened.lingering is not None:
            opened.lingering.deadline = deadline
            return
        opened.lingering = trio.CancelScope(deadline=deadline)
        self._nursery.start_soon(self._linger, opened, opened.lingering)

    async def _linger(self, opened: OpenObject, scope: trio.CancelScope) -> None:
        try:
            with scope:
                await trio.sleep_forever()
        finally:
            opened.lingering = None
            if not opened.handles and self._objects.get(opened.object_id) is opened:
                self._end(opened)

    def _end(self, opened: OpenObject) -> None:
        if opened.lingering is not None:
            opened.lingering.cancel()
        del self._objects[opened.object_id]
        self._let_go(opened)
        opened.planner.on_close()
        if opened.planner.keeps_state:
            self._remembered[opened.object_id] = opened.planner
            if len(self._remembered) > MAX_REMEMBERED:
                self._remembered.popitem(last=False)

    def windows(self) -> list[int]:
        """Bytes that are planned ahead of each reader that has any, of all objects that are not small."""
        planners = (opened.planner for opened in self)
        ahead = [window for each in planners if isinstance(each, Planner) for window in each.statistics().ahead]
        return [window for window in ahead if window]

    def __iter__(self) -> Iterator[OpenObject]:
        return iter(self._objects.values())

    def __len__(self) -> int:
        return len(self._objects)

    def check_invariants(self) -> None:
        """Raises ValueError when something is kept that nobody refers to, or out of shape."""
        if len(self._remembered) > MAX_REMEMBERED:
            raise ValueError("too many planners are remembered")
        for opened in self:
            if opened.handles < 0 or (not opened.handles and opened.lingering is None):
                raise ValueError(f"{opened.object_id} is kept without a handle")
            opened.chunks.check_invariants()
            opened.planner.check_invariants()
