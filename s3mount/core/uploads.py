"""How an object is cut into the parts of a multipart upload.

S3 (User Guide, "Amazon S3 multipart upload limits"): at most 10,000 parts, each of 5 MiB to 5 GiB, only the last one
may be smaller.  Three cases:

    the final size is known      parts of one size, the smallest that fits (`uniform_part_size`)
    it is not known              a part grows with what was written before it (`next_part_size`)
    the object is there already  what did not change is copied by S3 itself, the rest is sent (`plan_parts`)

A part must be in memory to be sent, so parts are as small as the limits allow.

INVARIANT of a plan: the parts follow each other without a gap from 0 to the size, and keep to S3's limits; a copied
part holds no changed byte.  A part that is sent may hold unchanged bytes, where a copied piece would be too small.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from s3mount.core.ranges import ByteRange, gaps
from s3mount.units import GIB, MIB, TIB

MAX_PARTS = 10_000
MIN_PART = 5 * MIB
MAX_PART = 5 * GIB
MAX_OBJECT = 5 * TIB
#: Above it a copy is made in parts beside each other: one CopyObject moves about 100 MB/s.
PARALLEL_COPY = 128 * MIB
#: One copied part: long beside a round trip, and a GiB is 16 of them at once.
_COPY_PART = 64 * MIB
#: A part is this fraction of what was written before it.  From 5 MiB on that gives 9,867 parts for 5 TiB; a smaller
#: fraction would give more than 10,000, a larger one larger parts (100 GiB: 80 MiB).
_GROWTH = 1280


class PlannedPart(NamedTuple):
    """Bytes of the new object, and whether S3 takes them from the old one; else they are sent."""

    span: ByteRange
    is_copy: bool


def uniform_part_size(size: int, part_size: int) -> int:
    """The size of all parts but the last, of an object of that many bytes.

    Args:
        part_size: what it shall be if the limits allow; at least `MIN_PART`.

    Raises:
        ValueError: no object can be so large.
    """
    if size > MAX_OBJECT:
        raise ValueError(f"an object of {size} bytes is larger than S3 allows")
    return max(part_size, _whole_mib(-(-size // MAX_PARTS)))


def next_part_size(written: int, part_size: int) -> int:
    """The size of the part that begins there, of an object that may become as large as S3 allows.

    Args:
        written: bytes in the parts before it.
        part_size: what it is at first; at least `MIN_PART`.
    """
    return max(part_size, _whole_mib(-(-written // _GROWTH)))


def plan_parts(size: int, old_size: int, changed: Iterable[ByteRange], part_size: int) -> list[PlannedPart]:
    """How a new version is made of the old one and of what changed.

    Args:
        size: of the new version; it may be smaller than the old one.
        changed: in order, not overlapping; bytes beyond `old_size` are new whether named or not.
        part_size: of parts that are sent, if the limits allow; at least `MIN_PART`.

    Returns:
        Parts in order; none for an empty object.  If no part is copied, the object is as well written anew.

    Raises:
        ValueError: no object can be so large.
    """
    part_size = uniform_part_size(size, part_size)
    whole = ByteRange(0, size)
    fresh = [whole.intersection(each) for each in (*changed, ByteRange(old_size, max(old_size, size)))]
    unchanged = gaps(whole, _merged(each for each in fresh if each.length))
    smallest = MIN_PART
    while True:
        regions = _regions(whole, [each for each in unchanged if each.length >= smallest])
        plan = [part for region in regions for part in _cut(region, part_size)]
        if len(plan) <= MAX_PARTS:
            return plan
        smallest *= 2


def _merged(spans: Iterable[ByteRange]) -> list[ByteRange]:
    merged: list[ByteRange] = []
    for span in sorted(spans):
        if merged and span.start <= merged[-1].stop:
            merged[-1] = ByteRange(merged[-1].start, max(merged[-1].stop, span.stop))
        else:
            merged.append(span)
    return merged


def _regions(whole: ByteRange, copied: list[ByteRange]) -> Iterator[PlannedPart]:
    """What is copied and what is sent in turn; what is sent before a copy is long enough for a part."""
    at = whole.start
    for span in copied:
        start = span.start
        if at < start < at + MIN_PART:
            start = at + MIN_PART
            if span.stop - start < MIN_PART:
                continue  # too small now: sent with what is before it
        if at < start:
            yield PlannedPart(ByteRange(at, start), is_copy=False)
        yield PlannedPart(ByteRange(start, span.stop), is_copy=True)
        at = span.stop
    if at < whole.stop:
        yield PlannedPart(ByteRange(at, whole.stop), is_copy=False)


def _cut(region: PlannedPart, part_size: int) -> Iterator[PlannedPart]:
    """Parts of about the same size, none smaller than S3 allows unless the region is."""
    (start, stop), length = region.span, region.span.length
    wanted = max(part_size, _COPY_PART) if region.is_copy else part_size
    count = max(1, min(-(-length // wanted), length // MIN_PART))
    bounds = [start + length * number // count for number in range(count)] + [stop]
    for number in range(count):
        yield PlannedPart(ByteRange(bounds[number], bounds[number + 1]), region.is_copy)


def _whole_mib(n_bytes: int) -> int:
    return -(-n_bytes // MIB) * MIB
