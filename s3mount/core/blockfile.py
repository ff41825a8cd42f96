"""One block on disk: a header of one page, then the content; every byte is verified on every read.

    offset  bytes
         0      8  magic
         8      4  version of the format
        12      4  bytes of content that one checksum covers (GRANULE)
        16     20  the block's name
        36      8  where in the object the content begins
        44      8  length of the content
        52   8 x n the CRC-64/NVME of each granule of content
      4088      8  the CRC-64/NVME of the 4,088 bytes before it

All numbers are little-endian.  The header is a page, and every block begins at a multiple of the
granule in its object, so a read of one page reads and verifies 32 KiB.

The name is in the header, so a block that lies where another belongs is wrong, too.  Nothing here
raises on wrong bytes: they are an answer, not an error.
"""

import operator
import struct
from typing import NamedTuple

from awscrt import checksums

from s3mount.core.cells import Block
from s3mount.core.ranges import ByteRange, aligned
from s3mount.units import KIB

VERSION = 1
HEADER_BYTES = 4 * KIB
#: A checksum of 32 KiB takes 3 us; smaller granules need a larger header, larger ones read more.
GRANULE = 32 * KIB
_MAGIC = b"s3mount\n"
_FIELDS = struct.Struct("<8sII20sQQ")
_SUM = struct.Struct("<Q")
#: 502 sums fit one page.
MAX_CONTENT = (HEADER_BYTES - _FIELDS.size - _SUM.size) // _SUM.size * GRANULE


class BlockHeader(NamedTuple):
    """A header that was verified.

    Attributes:
        span: of the object, bytes.
        sums: of the granules, as they are in the file.
    """

    span: ByteRange
    sums: bytes

    def granules(self, wanted: ByteRange) -> ByteRange:
        """What has to be read for a range of the object: positions in the content, whole granules."""
        return granules_of(self.span, wanted)

    def is_right(self, at: int, content: memoryview) -> bool:
        """Whether whole granules that begin at a position in the content are what was written."""
        first, stop = at // GRANULE, -(-(at + len(content)) // GRANULE)
        expected = struct.unpack_from(f"<{stop - first}Q", self.sums, first * _SUM.size)
        found = (checksums.crc64nvme(content[offset : offset + GRANULE]) for offset in range(0, len(content), GRANULE))
        return all(map(operator.eq, found, expected))


def granules_of(span: ByteRange, wanted: ByteRange) -> ByteRange:
    """As `BlockHeader.granules`, of a block whose header is not read yet."""
    return aligned(ByteRange(wanted.start - span.start, wanted.stop - span.start), GRANULE, span.length)


def encode_header(block: Block, content: memoryview) -> bytes:
    """The header of a block.

    Raises:
        ValueError: the content does not have the block's length, or is larger than a block can be.
    """
    if len(content) != block.span.length or not 0 < len(content) <= MAX_CONTENT:
        raise ValueError(f"{len(content)} bytes are not the content of {block}")
    fields = _FIELDS.pack(_MAGIC, VERSION, GRANULE, block.name, block.span.start, block.span.length)
    sums = [checksums.crc64nvme(content[at : at + GRANULE]) for at in range(0, len(content), GRANULE)]
    page = (fields + b"".join(map(_SUM.pack, sums))).ljust(HEADER_BYTES - _SUM.size, b"\0")
    return page + _SUM.pack(checksums.crc64nvme(page))


def decode_header(block: Block, page: bytes) -> BlockHeader | None:
    """The header of a block, from the first page of its file; None when it is wrong in any way."""
    if len(page) != HEADER_BYTES or checksums.crc64nvme(page[: -_SUM.size]) != _SUM.unpack(page[-_SUM.size :])[0]:
        return None
    expected = (_MAGIC, VERSION, GRANULE, block.name, block.span.start, block.span.length)
    if _FIELDS.unpack_from(page) != expected:
        return None
    n_sums = -(-block.span.length // GRANULE)
    return BlockHeader(block.span, page[_FIELDS.size : _FIELDS.size + n_sums * _SUM.size])


def written_block(name: bytes, page: bytes) -> Block | None:
    """What a header says it belongs to, when it is a right one with that name; to verify a file found on disk."""
    if len(page) != HEADER_BYTES:
        return None
    *_, start, length = _FIELDS.unpack_from(page)
    return Block(name, ByteRange(start, start + length)) if 0 < length <= MAX_CONTENT else None
