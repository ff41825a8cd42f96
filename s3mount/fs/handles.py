"""Open files and directories by the numbers the kernel has for them, a predecessor's too.

    bits  40  serial of the inode (`core.ledger`)
           4  daemons before the one that gave it out, modulo 16
          20  counts

So a handle that a predecessor gave out says what it is on, and nothing is written down for it.  It is made when it
is first used: the file with the version of its inode, the directory without a listing, which is listed anew up to the
offset the kernel asks for.  A predecessor may have released it, and may have given out one that the kernel
never got: after a takeover, letting go of one that is not there is no error.

INVARIANT: no two of this daemon's handles have the same number at once.  One may have the number of a handle that
the sixteenth predecessor gave out on the same inode: they are one then, and made anew after the first is released.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Protocol

from s3mount.core.inode import Inode
from s3mount.core.inodes import InodeTable
from s3mount.errors import BadHandle, StaleInode
from s3mount.fs.blocks import BlockStore
from s3mount.fs.directories import DirectoryLister
from s3mount.fs.open_directory import OpenDirectory
from s3mount.fs.reader import FileReader, Limit

_SERIAL_AT = 24
_DAEMON_AT = 20
_DAEMONS = 1 << (_SERIAL_AT - _DAEMON_AT)
#: Handles on one inode at once; the kernel has fewer files.
_COUNTS = 1 << _DAEMON_AT


class OpenFile(Protocol):
    """What a handle on a file does: `fs.reader.FileReader`, or `fs.write_handle.WriteHandle`."""

    inode: Inode

    def read_nowait(self, offset: int, length: int) -> memoryview | None:
        """See `FileReader.read_nowait`."""
        ...

    async def read(self, offset: int, length: int, limit: Limit = ...) -> memoryview:
        """See `FileReader.read`."""
        ...

    def close(self) -> None:
        """The handle is gone."""
        ...


class HandleTable:
    """Every handle that is in use.

    Attributes:
        pins: inodes that something else than a handle keeps open: files being written.
        n_opening: calls that may bring a handle that writes.
    """

    def __init__(self, inodes: InodeTable, lister: DirectoryLister, blocks: BlockStore) -> None:
        self._inodes = inodes
        self._lister = lister
        self._blocks = blocks
        self._files: dict[int, OpenFile] = {}
        self.pins = self.n_opening = 0
        self._directories: dict[int, OpenDirectory] = {}
        self._own = inodes.ledger.takeovers % _DAEMONS << _DAEMON_AT
        self._counts = count()

    def new_file(self, reader: OpenFile) -> int:
        """A handle on a file; pair it with `release`."""
        self._inodes.opened(reader.inode)
        handle = self._number(reader.inode)
        self._files[handle] = reader
        return handle

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Inside this a call waits that may bring a handle that writes."""
        self.n_opening += 1
        try:
            yield
        finally:
            self.n_opening -= 1

    def new_directory(self, inode: Inode) -> int:
        """A handle on a directory; pair it with `release_directory`."""
        handle = self._number(inode)
        self._directories[handle] = self._lister.open(inode.key)
        return handle

    def _number(self, inode: Inode) -> int:
        first = inode.serial << _SERIAL_AT | self._own
        handle = first | next(self._counts) % _COUNTS
        while handle in self._files or handle in self._directories:
            handle = first | next(self._counts) % _COUNTS
        return handle

    def file(self, handle: int) -> OpenFile:
        """What a handle reads.

        Raises:
            BadHandle: it is not open.
            StaleInode: it shows what went with a predecessor.
        """
        reader = self._files.get(handle)
        return self._adopted_file(handle) if reader is None else reader

    def peek(self, handle: int) -> OpenFile | None:
        """As `file`, of one that this daemon made; else None."""
        return self._files.get(handle)

    def is_lost(self, handle: int) -> bool:
        """Whether what was written by a handle went with a predecessor."""
        inode = self._predecessors(handle)
        return inode is not None and inode.is_lost

    def _adopted_file(self, handle: int) -> OpenFile:
        inode = self._predecessors(handle)
        if inode is None or inode.is_directory:
            raise BadHandle(f"file handle {handle:#x} is not open")
        if inode.is_lost:
            raise StaleInode(f"what was written to {inode.key!r} is lost: its daemon died")
        self._inodes.opened(inode)
        reader = self._files[handle] = FileReader(self._blocks, inode)
        return reader

    def directory(self, handle: int) -> OpenDirectory:
        """The directory of a handle.

        Raises:
            BadHandle: it is not open.
        """
        directory = self._directories.get(handle)
        return self._adopted_directory(handle) if directory is None else directory

    def _adopted_directory(self, handle: int) -> OpenDirectory:
        inode = self._predecessors(handle)
        if inode is None or not inode.is_directory:
            raise BadHandle(f"directory handle {handle:#x} is not open")
        directory = self._directories[handle] = self._lister.open(inode.key)
        return directory

    def _predecessors(self, handle: int) -> Inode | None:
        """The inode of a handle that this daemon did not give out."""
        return self._inodes.inherited(handle >> _SERIAL_AT)

    def inode(self, handle: int) -> Inode | None:
        """What a handle is on; None when it is not known here."""
        if (reader := self._files.get(handle)) is not None:
            return reader.inode
        directory = self._directories.get(handle)
        return self._predecessors(handle) if directory is None else self._inodes.find(directory.key)

    def release(self, handle: int) -> OpenFile | None:
        """A file handle is gone, with what was held only for it; returns what it was, None for a predecessor's.

        Raises:
            BadHandle: it is not open, and there was no predecessor.
        """
        reader = self._files.pop(handle, None)
        if reader is not None:
            reader.close()
            self._inodes.closed(reader.inode)
        elif not self._inodes.ledger.takeovers:
            raise BadHandle(f"file handle {handle:#x} is not open")
        return reader

    def moved(self, old_key: str, new_key: str) -> None:
        """A directory, and those in it, have other keys: who reads one reads on, in the same order."""
        for handle, directory in self._directories.items():
            if directory.key.startswith(old_key):
                self._lister.close(directory)
                self._directories[handle] = self._lister.open(new_key + directory.key.removeprefix(old_key))

    def release_directory(self, handle: int) -> None:
        """A directory handle is gone.

        Raises:
            BadHandle: as `release`.
        """
        directory = self._directories.pop(handle, None)
        if directory is not None:
            self._lister.close(directory)
        elif not self._inodes.ledger.takeovers:
            raise BadHandle(f"directory handle {handle:#x} is not open")

    @property
    def n_files(self) -> int:
        """Files open."""
        return len(self._files)

    def check_invariants(self) -> None:
        """Raises ValueError when handles and pins differ, or a number is not of its inode."""
        if self._inodes.statistics().handles != len(self._files) + self.pins:
            raise ValueError("an inode is pinned by a handle that is not open")
        for handle, reader in self._files.items():
            if handle >> _SERIAL_AT != reader.inode.serial:
                raise ValueError(f"handle {handle:#x} reads {reader.inode.key!r}")
