"""What the file system tells the kernel of its own accord: forget this.

The kernel uses names, attributes and pages without asking for as long as it was told.  When the
file system learns sooner that something changed (a refresh, a write of its own), it says so
here, and the implementation in `fuse` carries it into the kernel.

Both calls only leave a note.  They return at once, because the kernel may make the carrier wait
for a request that only this very loop can answer; they never raise, because what is forgotten
too late is wrong for one TTL at most.  So nobody may build on a note having arrived: correctness
comes from new versions being new inodes, and from TTLs.

Pages are never forgotten this way: they belong to a version, and that is what an inode is.
"""

from collections.abc import Sequence
from typing import Protocol


class KernelNotifier(Protocol):
    """Carries notes to the kernel: best effort, in order, lost when the mount is gone."""

    def forget_name(self, parent_ino: int, name: bytes) -> None:
        """The kernel must ask for this name again, whether it knows it as present or as absent.

        Of a directory it lets go of all that is cached below, too; a process that works in it has no
        getcwd(3) until somebody walks the path again (measured).
        """
        ...

    def forget_inode(self, ino: int) -> None:
        """The kernel must ask for the attributes of an inode again; it keeps the pages."""
        ...

    async def room(self) -> None:
        """Until there is room for many more notes; not for long when the carrier is stuck."""
        ...

    async def let_go(self, names: Sequence[tuple[int, bytes]]) -> int:
        """The kernel need not remember names (inode of the directory, name) that nothing has any more.

        In the way of nobody, and in no hurry.  Returns how many of them it was told of, at least one, when it is time
        for the others: by then something may have those again.
        """
        ...


class NoNotifier:
    """Carries nothing: for a file system that no kernel has mounted."""

    def forget_name(self, parent_ino: int, name: bytes) -> None:
        """There is no kernel that knows the name."""

    def forget_inode(self, ino: int) -> None:
        """There is no kernel that knows the inode."""

    async def room(self) -> None:
        """There always is."""

    async def let_go(self, names: Sequence[tuple[int, bytes]]) -> int:
        """There is no kernel that remembers them."""
        return len(names)
