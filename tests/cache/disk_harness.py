"""Disk caches on temporary directories, with content that tells every object apart."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from s3mount.cache.disk import DiskCache, DiskCacheConfig
from s3mount.cache.space import Limits
from s3mount.cache.volume import Volume, VolumeStatistics
from s3mount.core.attrs import ObjectId
from s3mount.core.cells import CachedContent
from s3mount.core.ranges import ByteRange
from tests.support.content import make_content

ORIGIN = "https://s3.example/bucket"


class Source:
    """Objects as S3 would have them; the content of number n is always the same."""

    def __init__(self, size: int) -> None:
        self.size = size

    def id(self, number: int) -> ObjectId:
        return ObjectId(f"train/{number}", f'"{number}"')

    def bytes(self, number: int) -> bytes:
        return make_content(f"disk-{number}", self.size)


class FakeClock:
    """Seconds that pass when the test says so, or a step at each look."""

    def __init__(self, now: float, *, step_s: float = 0.0) -> None:
        self.now = now
        self.step_s = step_s

    def __call__(self) -> float:
        self.now += self.step_s
        return self.now


@asynccontextmanager
async def running(*directories: Path, **config: object) -> AsyncIterator[DiskCache]:
    """A cache that has looked at everything on disk."""
    cache = DiskCache(DiskCacheConfig(directories, **config), ORIGIN)  # type: ignore[arg-type]
    async with cache.running():
        await cache.scanned()
        yield cache
        cache.check_invariants()


@asynccontextmanager
async def volume(path: Path, limits: Limits | None = None, **clocks: object) -> AsyncIterator[Volume]:
    """One directory alone, with clocks of the test's own."""
    each = Volume(path, limits or Limits(), **clocks)  # type: ignore[arg-type]
    each.prepare()
    async with each.running():
        await each.scanned()
        yield each
        each.check_invariants()


def whole(content: CachedContent) -> ByteRange:
    return ByteRange(0, content.size)


def content_of(cache: DiskCache, source: Source, number: int) -> CachedContent:
    content = cache.content(source.id(number), source.size)
    assert content is not None
    return content


async def fill(cache: DiskCache, source: Source, numbers: Iterator[int] | range) -> None:
    """Have objects written, one after the other."""
    for number in numbers:
        cache.put(content_of(cache, source, number), 0, source.bytes(number))
        await cache.drained()


def counted(cache: DiskCache) -> VolumeStatistics:
    """Of a cache in one directory."""
    (statistics,) = cache.statistics().values()
    return statistics


def block_files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.glob("v1/??/*"))
