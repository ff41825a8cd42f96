"""What a full cache keeps: shuffled epochs, a new data set, a restart in the middle."""

import math
import random

import pytest

from s3mount.core.epochs import BloomFilter, CachePolicy, EvictionPolicy
from s3mount.core.lru import PAGE, BlockIndex, KnownBlock

N = 2000


def hashed(data_set: str, n: int = N) -> list[bytes]:
    draw = random.Random(data_set)
    return [draw.randbytes(20) for _ in range(n)]


class Cache:
    """A cache of blocks of one page, as cache.space decides."""

    def __init__(self, policy: CachePolicy, room: int) -> None:
        self.kind = policy
        self.policy = EvictionPolicy()
        self.index = BlockIndex(0)
        self.room = room
        self.now = 0.0

    def restart(self) -> None:
        """What was used last is in the files' mtimes; the policy begins anew."""
        self.policy = EvictionPolicy()

    def read(self, name: bytes) -> bool:
        self.now += 1
        if name in self.index:
            if self.index.use(name, self.now):
                self.policy.note_hit()
            return True
        horizon = self.policy.horizon(name, self.kind, self.now)
        if len(self.index) < self.room or self.index.take(PAGE, horizon):
            self.index.add(KnownBlock(name, PAGE, self.now))
        return False

    def epoch(self, data_set: list[bytes], seed: int) -> int:
        """Misses of one pass in a random order."""
        order = list(data_set)
        random.Random(seed).shuffle(order)
        misses = sum(not self.read(name) for name in order)
        self.policy.check_invariants()
        return misses


def test_shuffled_epochs_over_twice_what_fits() -> None:
    """Of shuffled epochs over a data set of which half fits, `auto` misses at most 0.52 in each after the first."""
    cache = Cache(CachePolicy.AUTO, N // 2)
    assert cache.epoch(hashed("a"), 0) == N
    assert [misses for seed in range(1, 12) if (misses := cache.epoch(hashed("a"), seed)) > 0.52 * N] == []


@pytest.mark.parametrize("fraction", [0.1, 0.25, 0.75, 0.9])
def test_any_fraction(fraction: float) -> None:
    """Whatever fraction fits, the share of hits comes within 0.02 of it."""
    cache = Cache(CachePolicy.AUTO, int(fraction * N))
    cache.epoch(hashed("a"), 0)
    assert all(cache.epoch(hashed("a"), seed) <= (1 - fraction + 0.02) * N for seed in range(1, 6))


def test_lru_is_what_it_is_known_for() -> None:
    """`lru` hits f + (1-f) ln(1-f) of shuffled epochs, which is why it is not the default."""
    cache = Cache(CachePolicy.LRU, N // 2)
    cache.epoch(hashed("a"), 0)
    hits = [N - cache.epoch(hashed("a"), seed) for seed in range(1, 6)]
    assert sum(hits) / 5 == pytest.approx((0.5 + 0.5 * math.log(0.5)) * N, rel=0.15)


def test_pin_keeps_what_came_first() -> None:
    """`pin` never replaces a block by another."""
    cache = Cache(CachePolicy.PIN, N // 2)
    cache.epoch(hashed("a"), 0)
    kept = [name for name in hashed("a") if name in cache.index]
    cache.epoch(hashed("b"), 0)
    assert [name for name in hashed("a") if name in cache.index] == kept


@pytest.mark.parametrize("epochs", [1, 2, 3, 6])
def test_a_new_data_set_replaces_the_old_one(epochs: int) -> None:
    """A data set that is new has replaced the old one after as many accesses as blocks fit, and 1,024."""
    cache = Cache(CachePolicy.AUTO, N // 2)
    for seed in range(epochs):
        cache.epoch(hashed("a"), seed)
    for name in hashed("b")[: N // 2 + 1024]:
        cache.read(name)
    # A Bloom filter takes a few new ones for known.
    assert sum(name in cache.index for name in hashed("a")) <= 0.02 * N


@pytest.mark.parametrize("epochs", [1, 4])
def test_a_data_set_that_comes_back(epochs: int) -> None:
    """A data set that was replaced, for one epoch or several, and comes back is cached again in its second one."""
    cache = Cache(CachePolicy.AUTO, N // 2)
    for seed in range(2):
        cache.epoch(hashed("a"), seed)
    for seed in range(epochs):
        cache.epoch(hashed("b"), seed)
    cache.epoch(hashed("a"), 2)
    assert cache.epoch(hashed("a"), 3) <= 0.55 * N


def test_a_restart_does_not_evict_what_the_epochs_use() -> None:
    """After a restart in the middle of training the misses stay at the fraction that does not fit."""
    cache = Cache(CachePolicy.AUTO, N // 2)
    for seed in range(3):
        cache.epoch(hashed("a"), seed)
    cache.restart()
    assert [misses for seed in range(3, 7) if (misses := cache.epoch(hashed("a"), seed)) > 0.52 * N] == []


def test_another_job_after_a_restart() -> None:
    """A job that reads another data set after a restart is cached like the first."""
    cache = Cache(CachePolicy.AUTO, N // 2)
    for seed in range(3):
        cache.epoch(hashed("a"), seed)
    cache.restart()
    for seed in range(3):
        misses = cache.epoch(hashed("b"), seed)
    assert misses <= 0.52 * N


def test_what_no_epoch_uses_any_more_goes() -> None:
    """What is left of an old data set makes room when another, that does not fit beside it, goes on for long."""
    cache = Cache(CachePolicy.AUTO, N // 2)
    cache.epoch(hashed("a"), 0)
    part = hashed("b")[: N // 4]
    for seed in range(3):
        cache.epoch(part, seed)
    assert cache.epoch(part, 3) == 0
    whole = hashed("b")
    for seed in range(12):
        misses = cache.epoch(whole, seed)
    assert misses <= 0.53 * N


def test_a_bloom_filter_forgets_nothing() -> None:
    """Every name that was added is found, and of others at most one in a hundred."""
    bloom = BloomFilter()
    for name in hashed("in", 20_000):
        bloom.add(name)
    assert all(name in bloom for name in hashed("in", 20_000))
    assert sum(name in bloom for name in hashed("out", 20_000)) <= 200
    assert 19_990 <= len(bloom) <= 20_000
