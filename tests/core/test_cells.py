"""How content is cut into blocks, and what blocks are called."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3mount.core.attrs import ObjectId
from s3mount.core.cells import BLOCK_SIZE, CELL_SIZE, CachedContent, cached_content
from s3mount.core.ranges import ByteRange
from s3mount.units import KIB, MIB

OBJECT = ObjectId("train/0.tar", '"1"')
SIZES = st.one_of(
    st.integers(1, 3 * BLOCK_SIZE),
    st.integers(1, 60).map(lambda n: n * CELL_SIZE),
    st.integers(1, 3).map(lambda n: n * BLOCK_SIZE),
)


def content_of(size: int, block_size: int = BLOCK_SIZE) -> CachedContent:
    return cached_content("https://s3/bucket", OBJECT, size, block_size)


@st.composite
def spans(draw: st.DrawFn) -> tuple[int, ByteRange]:
    size = draw(SIZES)
    bounds = st.one_of(st.integers(0, size), st.integers(0, size // CELL_SIZE).map(lambda n: n * CELL_SIZE))
    start, stop = sorted((draw(bounds), draw(bounds)))
    return size, ByteRange(start, stop)


@given(spans(), st.sampled_from([CELL_SIZE, 256 * KIB, BLOCK_SIZE]))
def test_what_arrives_is_kept_but_for_ragged_ends(size_and_span: tuple[int, ByteRange], block_size: int) -> None:
    """Blocks carved from a range lie in it, in order, without a hole, and leave less than a cell at either end."""
    size, span = size_and_span
    blocks = [block.span for block in content_of(size, block_size).carve(span)]
    assert all(left.stop == right.start for left, right in pairwise(blocks))
    if blocks:
        assert span.start <= blocks[0].start < span.start + CELL_SIZE
        assert span.stop - CELL_SIZE < blocks[-1].stop <= span.stop
    else:
        assert span.length < 2 * CELL_SIZE


@given(spans())
def test_what_was_carved_is_found(size_and_span: tuple[int, ByteRange]) -> None:
    """A block that was carved is among the holders of each of its bytes, under the same name."""
    size, span = size_and_span
    content = content_of(size)
    for block in content.carve(span):
        for offset in (block.span.start, block.span.stop - 1):
            assert block in list(content.holders(offset))


def test_a_part_is_one_block() -> None:
    """A whole part is one block, a first window eight, and an object that fits one is one."""
    content = content_of(20 * MIB)
    assert [block.span.length for block in content.carve(ByteRange(8 * MIB, 20 * MIB))] == [8 * MIB, 4 * MIB]
    assert [block.span.length for block in content.carve(ByteRange(0, 2 * MIB))] == [MIB, MIB]
    assert [block.span.length for block in content.carve(ByteRange(64 * KIB, 256 * KIB))] == [64 * KIB] * 3
    assert [block.span for block in content_of(115_000).carve(ByteRange(0, 115_000))] == [ByteRange(0, 115_000)]
    assert len(list(content_of(115_000).holders(114_999))) == 2
    assert len(list(content_of(60_000).holders(0))) == 1


def test_names_tell_everything_apart() -> None:
    """Another bucket, key, ETag, size, block size or place in the object is another name."""
    contents = [
        cached_content("https://s3/bucket", ObjectId("k", "e"), 2 * BLOCK_SIZE),
        cached_content("https://s3/bucke", ObjectId("tk", "e"), 2 * BLOCK_SIZE),
        cached_content("https://s3/bucket", ObjectId("ke", "f"), 2 * BLOCK_SIZE),
        cached_content("https://s3/bucket", ObjectId("k", "f"), 2 * BLOCK_SIZE),
        cached_content("https://s3/bucket", ObjectId("k", "e"), 2 * BLOCK_SIZE - 1),
        cached_content("https://s3/bucket", ObjectId("k\udcff", "e"), 2 * BLOCK_SIZE),
        cached_content("https://s3/bucket", ObjectId("k", "e"), 2 * BLOCK_SIZE, MIB),
    ]
    names = {block.name for content in contents for at in (0, BLOCK_SIZE) for block in content.holders(at)}
    # The last content shares all its blocks with the first: they are the same bytes in blocks of the same sizes.
    assert len(names) == 6 * 2 * 3
    assert contents[0].name == contents[6].name


def test_a_block_has_the_same_name_for_ever() -> None:
    """The name of a block does not change between versions of this program: a new one would find nothing."""
    assert content_of(BLOCK_SIZE).block(BLOCK_SIZE, 0).name.hex() == "7358b5d459e910c61d7b1ca84d02cfdf7bc749fe"


def test_without_an_etag_there_is_no_name() -> None:
    """A version that nothing tells apart, or nothing at all, cannot be named."""
    for object_id, size in ((ObjectId("k", ""), 1), (OBJECT, 0)):
        with pytest.raises(ValueError, match="cannot be cached"):
            cached_content("o", object_id, size)
