"""Programs that read, as the kernel passes their reads on, against the file system in memory.

The shapes were recorded at a mount that took 20 ms for each READ (kernel 6.18): buffered and mapped
sequential reads are READs of 128 KiB, two in flight, now and then swapped; a pread of 1 MiB is one of
these and then pairs, unless read-ahead is raised to 1 MiB: then it is one READ; a fault in the middle
of a mapping reads 64 KiB before it, then 64 or 128 KiB on; a pread of 50 KiB is one READ of its pages.
"""

import random
from collections.abc import Iterable, Iterator

import trio

from s3mount.core.ranges import ByteRange, Coverage
from s3mount.units import KIB
from tests.core.replays import READAHEAD, run, samples
from tests.fs.far_store import FarStore
from tests.fs.harness import Mounted


async def opened(mounted: Mounted, key: str) -> int:
    attrs = await mounted.walk(key)
    return await mounted.fs.open(attrs.ino)


async def read_all(mounted: Mounted, handle: int, reads: Iterable[ByteRange]) -> None:
    for wanted in reads:
        assert len(await mounted.read(handle, wanted.start, wanted.length)) == wanted.length


async def read_beside(mounted: Mounted, handle: int, reads: Iterable[ByteRange], n_tasks: int) -> None:
    """Reads with so many in flight."""
    rest = iter(reads)

    async def reader() -> None:
        await read_all(mounted, handle, rest)

    async with trio.open_nursery() as nursery:
        for _ in range(n_tasks):
            nursery.start_soon(reader)


async def read_through_pages(mounted: Mounted, handle: int, pages: Coverage, reads: Iterable[ByteRange]) -> None:
    """As the kernel does: what it has, or asked for already, it does not ask for again."""
    for wanted in reads:
        missing = pages.missing(wanted)
        pages.add(wanted)
        await read_all(mounted, handle, missing)


def twice(store: FarStore) -> int:
    """Bytes that came more than once."""
    seen: dict[str, Coverage] = {}
    for key, span in store.spans:
        seen.setdefault(key, Coverage()).add(span)
    return store.counts["bytes"] - sum(each.length for each in seen.values())


async def shuffled_shards(mounted: Mounted, keys: list[str], size: int, dice: random.Random) -> None:
    for key in keys:
        handle = await opened(mounted, key)
        await read_through_pages(mounted, handle, Coverage(), samples(size, 100 * KIB, dice))
        mounted.fs.release(handle)


def faults(first: int, stop: int, dice: random.Random) -> Iterator[ByteRange]:
    """The READs of one thread that copies from a mapping."""
    yield ByteRange(max(0, first - READAHEAD // 2), min(first + READAHEAD // 2, stop))
    at = first + READAHEAD // 2
    while at < stop:
        length = dice.choice([READAHEAD // 2, READAHEAD, READAHEAD])
        yield ByteRange(at, min(at + length, stop))
        at += length


async def pread(mounted: Mounted, handle: int, wanted: ByteRange) -> None:
    """A buffered pread while read-ahead is 128 KiB."""
    first, *rest = run(wanted.start, wanted.stop)
    await read_all(mounted, handle, [first])
    for number in range(0, len(rest), 2):
        await read_beside(mounted, handle, rest[number : number + 2], 2)


async def whole_shards(mounted: Mounted, keys: list[str], size: int) -> None:
    for key in keys:
        handle = await opened(mounted, key)
        await read_all(mounted, handle, run(0, size))
        mounted.fs.release(handle)
