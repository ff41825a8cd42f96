"""Versions that this mount takes away while somebody reads them: what is not much is kept until the last close.

A rename over a file, and a DELETE that waits for readers no longer (fs.removals), leave nothing in S3 to read from.  So
up to `MAX_HELD` bytes of such a file go to the spool before, and who has it open reads them there.  Of a larger one
readers have what is in memory, in the kernel and in the disk cache.  Files that are written look after themselves
(fs.draft).

INVARIANT: what is held is what its inode shows, or a draft has its place.
"""

import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from s3mount.core.inode import Inode
from s3mount.core.ranges import ByteRange
from s3mount.errors import S3MountError, SpoolFailed, SpoolFull
from s3mount.fs.spooled import MAX_HELD, SpooledContent, SpoolTools

log = logging.getLogger(__name__)

#: Seconds that a change of names waits for what it is about to take away.
_MAX_S = 10.0
#: Seconds between two looks at whether the readers are gone.
_LOOK_S = 1.0


class HeldContent:
    """A whole version in the spool."""

    def __init__(self, content: SpooledContent) -> None:
        self._content = content

    async def read(self, offset: int, length: int) -> bytes:
        """Bytes at an offset; fewer at the end.  Raises SpoolFailed."""
        return await self._content.read(ByteRange(offset, offset + length))

    async def discard(self) -> None:
        """Nobody reads it any more."""
        with contextlib.suppress(SpoolFull, SpoolFailed):
            await self._content.discard()


class Holds:
    """What is held of one mount.

    Args:
        spool: where it goes.
        nursery: the mount's.
    """

    def __init__(self, spool: SpoolTools, nursery: trio.Nursery) -> None:
        self._spool = spool
        self._nursery = nursery
        self._held: dict[Inode, HeldContent] = {}
        self._is_looking = False

    @asynccontextmanager
    async def kept(self, inode: Inode | None) -> AsyncIterator[None]:
        """The block takes away the version that an inode stands for; if it fails, that is read from S3 as before."""
        is_ours = inode is not None and await self.keep(inode)
        is_gone = False
        try:
            yield
            is_gone = True
        finally:
            if inode is not None and is_ours and not is_gone:
                with trio.CancelScope(shield=True):
                    await self._let_go(inode)

    async def keep(self, inode: Inode) -> bool:
        """Have what an inode stands for, if somebody has it open; whatever hinders that is no error.

        Returns:
            Whether it is here, and was not before.
        """
        found = inode.found
        if not inode.handles or inode.unsaved is not None or found is None or not 0 < found.size <= MAX_HELD:
            return False
        content = SpooledContent(self._spool, found)
        is_here = False
        try:
            with trio.move_on_after(_MAX_S):
                await content.hold()
                is_here = inode.unsaved is None
        except S3MountError as error:
            log.info("who reads %r may not read on: %s", inode.key, error)
        finally:
            held = HeldContent(content)
            if is_here:
                self._held[inode] = inode.unsaved = held
            else:
                with trio.CancelScope(shield=True):
                    await held.discard()
        if self._held and not self._is_looking:
            self._is_looking = True
            self._nursery.start_soon(self._look)
        return is_here

    async def _look(self) -> None:
        """Let go of what nobody reads any more, and at the end of everything."""
        try:
            while self._held:
                await trio.sleep(_LOOK_S)
                for inode in [each for each in self._held if not each.handles]:
                    await self._let_go(inode)
        finally:
            self._is_looking = False
            with trio.CancelScope(shield=True):
                for inode in list(self._held):
                    await self._let_go(inode)

    async def _let_go(self, inode: Inode) -> None:
        held = self._held.pop(inode, None)
        if held is not None:
            if inode.unsaved is held:
                inode.unsaved = None
            await held.discard()

    @property
    def n_held(self) -> int:
        """Versions in the spool."""
        return len(self._held)

    def check_invariants(self) -> None:
        """Raises ValueError when something is held that nobody looks after, or that its inode does not show."""
        if self._held and not self._is_looking:
            raise ValueError("what is held stays for ever")
        for inode in self._held:
            if inode.unsaved is None:
                raise ValueError(f"{inode.key!r} is held, and does not show it")
