"""The index of blocks against a plain list ordered by last use."""

import tracemalloc
from hashlib import blake2b

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from s3mount.core.lru import N_FOLDERS, PAGE, BlockIndex, KnownBlock, allocated

#: Few folders and few names, so that blocks come again.
NAMES = st.tuples(st.integers(0, 2), st.integers(0, 40)).map(lambda pair: bytes([pair[0]]) + bytes([pair[1]]) * 19)
AGES = st.integers(0, 200)


class IndexMachine(RuleBasedStateMachine):
    """Every rule takes a second, so no two uses are at the same time; found blocks can be of any age."""

    @initialize(grain=st.sampled_from([0, 10]))
    def begin(self, grain: int) -> None:
        self.grain = grain
        self.index = BlockIndex(grain)
        self.model: dict[bytes, tuple[float, int]] = {}
        self.now = 1_000.0

    def tick(self) -> float:
        self.now += 1
        return self.now

    @rule(name=NAMES, pages=st.integers(1, 2049))
    def write(self, name: bytes, pages: int) -> None:
        now = self.tick()
        self.index.add(KnownBlock(name, pages * PAGE - 7, now))
        self.model[name] = (now, pages)

    @rule(name=NAMES, pages=st.integers(1, 2049), age=AGES)
    def find(self, name: bytes, pages: int, age: int) -> None:
        """The halves keep what is found apart from what is used."""
        used = self.tick() - age + 0.5
        self.index.add(KnownBlock(name, pages * PAGE, used))
        self.model[name] = (max(used, self.model.get(name, (0.0, 0))[0]), pages)

    @rule(name=NAMES)
    def use(self, name: bytes) -> None:
        now = self.tick()
        is_news = name in self.model and now - self.model[name][0] >= self.grain
        assert self.index.use(name, now) == is_news
        if is_news:
            self.model[name] = (now, self.model[name][1])

    @rule(name=NAMES)
    def discard(self, name: bytes) -> None:
        self.index.discard(name)
        self.model.pop(name, None)

    @rule(folder=st.integers(0, 2), kept=st.sets(NAMES), age=AGES)
    def read_folder(self, folder: int, kept: set[bytes], age: int) -> None:
        began = self.tick() - age + 0.25
        self.index.begin_reading(folder)
        here = {name: known for name, known in self.model.items() if name[0] == folder}
        found = [KnownBlock(name, pages * PAGE, used) for name, (used, pages) in here.items() if name in kept]
        self.index.reconcile(folder, found, began)
        for name, (used, _) in here.items():
            if name not in kept and used < began:
                del self.model[name]

    @rule(pages=st.integers(-5, 9000), age=st.none() | AGES)
    def take(self, pages: int, age: int | None) -> None:
        before = float("inf") if age is None else self.tick() - age + 0.25
        expected, n_pages = [], 0
        for name, (used, size) in sorted(self.model.items(), key=lambda item: (item[1][0], item[1][1], item[0])):
            if n_pages >= pages or used >= before:
                break
            expected.append(KnownBlock(name, size * PAGE, used))
            n_pages += size
        assert self.index.take(pages * PAGE, before) == expected
        for block in expected:
            del self.model[block.name]
        self.index.settle(expected[1:])
        for block in expected[:1]:
            self.index.add(block)
            self.model[block.name] = (block.used_s, block.n_bytes // PAGE)

    @invariant()
    def agrees(self) -> None:
        self.index.check_invariants()
        assert len(self.index) == len(self.model)
        assert self.index.n_bytes == sum(pages for _, pages in self.model.values()) * PAGE
        assert all(name in self.index for name in self.model)


TestIndex = pytest.mark.filterwarnings("error")(IndexMachine.TestCase)
TestIndex.settings = settings(max_examples=60, stateful_step_count=60)


def test_what_leaves_while_a_folder_is_read_is_not_found() -> None:
    """A scan that saw a block before it was removed, or while it is being removed, does not bring it back."""
    index = BlockIndex(0)
    blocks = [KnownBlock(bytes([7, n]) + bytes(18), PAGE, n) for n in range(4)]
    for block in blocks:
        index.add(block)
    early = index.take(PAGE, float("inf"))
    index.begin_reading(7)
    late = index.take(PAGE, float("inf"))
    index.settle(late)
    index.discard(blocks[2].name)
    index.reconcile(7, blocks, 100)
    assert [block.name in index for block in blocks] == [False, False, False, True]
    index.settle(early)
    index.begin_reading(7)
    index.reconcile(7, blocks, 100)
    assert len(index) == 4
    index.check_invariants()


def test_uses_in_the_same_moment() -> None:
    """A block used in the very moment in which another one was written keeps its place in the order."""
    index = BlockIndex(0)
    first, second, third = (KnownBlock(bytes([0, n]) + bytes(18), (3 - n) * PAGE, 1.0) for n in range(3))
    index.add(first)
    index.add(second)
    assert index.take(0, 0) == index.take(PAGE, 0.5) == []
    index.add(third._replace(used_s=0.25))
    assert index.take(PAGE, 0.2) == []
    assert index.use(third.name, 1.0)
    index.check_invariants()
    assert [block.name for block in index.take(6 * PAGE, 2)] == [third.name, second.name, first.name]


def test_blocks_of_the_same_moment() -> None:
    """Blocks written in the same moment go one after the other, each once."""
    index = BlockIndex(0)
    for number in range(100):
        index.add(KnownBlock(bytes([0, number]) + bytes(18), PAGE, 1.0))
    taken = []
    while block := index.take(PAGE, 2):
        index.check_invariants()
        taken += block
    assert [block.name[1] for block in taken] == list(range(100))


def scrambled(n: int) -> BlockIndex:
    """Blocks found in any order, each at another time from 0 to n - 1."""
    index = BlockIndex(0)
    for number in range(n):
        name = blake2b(number.to_bytes(4, "little"), digest_size=20).digest()
        index.add(KnownBlock(name, PAGE, (number * 7919) % n))
    return index


def test_the_order_is_exact_among_many() -> None:
    """Of 8,000 blocks found in any order, the oldest go first and none twice, while some are used."""
    index = scrambled(8_000)
    taken = [block for _ in range(50) for block in index.take(100 * PAGE, float("inf"))]
    assert [block.used_s for block in taken] == list(range(5_000))
    assert len({block.name for block in taken}) == 5_000
    for number in range(8_000):
        index.use(blake2b(number.to_bytes(4, "little"), digest_size=20).digest(), 50_000 + number)
    assert [block.used_s >= 50_000 for block in index.take(20_000 * PAGE, float("inf"))] == [True] * 3_000
    index.check_invariants()


def test_victims_among_very_many_are_old() -> None:
    """Of 100,000 blocks the first 5,000 victims are of the oldest tenth, and all go before one is asked for twice."""
    index = scrambled(100_000)
    taken = [block for _ in range(50) for block in index.take(100 * PAGE, float("inf"))]
    assert max(block.used_s for block in taken) < 10_000
    assert len(index._oldest) < 2_000
    index.check_invariants()
    taken += index.take(100_000 * PAGE, float("inf"))
    assert len({block.name for block in taken}) == 100_000
    assert len(index) == 0


def test_what_a_block_costs() -> None:
    """A block costs at most 200 bytes of memory."""
    tracemalloc.start()
    try:
        index = scrambled(200_000)
        assert tracemalloc.get_traced_memory()[0] <= 200 * len(index)
    finally:
        tracemalloc.stop()


def test_a_find_of_many_old_blocks_keeps_the_heap_small() -> None:
    """Blocks older than all that were known do not pile up beside the index."""
    index = BlockIndex(0)
    index.add(KnownBlock(b"\x01" * 20, PAGE, 1_000_000))
    assert index.take(1, 0) == []
    for n in range(60_000):
        index.add(KnownBlock(n.to_bytes(3, "big") + bytes(17), PAGE, 0.001 * n))
    assert len(index._oldest) < 20_000
    index.check_invariants()
    assert [block.used_s for block in index.take(3 * PAGE, float("inf"))] == [0, 0.001, 0.002]


def test_space_is_whole_pages() -> None:
    """A file takes whole pages, and every folder has room in the index."""
    assert [allocated(n) for n in (0, 1, PAGE, PAGE + 1)] == [0, PAGE, PAGE, 2 * PAGE]
    index = BlockIndex(0)
    for folder in range(N_FOLDERS):
        index.add(KnownBlock(bytes([folder]) * 20, 1, 0))
    assert index.n_bytes == N_FOLDERS * PAGE


def test_the_oldest_of_a_folder() -> None:
    """Of each folder the time of the least recent use is known; of an empty one none."""
    index = BlockIndex(1.0)
    for used_s, name in ((5.0, b"\x07a"), (3.0, b"\x07b"), (1.0, b"\x08c")):
        index.add(KnownBlock(name, PAGE, used_s))
    assert (index.oldest_in(7), index.oldest_in(8), index.oldest_in(9)) == (3.0, 1.0, None)
    index.use(b"\x07b", 9.0)
    assert index.oldest_in(7) == 5.0
