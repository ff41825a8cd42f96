"""Which blocks an object's content is cut into on disk, and what each is called.

A block is a range of one object version that is written whole and is a file of its own.  There are
three sizes, each a multiple of the next: whole parts as a sequential reader fetches them, what a
window that is still small fetches, and what a random read fetches.  Content that arrives is
carved into the largest blocks that lie wholly inside it; the end of the object ends a block.  So
random access keeps exactly the cells it fetched, and an object that fits one block is one file.

A byte can lie in blocks of several sizes.  They hold the same content, the largest is asked
first, and those that nobody asks any more age out.

Names are hashes of everything that tells content apart, so a name is never used for two contents:
no entry is ever invalidated, and any number of mounts share a directory without telling each other.
"""

from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

from s3mount.core.attrs import ObjectId
from s3mount.core.epochs import CachePolicy
from s3mount.core.ranges import ByteRange
from s3mount.units import KIB, MIB

#: A part (config.DEFAULT_PART_SIZE): one file for each GET of a sequential reader.
BLOCK_SIZE = 8 * MIB
#: The planner's HEAD and the grain of its growing windows (core.windows).
_MIDDLE_SIZE = MIB
#: The least that the planner fetches for a random read (core.distance.SMALLEST_UNIT).
CELL_SIZE = 64 * KIB
#: 160 bits: a million million blocks do not collide, and the name is short.
NAME_BYTES = 20


class Block(NamedTuple):
    """One block: its name, and which bytes of the object it has."""

    name: bytes
    span: ByteRange


class CachedContent(NamedTuple):
    """One object version as the disk cache knows it; make it by `cached_content`.

    Attributes:
        name: a hash of origin, key, ETag and size.
        size: of the object, bytes.
        sizes: of its blocks, the largest first, each a multiple of the next.
        policy: what its blocks may replace.
    """

    name: bytes
    size: int
    sizes: tuple[int, ...]
    policy: CachePolicy = CachePolicy.AUTO

    def block(self, block_size: int, offset: int) -> Block:
        """The block of a size that has a byte."""
        number = offset // block_size
        start = number * block_size
        text = b"%b:%d:%d" % (self.name, block_size, number)
        return Block(
            blake2b(text, digest_size=NAME_BYTES).digest(), ByteRange(start, min(start + block_size, self.size))
        )

    def holders(self, offset: int) -> Iterator[Block]:
        """The blocks that can hold a byte, the largest first; of equal ones the first only."""
        last: ByteRange | None = None
        for block_size in self.sizes:
            start = offset // block_size * block_size
            span = ByteRange(start, min(start + block_size, self.size))
            if span != last:
                yield self.block(block_size, offset)
            last = span

    def carve(self, span: ByteRange) -> Iterator[Block]:
        """The fewest blocks that lie wholly inside a range, in order."""
        return self._carve(span, self.sizes)

    def _carve(self, span: ByteRange, sizes: tuple[int, ...]) -> Iterator[Block]:
        at = span.start
        while at < span.stop:
            start = at // sizes[0] * sizes[0]
            stop = min(start + sizes[0], self.size)
            if start == at and stop <= span.stop:
                yield self.block(sizes[0], at)
            elif len(sizes) > 1:
                yield from self._carve(ByteRange(at, min(stop, span.stop)), sizes[1:])
            at = max(stop, at + 1)


def cached_content(
    origin: str,
    object_id: ObjectId,
    size: int,
    block_size: int = BLOCK_SIZE,
    policy: CachePolicy = CachePolicy.AUTO,
) -> CachedContent:
    """One object version, anywhere.

    Args:
        origin: endpoint and bucket, as every mount of the same bucket spells them.
        object_id: with an ETag; without one two contents would have one name.
        size: bytes; not empty.
        block_size: of the largest blocks, a power of two of at least 64 KiB.

    Raises:
        ValueError: there is no ETag, or nothing to cache.
    """
    if not object_id.etag or size <= 0:
        raise ValueError(f"{object_id} of {size} bytes cannot be cached")
    facts = [text.encode("utf-8", "surrogateescape") for text in (origin, object_id.key, object_id.etag)]
    told_apart = b"".join(b"%d:%b" % (len(fact), fact) for fact in [*facts, b"%d" % size])
    sizes = [block_size, *(each for each in (_MIDDLE_SIZE, CELL_SIZE) if each < block_size)]
    return CachedContent(blake2b(told_apart, digest_size=NAME_BYTES).digest(), size, tuple(sizes), policy)
