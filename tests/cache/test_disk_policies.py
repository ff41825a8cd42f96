"""What the content of a prefix may replace, and whether it is kept at all."""

from pathlib import Path

import pytest

from s3mount.cache.disk import DiskCache, DiskCacheConfig
from s3mount.core.attrs import ObjectId
from s3mount.core.epochs import CachePolicy
from s3mount.core.lru import allocated
from tests.cache.disk_harness import block_files, counted, running, whole

SIZE = 100_000
POLICIES = (("train/", CachePolicy.LRU), ("train/old/", CachePolicy.PIN), ("logs/", CachePolicy.OFF))


async def kept(cache: DiskCache, key: str) -> bool:
    """Put an object in, and see whether it is there then."""
    content = cache.content(ObjectId(key, "e"), SIZE)
    if content is None:
        return False
    cache.put(content, 0, key.encode().ljust(SIZE))
    await cache.drained()
    view = await cache.get(content, whole(content))
    assert view is None or view == key.encode().ljust(SIZE)
    return view is not None


@pytest.mark.parametrize(
    ("key", "policy"),
    [
        ("train/1", CachePolicy.LRU),
        ("train/old/1", CachePolicy.PIN),
        ("train/older", CachePolicy.LRU),
        ("logs/1", CachePolicy.OFF),
        ("log", CachePolicy.AUTO),
        ("a/train/1", CachePolicy.AUTO),
    ],
)
def test_the_longest_prefix_counts(key: str, policy: CachePolicy) -> None:
    """Whatever the order they are given in, the longest prefix that a key begins with says the policy."""
    for policies in (POLICIES, POLICIES[::-1]):
        assert DiskCacheConfig((Path("c"),), prefix_policies=policies).policy_of(key) is policy


async def test_a_policy_for_a_prefix(work: Path) -> None:
    """The policy of the longest prefix that a key begins with says whether its content is kept and what it replaces."""
    room = 5 * allocated(SIZE + 4096)
    async with running(work / "c", max_bytes=room, prefix_policies=POLICIES) as cache:
        assert not await kept(cache, "logs/0")
        assert [await kept(cache, f"train/old/{number}") for number in range(5)] == [True] * 5
        assert not await kept(cache, "train/old/5")
        assert await kept(cache, "train/0")
        assert (counted(cache).written, counted(cache).refused, counted(cache).evicted) == (6, 1, 1)


async def test_only_what_is_named(work: Path) -> None:
    """With `off` for everything and another policy for a prefix, nothing but that prefix comes to the disk."""
    policies = (("train/", CachePolicy.AUTO),)
    async with running(work / "c", policy=CachePolicy.OFF, prefix_policies=policies) as cache:
        assert [await kept(cache, key) for key in ("a", "train/1", "b")] == [False, True, False]
        assert len(block_files(work / "c")) == 1
