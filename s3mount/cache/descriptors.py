"""Blocks that are open, with their verified headers: a second read of a block costs one preadv.

Bounded, the least recently used goes first.  Used by the loop and by reading threads, so every
change is under a lock that is never held while anything blocks.

A block that is being read is pinned; what falls out of the table meanwhile is closed by its last
reader.  So eviction never takes a file from under a read: it unlinks, and the descriptor keeps it.
The other way round a descriptor keeps the space of a removed file, so `removed` finds those that
another process evicted.

INVARIANT: a descriptor is closed exactly once, when it is neither in the table nor pinned.
"""

import os
import threading
from collections import OrderedDict

from s3mount.core.blockfile import BlockHeader


class OpenBlock:
    """A block's descriptors and what its header said.

    Attributes:
        fd: reads through the kernel's memory; -1 while nobody does.
        direct_fd: reads past it (O_DIRECT); -1 while nobody does.
        pins: threads that read from it.
        is_listed: it is in the table.
    """

    __slots__ = ("direct_fd", "fd", "header", "is_listed", "name", "pins")

    def __init__(self, name: bytes, fd: int, header: BlockHeader, direct_fd: int = -1) -> None:
        self.name = name
        self.fd = fd
        self.direct_fd = direct_fd
        self.header = header
        self.pins = 1
        self.is_listed = False


class OpenBlocks:
    """The blocks of one directory that are open.

    Args:
        most: that stay open when nobody reads them.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._blocks: OrderedDict[bytes, OpenBlock] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Number of blocks in the table."""
        return len(self._blocks)

    def pin(self, name: bytes) -> OpenBlock | None:
        """The block, if it is open; `unpin` it."""
        with self._lock:
            block = self._blocks.get(name)
            if block is not None:
                block.pins += 1
                self._blocks.move_to_end(name)
            return block

    def add(self, block: OpenBlock) -> None:
        """Put in a block just opened, pinned once by who opened it."""
        closing = []
        with self._lock:
            other = self._blocks.pop(block.name, None)
            block.is_listed = True
            self._blocks[block.name] = block
            if other is not None:
                closing += self._delist(other)
            while len(self._blocks) > self._most:
                closing += self._delist(self._blocks.popitem(last=False)[1])
        _close(closing)

    def unpin(self, block: OpenBlock) -> None:
        """A reader is done with it."""
        with self._lock:
            block.pins -= 1
            closing = [] if block.pins or block.is_listed else [block.fd, block.direct_fd]
        _close(closing)

    def keep(self, block: OpenBlock, fd: int, *, is_direct: bool) -> int:
        """A pinned block was opened once more; returns the descriptor of that kind to use."""
        with self._lock:
            known = block.direct_fd if is_direct else block.fd
            if known >= 0:
                closing, fd = [fd], known
            elif is_direct:
                closing, block.direct_fd = [], fd
            else:
                closing, block.fd = [], fd
        _close(closing)
        return fd

    def drop(self, name: bytes) -> None:
        """The block is gone from the disk, or wrong: nobody is to read it again."""
        with self._lock:
            block = self._blocks.pop(name, None)
            closing = [] if block is None else self._delist(block)
        _close(closing)

    def _delist(self, block: OpenBlock) -> list[int]:
        block.is_listed = False
        return [] if block.pins else [block.fd, block.direct_fd]

    def removed(self) -> list[bytes]:
        """The names of open blocks that have no name on disk any more.

        Raises:
            OSError: the disk failed.
        """
        gone = []
        with self._lock:
            names = list(self._blocks)
        for name in names:
            with self._lock:
                block = self._blocks.get(name)
                if block is None:
                    continue
                block.pins += 1
            try:
                if os.fstat(max(block.fd, block.direct_fd)).st_nlink == 0:
                    gone.append(name)
            finally:
                self.unpin(block)
        return gone

    def close(self) -> None:
        """Close all that nobody reads; the rest is closed by its readers."""
        for name in list(self._blocks):
            self.drop(name)

    def check_invariants(self) -> None:
        """Raises ValueError when a block is misfiled, or there are too many."""
        with self._lock:
            if len(self._blocks) > self._most:
                raise ValueError("too many blocks are open")
            if any(name != each.name or not each.is_listed or each.pins < 0 for name, each in self._blocks.items()):
                raise ValueError("an open block is misfiled")


def _close(descriptors: list[int]) -> None:
    for fd in descriptors:
        if fd >= 0:
            os.close(fd)
