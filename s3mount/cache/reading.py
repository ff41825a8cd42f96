"""Verified reading of blocks, in a thread or, when the kernel has the pages, on the loop.

A read goes from block to block: open already, or the largest that is on disk.  It reads whole
granules, verifies each against the header, and slices.  What is wrong in any way is told, never given.
Where a block is missing it goes on from the other end: what is between the two ends is one GET.

Small reads go through the kernel's memory, since a granule has more bytes that are read next.  The kernel is
told that access is random: it reads from the disk what a granule needs and nothing ahead.  Large reads go past it
(O_DIRECT): what they bring is in the pages of the mount afterwards, a copy beside them would cost twice the
memory and, the kernel filling page by page, five times the CPU (decision 0028).  The planner reads ahead, in
large pieces.  The header of a block that is not open yet comes with its first granules, in one read.
"""

import errno
import os
from contextlib import suppress
from typing import NamedTuple

from s3mount.cache.buffers import PageBuffers
from s3mount.cache.descriptors import OpenBlock, OpenBlocks
from s3mount.cache.directory import BlockDirectory
from s3mount.core.blockfile import HEADER_BYTES, decode_header, granules_of
from s3mount.core.cells import Block, CachedContent
from s3mount.core.epochs import RecentHits
from s3mount.core.ranges import ByteRange
from s3mount.units import KIB

#: Copying and verifying more than that on the loop takes longer than handing it to a thread.
MOST_NOWAIT = 256 * KIB
#: Three granules: what jumps ask for stays in the kernel's memory.
LEAST_DIRECT = 96 * KIB
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
    """Reads the blocks of one directory.  Every method but `read_nowait` may block.

    Attributes:
        attempts: of `read_nowait` at blocks that are open, and how many found the pages.
    """

    def __init__(self, directory: BlockDirectory, opened: OpenBlocks) -> None:
        self._directory = directory
        self._opened = opened
        self.attempts = RecentHits()
        self._buffers = PageBuffers()
        self._may_be_direct = True

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
        if opened.fd < 0:
            return None
        granules = opened.header.granules(span)
        buffer = bytearray(granules.length)
        try:
            n_bytes = os.preadv(opened.fd, [buffer], HEADER_BYTES + granules.start, os.RWF_NOWAIT)
        except OSError as error:
            if error.errno not in _NOT_NOW:
                raise
            n_bytes = 0
        self.attempts.note(is_hit=n_bytes == len(buffer))
        if n_bytes != len(buffer):
            return None  # the rest is not in memory, or the file is short; a thread finds out
        return _verified(opened, granules, memoryview(buffer), span)

    def read(self, content: CachedContent, span: ByteRange) -> Outcome:
        """What a range has at its two ends.

        Raises:
            OSError: the disk failed.
        """
        might_be_direct = self._may_be_direct
        try:
            return self._read(content, span)
        except OSError as error:
            if error.errno != errno.EINVAL or not might_be_direct:
                raise
        self._may_be_direct = False  # a file system without O_DIRECT
        return self._read(content, span)

    def _read(self, content: CachedContent, span: ByteRange) -> Outcome:
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
        blocks = [block for block in content.holders(at) if block.name not in outcome.absent]
        opened = next((found for block in blocks if (found := self._opened.pin(block.name))), None)
        read: memoryview | None = None
        if opened is None:
            opened, read = self._open_one(blocks, rest, outcome)
        if opened is None:
            return None
        try:
            piece = opened.header.span.intersection(rest)
            granules = opened.header.granules(piece)
            if read is None:
                read = self._read_granules(opened, granules)
            verified = _verified(opened, granules, read, piece)
        except FileNotFoundError:  # it was open in the other way only
            outcome.absent.append(opened.name)
            return None
        finally:
            self._opened.unpin(opened)
        if verified is None:
            outcome.wrong.append(opened.name)
        else:
            outcome.used.append(opened)
        return verified

    def _read_granules(self, opened: OpenBlock, granules: ByteRange) -> memoryview:
        is_direct = self._is_direct(granules)
        fd = opened.direct_fd if is_direct else opened.fd
        if fd < 0:
            fd = self._opened.keep(opened, self._open_file(opened.name, is_direct=is_direct), is_direct=is_direct)
        return self._pread(fd, HEADER_BYTES + granules.start, granules.length, is_direct=is_direct)

    def _open_one(
        self, blocks: list[Block], rest: ByteRange, outcome: Outcome
    ) -> tuple[OpenBlock | None, memoryview | None]:
        """The first block that is on disk, pinned, and its wanted granules if they begin it.

        What was found absent or wrong is noted.
        """
        for block in blocks:
            granules = granules_of(block.span, block.span.intersection(rest))
            is_direct = self._is_direct(granules)
            try:
                fd = self._open_file(block.name, is_direct=is_direct)
            except FileNotFoundError:
                outcome.absent.append(block.name)
                continue
            header = None
            try:
                begun = 0 if granules.start else granules.length
                read = self._pread(fd, 0, HEADER_BYTES + begun, is_direct=is_direct)
                header = decode_header(block, bytes(read[:HEADER_BYTES]))
            finally:
                if header is None:
                    os.close(fd)
            if header is None:
                outcome.wrong.append(block.name)
                return None, None
            opened = OpenBlock(block.name, -1, header, fd) if is_direct else OpenBlock(block.name, fd, header)
            self._opened.add(opened)
            return opened, read[HEADER_BYTES:] if begun else None
        return None, None

    def _is_direct(self, granules: ByteRange) -> bool:
        return self._may_be_direct and granules.length >= LEAST_DIRECT

    def _open_file(self, name: bytes, *, is_direct: bool) -> int:
        fd = self._directory.open(name, is_direct=is_direct)
        if not is_direct and self._may_be_direct:  # else large reads use it, too
            with suppress(OSError):  # advice
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        return fd

    def _pread(self, fd: int, offset: int, length: int, *, is_direct: bool) -> memoryview:
        """As pread(2), into whole pages if it is direct."""
        if not is_direct:
            return memoryview(os.pread(fd, length, offset))
        buffer = self._buffers.lend(length)
        return buffer[: min(os.preadv(fd, [buffer], offset), length)]


def _verified(opened: OpenBlock, granules: ByteRange, read: memoryview, wanted: ByteRange) -> memoryview | None:
    """The wanted part of whole granules that were read, if they are right."""
    if len(read) != granules.length or not opened.header.is_right(granules.start, read):
        return None
    start = wanted.start - opened.header.span.start - granules.start
    return read[start : start + wanted.length]


def joined(parts: list[memoryview]) -> memoryview:
    """One after the other; without a copy if it is only one."""
    return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))
