"""What the kernel was told and may use without asking, and how it is told to forget.

Of a file its name is forgotten: the next use looks it up, and finds the inode of what is there then.
Of a directory only the attributes: a name that is forgotten while a process works in the directory
leaves that process without a current directory (measured), and every open of a directory asks
anyway whether it is still there.

The kernel may keep that a name is absent only as long as this is remembered here, so that it can
be taken back.
"""

import math
from collections.abc import Iterable

from s3mount.core.inodes import InodeTable
from s3mount.core.keys import SEPARATOR, child_key, is_below, name_to_kernel, split_key
from s3mount.core.listing import Entry
from s3mount.fs.notifier import KernelNotifier

#: Absent names remembered; beyond it the kernel asks each time, and the cache answers.
_MAX_ABSENT = 10_000
#: Notes left between two looks at whether the carrier keeps up.
_BATCH = 1_000


class KernelView:
    """Leaves notes for the kernel about inodes it knows."""

    def __init__(self, inodes: InodeTable, notifier: KernelNotifier) -> None:
        self._inodes = inodes
        self._notifier = notifier
        self._absent: dict[str, tuple[int, bytes]] = {}  # path → (inode of the directory, name)

    def may_keep_absent(self, path: str, parent_ino: int, name: bytes) -> bool:
        """Whether the kernel may keep that nothing has a name; it counts as told."""
        if path not in self._absent and len(self._absent) >= _MAX_ABSENT:
            return False
        self._absent[path] = (parent_ino, name)
        return True

    def forget_name(self, key: str) -> None:
        """The kernel must look this name up again."""
        directory_key, name = split_key(key.removesuffix(SEPARATOR))
        parent = self._inodes.find(directory_key)
        if name and parent is not None:
            self._notifier.forget_name(parent.ino, name_to_kernel(name))

    async def forget_below(self, path: str) -> None:
        """The kernel must ask again for a path and everything below it, and for names above it that are absent.

        Args:
            path: a full key; of the mount's root its key, empty or ending in a slash.
        """
        below = [inode for inode in self._inodes.below(path) if is_below(inode.key, path)]
        for n, inode in enumerate(below, 1):
            inode.asked_at = inode.vouched_until = -math.inf
            if inode.stored is not None:
                inode.stored = inode.stored._replace(asked_at=-math.inf, is_settled=False)
            if inode.is_directory:
                self._notifier.forget_inode(inode.ino)
            else:
                self.forget_name(inode.key)
            if n % _BATCH == 0:
                await self._notifier.room()
        for absent in [each for each in self._absent if is_below(each, path) or is_below(path, each)]:
            self._notifier.forget_name(*self._absent.pop(absent))

    async def let_go(self, directory_key: str, lost: Iterable[Entry]) -> None:
        """Nothing has these names any more: the kernel need not remember the files, unless somebody has them open."""
        left = self._remembered(directory_key, lost)
        while left:
            n_told = await self._notifier.let_go([name_of for name_of, _ in left])
            left = self._remembered(directory_key, [entry for _, entry in left[n_told:]])

    def _remembered(self, directory_key: str, lost: Iterable[Entry]) -> list[tuple[tuple[int, bytes], Entry]]:
        """Those that the kernel may remember still, as files that nobody has open."""
        parent = self._inodes.find(directory_key)
        if parent is None:
            return []
        return [
            ((parent.ino, name_to_kernel(entry.name)), entry)
            for entry in lost
            if entry.found is not None
            and (inode := self._inodes.peek(child_key(directory_key, entry.name), entry.found)) is not None
            and not inode.handles
        ]

    def check_invariants(self) -> None:
        """Raises ValueError when more absent names are remembered than may be."""
        if len(self._absent) > _MAX_ABSENT:
            raise ValueError(f"{len(self._absent)} absent names are remembered")
