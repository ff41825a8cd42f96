"""Verified reading of blocks, in a thread or, when the kernel has the pages, on the loop.

A read goes from block to block: open already, or the largest that is on disk.  It reads whole
granules, verifies each against the header, and slices.  What is wrong in any way is told, never given.
Where a block is missing it goes on from the other end: what is between the two ends is one GET.

The kernel is told that access is random: it reads from the disk what a granule needs and nothing
ahead, because the planner reads ahead, in large pieces.
"""

import errno
import os
from typing import NamedTuple

from s3mount.cache.descriptors import OpenBlock, OpenBlocks
from s3mount.cache.directory import BlockDirectory
from s3mount.core.blockfile import HEADER_BYTES, decode_header
from s3mount.core.cells import Block, CachedContent
from s3mount.core.ranges import ByteRange
from s3mount.units import KIB

#: Copying and verifying more than that on the loop takes longer than handing it to a thread.
MOST_NOWAIT = 256 * KIB
#: The kernel has the pages in part or not at all, or this file system cannot say (tmpfs before 6.x).
_NOT_NOW = (errno.EAGAIN, errno.EOPNOTSUPP)


class Outcome(NamedTuple):
    """What a read found.

    Attributes:
        before, after: the bytes at both ends of the range, up to the first and from the last block
            that is missing; of a hit `before` is all of it.
        used: blocks that were read from.
        absent: blocks that were not on disk.
        wrong: blocks that were not what they should be, and are to be removed.
        is_hit: nothing is missing.
    """

    before: memoryview
    after: memoryview
    used: list[OpenBlock]
    absent: list[bytes]
    wrong: list[bytes]
    is_hit: bool


NOTHING = memoryview(b"")


class BlockReader:
    """Reads the blocks of one directory.  Every method but `read_nowait` may block."""

    def __init__(self, directory: BlockDirectory, opened: OpenBlocks) -> None:
        self._directory = directory
        self._opened = opened

    def read_nowait(self, content: CachedContent, span: ByteRange) -> Outcome | None:
        """Bytes that an open block has whole, when the kernel has the pages; None when it has not."""
        if span.length > MOST_NOWAIT:
            return None
        for block in content.holders(span.start):
            opened = self._opened.pin(block.name)
            if opened is None:
                continue
            try:
                read = self._read_cached(opened, span) if span.stop <= block.span.stop else None
                return None if read is None else Outcome(read, NOTHING, [opened], [], [], is_hit=True)
            finally:
                self._opened.unpin(opened)
        return None

    def _read_cached(self, opened: OpenBlock, span: ByteRange) -> memoryview | None:
        granules = opened.header.granules(span)
        buffer = bytearray(granules.length)
        try:
            n_bytes = os.preadv(opened.fd, [buffer], HEADER_BYTES + granules.start, os.RWF_NOWAIT)
        except OSError as error:
            if error.errno in _NOT_NOW:
                return None
            raise
        if n_bytes != len(buffer):
            return None  # the rest is not in memory, or the file is short; a thread finds out
        return _verified(opened, granules, memoryview(buffer), span)

    def read(self, content: CachedContent, span: ByteRange) -> Outcome:
        """What a range has at its two ends.

        Raises:
            OSError: the disk failed.
        """
        outcome = Outcome(NOTHING, NOTHING, [], [], [], is_hit=False)
        before: list[memoryview] = []
        after: list[memoryview] = []
        rest = span
        while rest.length and (piece := self._piece(content, rest.start, rest, outcome)) is not None:
            before.append(piece)
            rest = ByteRange(rest.start + len(piece), rest.stop)
        while rest.length and not outcome.wrong:
            piece = self._piece(content, rest.stop - 1, rest, outcome)
            if piece is None:
                break
            after.insert(0, piece)
            rest = ByteRange(rest.start, rest.stop - len(piece))
        return outcome._replace(before=joined(before), after=joined(after), is_hit=rest.length == 0)

    def _piece(self, content: CachedContent, at: int, rest: ByteRange, outcome: Outcome) -> memoryview | None:
        """What the block that has a byte has of the rest of a range; None when there is none, or it is wrong."""
        opened = self._holder(content, at, outcome)
        if opened is None:
            return None
        try:
            piece = opened.header.span.intersection(rest)
            granules = opened.header.granules(piece)
            read = os.pread(opened.fd, granules.length, HEADER_BYTES + granules.start)
            verified = _verified(opened, granules, memoryview(read), piece)
        finally:
            self._opened.unpin(opened)
        if verified is None:
            outcome.wrong.append(opened.name)
        else:
            outcome.used.append(opened)
        return verified

    def _holder(self, content: CachedContent, at: int, outcome: Outcome) -> OpenBlock | None:
        """The block that has a byte, pinned; what was found absent or wrong is noted."""
        blocks = [block for block in content.holders(at) if block.name not in outcome.absent]
        for block in blocks:
            opened = self._opened.pin(block.name)
            if opened is not None:
                return opened
        for block in blocks:
            try:
                fd = self._directory.open(block.name)
            except FileNotFoundError:
                outcome.absent.append(block.name)
                continue
            opened = self._admit(block, fd)
            if opened is None:
                outcome.wrong.append(block.name)
            return opened
        return None

    def _admit(self, block: Block, fd: int) -> OpenBlock | None:
        """An open file that has the block's header; it is closed when it has not."""
        header = None
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
            header = decode_header(block, os.pread(fd, HEADER_BYTES, 0))
        finally:
            if header is None:
                os.close(fd)
        if header is None:
            return None
        opened = OpenBlock(block.name, fd, header)
        self._opened.add(opened)
        return opened


def _verified(opened: OpenBlock, granules: ByteRange, read: memoryview, wanted: ByteRange) -> memoryview | None:
    """The wanted part of whole granules that were read, if they are right."""
    if len(read) != granules.length or not opened.header.is_right(granules.start, read):
        return None
    start = wanted.start - opened.header.span.start - granules.start
    return read[start : start + wanted.length]


def joined(parts: list[memoryview]) -> memoryview:
    """One after the other; without a copy if it is only one."""
    return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))
