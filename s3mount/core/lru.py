"""What is on one disk: every block with its size and last use, and which go first.

A block is one entry of a dict, name to one packed number, last use above and pages below: 150 bytes
a block at a million.  There is no list of the order.  When victims are asked for, the folders that
are next and have 8,192 blocks together are walked, and their oldest sixteenth is taken from a heap;
then come the next folders.  What was used meanwhile carries another number than its entry in the
heap and is passed over.

So the order is exactly least recently used among up to 8,192 blocks.  Among more, names being
hashes, every stretch of folders is a fair sample of all, so victims are of the oldest sixteenth
of all, about; and no call walks over a million.

INVARIANT: a block of the folders in turn, last used before the limit (of equal ones: first by name), is in the heap.

A use within `grain_s` of the last one is not recorded: a block is read in many pieces, which are one use.

The blocks are filed by the first byte of their names, as the directory is, so that what a scan
found in one of its folders can be compared with what is known of that folder.  Files go in
threads, so a scan may have seen what went meanwhile: names that are leaving, or left since the scan
of their folder began, are not taken for found.
"""

import heapq
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from s3mount.units import KIB

N_FOLDERS = 256
#: What file systems allocate by.
PAGE = 4 * KIB
_PAGES_BITS = 16
_PAGES_MASK = (1 << _PAGES_BITS) - 1
_MS = 1000
#: A walk costs 0.3 us a block, so 5 us a victim.
_SHARE = 16
_AT_ONCE = 8_192


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
        self._limit = (-1, b"")
        self._in_turn = range(0)
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
        known = self._folders[block.name[0]].get(block.name)
        pages = allocated(block.n_bytes) // PAGE
        used = int(block.used_s * _MS)
        if known is not None:
            used = max(used, known >> _PAGES_BITS)
            self._pages -= known & _PAGES_MASK
        else:
            self._count += 1
        self._pages += pages
        self._file(block.name, used << _PAGES_BITS | pages)

    def _file(self, name: bytes, packed: int) -> None:
        self._folders[name[0]][name] = packed
        if (packed, name) <= self._limit and name[0] in self._in_turn:
            heapq.heappush(self._oldest, (packed, name))
            if len(self._oldest) > 2 * self._count // _SHARE + _AT_ONCE:  # a scan finds older ones than were known
                self._in_turn, self._oldest = range(0), []

    def use(self, name: bytes, now: float) -> bool:
        """A block is read.

        Returns:
            Whether that is news, to be kept across restarts; false also for a block not known.
        """
        known = self._folders[name[0]].get(name)
        used = int(now * _MS)
        if known is None or used - (known >> _PAGES_BITS) < max(self._grain, 1):
            return False
        self._file(name, used << _PAGES_BITS | known & _PAGES_MASK)
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
        """Fill the heap from the folders that are next; returns whether there is any block at all."""
        entries: list[tuple[int, bytes]] = []
        while self._count and not entries:
            first = self._in_turn.stop % N_FOLDERS
            stop = first
            while stop < N_FOLDERS and len(entries) < _AT_ONCE:
                entries.extend(self._entries(range(stop, stop + 1)))
                stop += 1
            self._in_turn = range(first, stop)
        self._oldest = heapq.nsmallest(len(entries) // _SHARE + 1, entries)
        self._limit = max(self._oldest, default=self._limit)
        return bool(self._oldest)

    def _entries(self, folders: range) -> Iterator[tuple[int, bytes]]:
        return ((packed, name) for number in folders for name, packed in self._folders[number].items())

    def oldest_in(self, folder: int) -> float | None:
        """When the least recently used block of a folder was used; None when there is none.  30 ns a block."""
        return (min(self._folders[folder].values()) >> _PAGES_BITS) / _MS if self._folders[folder] else None

    def check_invariants(self) -> None:
        """Raises ValueError when the sums are wrong, or an old block is not among the oldest."""
        blocks = list(self._entries(range(N_FOLDERS)))
        if len(blocks) != self._count or sum(packed & _PAGES_MASK for packed, _ in blocks) != self._pages:
            raise ValueError("the index miscounts its blocks")
        if any(name not in self._folders[name[0]] for _, name in blocks):
            raise ValueError("a block is filed where it does not belong")
        if not set(self._oldest) >= {entry for entry in self._entries(self._in_turn) if entry <= self._limit}:
            raise ValueError("an old block is not among the oldest")
