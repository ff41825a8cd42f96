"""What is on one disk: every block with its size and last use, and which go first.

A block is one entry of a dict, name to one packed number, last use above and pages below: 160 bytes
a block at a million.  There is no list of the order.  When victims are asked for, the
oldest sixteenth is sorted out once, by a limit that a sample gives, and then taken from a heap;
what was used meanwhile carries another number than its entry in the heap and is passed over.

INVARIANT: a block last used at or before the limit is in the heap with its number; so the order is
exactly least recently used, whatever is found, used or discarded between two victims.

A use within `grain_s` of the last one is not recorded: a block is read in many pieces, which are one use.

The blocks are filed by the first byte of their names, as the directory is, so that what a scan
found in one of its folders can be compared with what is known of that folder.  Files go in
threads, so a scan may have seen what went meanwhile: names that are leaving, or left since the scan
of their folder began, are not taken for found.
"""

import heapq
from collections.abc import Iterable
from typing import NamedTuple

from s3mount.units import KIB

N_FOLDERS = 256
#: What file systems allocate by.
PAGE = 4 * KIB
_PAGES_BITS = 16
_PAGES_MASK = (1 << _PAGES_BITS) - 1
_MS = 1000
#: One sixteenth is sorted at a time: a walk over all costs 0.1 us a block, so 2 us a victim.
_SHARE = 16
_SAMPLE = 1024


class KnownBlock(NamedTuple):
    """A block on disk.

    Attributes:
        n_bytes: allocated, whole pages.
        used_s: when it was last used, seconds since the epoch.
    """

    name: bytes
    n_bytes: int
    used_s: float


def allocated(n_bytes: int) -> int:
    """The space of a file: whole pages."""
    return -(-n_bytes // PAGE) * PAGE


class BlockIndex:
    """The blocks of one directory.

    Args:
        grain_s: uses closer together than this are one.
    """

    def __init__(self, grain_s: float) -> None:
        self._grain = int(grain_s * _MS)
        self._folders: list[dict[bytes, int]] = [{} for _ in range(N_FOLDERS)]
        self._count = 0
        self._pages = 0
        self._limit = -1
        self._oldest: list[tuple[int, bytes]] = []
        self._leaving: set[bytes] = set()
        self._folder_being_read = -1
        self._left: set[bytes] = set()

    def __len__(self) -> int:
        """Number of blocks."""
        return self._count

    def __contains__(self, name: bytes) -> bool:
        """Whether the block is known; it may be on disk and not be known yet."""
        return name in self._folders[name[0]]

    @property
    def n_bytes(self) -> int:
        """Of all blocks together."""
        return self._pages * PAGE

    def add(self, block: KnownBlock) -> None:
        """A block is there. Of two last uses the later counts."""
        self._leaving.discard(block.name)
        self._left.discard(block.name)
        folder = self._folders[block.name[0]]
        known = folder.get(block.name)
        pages = allocated(block.n_bytes) // PAGE
        used = int(block.used_s * _MS)
        if known is not None:
            used = max(used, known >> _PAGES_BITS)
            self._pages -= known & _PAGES_MASK
        else:
            self._count += 1
        self._pages += pages
        packed = used << _PAGES_BITS | pages
        folder[block.name] = packed
        if packed <= self._limit:
            heapq.heappush(self._oldest, (packed, block.name))
            if len(self._oldest) > 2 * self._count // _SHARE + _SAMPLE:  # a scan finds older ones than were known
                self._limit, self._oldest = -1, []

    def use(self, name: bytes, now: float) -> bool:
        """A block is read.

        Returns:
            Whether that is news, to be kept across restarts; false also for a block not known.
        """
        folder = self._folders[name[0]]
        known = folder.get(name)
        used = int(now * _MS)
        if known is None or used - (known >> _PAGES_BITS) < max(self._grain, 1):
            return False
        folder[name] = used << _PAGES_BITS | known & _PAGES_MASK
        return True

    def discard(self, name: bytes) -> None:
        """A block is gone."""
        known = self._folders[name[0]].pop(name, None)
        if known is not None:
            self._count -= 1
            self._pages -= known & _PAGES_MASK
            self._note_left(name)

    def _note_left(self, name: bytes) -> None:
        if name[0] == self._folder_being_read:
            self._left.add(name)

    def begin_reading(self, folder: int) -> None:
        """A folder of the directory is being read; `reconcile` follows."""
        self._folder_being_read = folder
        self._left = set()

    def reconcile(self, folder: int, found: Iterable[KnownBlock], began_s: float) -> None:
        """One folder of the directory was read: what is there is known, what is not is forgotten.

        Args:
            began_s: when reading it began; what was used or written since then stays.
        """
        names = set()
        for block in found:
            names.add(block.name)
            if block.name not in self._leaving and block.name not in self._left:
                self.add(block)
        since = int(began_s * _MS)
        gone = [
            name for name, known in self._folders[folder].items() if known >> _PAGES_BITS < since and name not in names
        ]
        for name in gone:
            self.discard(name)
        self._folder_being_read = -1

    def take(self, n_bytes: int, before_s: float) -> list[KnownBlock]:
        """The least recently used blocks, which are then no longer known; `add` or `settle` them.

        Args:
            n_bytes: that they have together, at least, if there are so many.
            before_s: only blocks last used before this.
        """
        taken: list[KnownBlock] = []
        wanted = -(-n_bytes // PAGE)
        while wanted > 0 and (self._oldest or self._sort_oldest()):
            packed, name = self._oldest[0]
            if (packed >> _PAGES_BITS) >= before_s * _MS:
                break
            heapq.heappop(self._oldest)
            if self._folders[name[0]].get(name) == packed:
                self.discard(name)
                self._leaving.add(name)
                pages = packed & _PAGES_MASK
                taken.append(KnownBlock(name, pages * PAGE, (packed >> _PAGES_BITS) / _MS))
                wanted -= pages
        return taken

    def settle(self, gone: Iterable[KnownBlock]) -> None:
        """Blocks that were taken are removed, or nobody knows; those that were added again are not touched."""
        for block in gone:
            if block.name in self._leaving:
                self._leaving.remove(block.name)
                self._note_left(block.name)

    def _sort_oldest(self) -> bool:
        """Fill the heap with the oldest sixteenth; returns whether there is any block at all."""
        if not self._count:
            return False
        step = max(1, self._count // _SAMPLE)
        sample: list[int] = []
        for folder in self._folders:
            sample.extend(list(folder.values())[::step] if len(folder) > step else folder.values())
        sample.sort()
        self._limit = sample[len(sample) // _SHARE]
        limit = self._limit
        self._oldest = [
            (packed, name) for folder in self._folders for name, packed in folder.items() if packed <= limit
        ]
        self._oldest.sort()
        return True

    def check_invariants(self) -> None:
        """Raises ValueError when the sums are wrong, or an old block is not among the oldest."""
        blocks = [(packed, name) for folder in self._folders for name, packed in folder.items()]
        if len(blocks) != self._count or sum(packed & _PAGES_MASK for packed, _ in blocks) != self._pages:
            raise ValueError("the index miscounts its blocks")
        if any(name not in self._folders[name[0]] for _, name in blocks):
            raise ValueError("a block is filed where it does not belong")
        if not set(self._oldest) >= {(packed, name) for packed, name in blocks if packed <= self._limit}:
            raise ValueError("an old block is not among the oldest")
