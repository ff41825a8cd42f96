"""Which objects are being read at present: what is shared out is shared among these.

Files that are open but not read (a data set keeps a descriptor on each of its thousand shards)
must not make everybody's share too small to read ahead.

INVARIANT: in order of the last read; nothing older than `RECENT_S` outlives the next note.
"""

from collections import OrderedDict

from s3mount.core.attrs import ObjectId

#: A reader that is slower than one part in this time needs no window to speak of.
RECENT_S = 2.0


class Activity:
    """Counts the objects that were read recently."""

    def __init__(self) -> None:
        self._read_at: OrderedDict[ObjectId, float] = OrderedDict()

    def note(self, object_id: ObjectId, now: float) -> int:
        """An object is read; returns how many were recently, this one included."""
        self._read_at[object_id] = now
        self._read_at.move_to_end(object_id)
        while now - self._read_at[next(iter(self._read_at))] > RECENT_S:
            self._read_at.popitem(last=False)
        return len(self._read_at)

    def forget(self, object_id: ObjectId) -> None:
        """Nothing of it is held any more."""
        self._read_at.pop(object_id, None)

    def __len__(self) -> int:
        return len(self._read_at)
