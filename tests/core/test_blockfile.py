"""Headers of blocks: what was written is right, everything else is wrong."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3mount.core.attrs import ObjectId
from s3mount.core.blockfile import (
    GRANULE,
    HEADER_BYTES,
    MAX_CONTENT,
    BlockHeader,
    decode_header,
    encode_header,
    written_block,
)
from s3mount.core.cells import BLOCK_SIZE, Block, cached_content
from s3mount.core.ranges import ByteRange
from tests.support.content import make_content

SIZE = 3 * GRANULE + 1000
CONTENT = make_content("block", SIZE)
BLOCK = next(cached_content("o", ObjectId("k", "e"), SIZE).holders(0))
PAGE = encode_header(BLOCK, memoryview(CONTENT))


def right_header() -> BlockHeader:
    header = decode_header(BLOCK, PAGE)
    assert header is not None
    return header


def test_a_block_is_right() -> None:
    """The header that was written is read, and every granule of the content is right."""
    header = right_header()
    assert len(PAGE) == HEADER_BYTES
    assert header.span == ByteRange(0, SIZE)
    for at in range(0, SIZE, GRANULE):
        assert header.is_right(at, memoryview(CONTENT)[at : at + GRANULE])
    assert header.is_right(0, memoryview(CONTENT))
    assert written_block(BLOCK.name, PAGE) == BLOCK


@given(st.integers(0, HEADER_BYTES - 1), st.integers(1, 255))
def test_every_byte_of_the_header_counts(at: int, change: int) -> None:
    """A header with any one byte changed is wrong."""
    wrong = bytearray(PAGE)
    wrong[at] ^= change
    assert decode_header(BLOCK, bytes(wrong)) is None


@given(st.integers(0, SIZE - 1), st.integers(1, 255))
def test_every_byte_of_the_content_counts(at: int, change: int) -> None:
    """A granule with any one byte changed is wrong, and the others stay right."""
    wrong = bytearray(CONTENT)
    wrong[at] ^= change
    for start in range(0, SIZE, GRANULE):
        is_changed = start <= at < start + GRANULE
        assert right_header().is_right(start, memoryview(wrong)[start : start + GRANULE]) != is_changed


def test_a_granule_in_the_place_of_another_is_wrong() -> None:
    """Right bytes of another place are wrong."""
    assert not right_header().is_right(GRANULE, memoryview(CONTENT)[:GRANULE])


def test_another_block_is_wrong() -> None:
    """A right header is wrong for another name, another place or another length."""
    start, stop = BLOCK.span
    others = [
        Block(bytes(20), BLOCK.span),
        Block(BLOCK.name, ByteRange(start + 1, stop + 1)),
        Block(BLOCK.name, ByteRange(start, stop - 1)),
    ]
    assert [decode_header(other, PAGE) for other in others] == [None] * 3


@given(st.binary(max_size=2 * HEADER_BYTES))
def test_garbage_is_wrong(page: bytes) -> None:
    """Whatever is where a header belongs, the answer is that it is wrong."""
    assert decode_header(BLOCK, page) is None
    assert decode_header(BLOCK, bytes(HEADER_BYTES)) is None
    assert written_block(BLOCK.name, bytes(HEADER_BYTES)) is None
    written_block(BLOCK.name, os.urandom(HEADER_BYTES))


def test_a_small_read_is_one_granule() -> None:
    """A page anywhere in a block is in one granule; the last granule ends with the block."""
    header = right_header()
    assert header.granules(ByteRange(GRANULE + 4096, GRANULE + 8192)) == ByteRange(GRANULE, 2 * GRANULE)
    assert header.granules(ByteRange(SIZE - 1, SIZE)) == ByteRange(3 * GRANULE, SIZE)
    at_two = BlockHeader(ByteRange(BLOCK_SIZE, 2 * BLOCK_SIZE), b"")
    assert at_two.granules(ByteRange(BLOCK_SIZE, BLOCK_SIZE + 1)) == ByteRange(0, GRANULE)


def test_the_largest_block_fits_one_header() -> None:
    """The sums of the largest block fit the page, and content of another length is refused."""
    assert BLOCK_SIZE <= MAX_CONTENT
    content = bytes(MAX_CONTENT)
    block = Block(bytes(20), ByteRange(0, MAX_CONTENT))
    header = decode_header(block, encode_header(block, memoryview(content)))
    assert header is not None
    assert header.is_right(0, memoryview(content))
    with pytest.raises(ValueError, match="not the content of"):
        encode_header(block, memoryview(content)[1:])
