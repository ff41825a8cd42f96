"""Verified reading of blocks, in a thread or, when the kernel has the pages, on the loop.

A read goes from block to block: open already, or the largest that is on disk.  It reads whole
granules, verifies each against the header, and slices.  What is wrong in any way is told, never given.

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
        content: the bytes, or None for a miss.
        used: blocks that were read from.
        absent: blocks that were not on disk.
        wrong: blocks that were not what they should be, and are to be removed.
    """

    content: memoryview | None
    used: list[OpenBlock]
    absent: list[bytes]
    wrong: list[bytes]


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
                if span.stop > block.span.stop:
                    return None
                return self._read_cached(opened, span)
            finally:
                self._opened.unpin(opened)
        return None

    def _read_cached(self, opened: OpenBlock, span: ByteRange) -> Outcome | None:
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
        """All bytes of a range, or a miss.

        Raises:
            OSError: the disk failed.
        """
        parts: list[memoryview] = []
        used: list[OpenBlock] = []
        absent: list[bytes] = []
        at = span.start
        while at < span.stop:
            opened, wrong = self._holder(content, at, absent)
            if opened is None:
                return Outcome(None, used, absent, wrong)
            try:
                piece = opened.header.span.intersection(ByteRange(at, span.stop))
                granules = opened.header.granules(piece)
                read = os.pread(opened.fd, granules.length, HEADER_BYTES + granules.start)
                outcome = _verified(opened, granules, memoryview(read), piece)
            finally:
                self._opened.unpin(opened)
            if outcome.content is None:
                return Outcome(None, used, absent, outcome.wrong)
            parts.append(outcome.content)
            used.append(opened)
            at = piece.stop
        return Outcome(parts[0] if len(parts) == 1 else memoryview(b"".join(parts)), used, absent, [])

    def held(self, content: CachedContent, span: ByteRange) -> list[ByteRange]:
        """What of a range is on disk in blocks with right headers, in order; the content is not read.

        Raises:
            OSError: the disk failed.
        """
        found = []
        at = span.start
        while at < span.stop:
            opened, _ = self._holder(content, at, [])
            if opened is not None:
                piece = opened.header.span.intersection(ByteRange(at, span.stop))
                self._opened.unpin(opened)
                found.append(piece)
                at = piece.stop
            else:
                at = min(content.block(content.sizes[-1], at).span.stop, span.stop)
        return found

    def _holder(self, content: CachedContent, at: int, absent: list[bytes]) -> tuple[OpenBlock | None, list[bytes]]:
        """The block that has a byte, pinned; or the names of wrong ones found."""
        blocks = list(content.holders(at))
        for block in blocks:
            opened = self._opened.pin(block.name)
            if opened is not None:
                return opened, []
        for block in blocks:
            try:
                fd = self._directory.open(block.name)
            except FileNotFoundError:
                absent.append(block.name)
                continue
            opened = self._admit(block, fd)
            return opened, [] if opened else [block.name]
        return None, []

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


def _verified(opened: OpenBlock, granules: ByteRange, read: memoryview, wanted: ByteRange) -> Outcome:
    """The wanted part of whole granules that were read, if they are right."""
    if len(read) != granules.length or not opened.header.is_right(granules.start, read):
        return Outcome(None, [], [], [opened.name])
    start = wanted.start - opened.header.span.start - granules.start
    return Outcome(read[start : start + wanted.length], [opened], [], [])
