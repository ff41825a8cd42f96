"""More readers than the budget has parts: nobody starves, hardly a byte comes twice, and nothing is left behind."""

import pytest
import trio

from s3mount.units import KIB, MIB
from tests.fs.harness import Mounted, file_system
from tests.support.content import make_content
from tests.support.fake_store import FakeStore

_READERS = 64


async def _read_all(mounted: Mounted, size: int) -> None:
    async def reader(number: int) -> None:
        handle = await mounted.fs.open((await mounted.walk(f"f{number}")).ino)
        for offset in range(0, size, 128 * KIB):
            assert len(await mounted.read(handle, offset, 128 * KIB)) == min(128 * KIB, size - offset)
        mounted.fs.release(handle)

    async with trio.open_nursery() as nursery:
        for number in range(_READERS):
            nursery.start_soon(reader, number)


@pytest.mark.parametrize("budget_mib", [32, 96, 320])
async def test_readers_beyond_the_budget(budget_mib: int, autojump_clock: object) -> None:
    """64 readers in order fetch hardly more than they read, however small the budget, and every gauge ends at zero."""
    size = 20 * MIB
    store = FakeStore(latency_s=0.03)
    content = make_content("f", size)
    for number in range(_READERS):
        store.put(f"f{number}", content)
    async with file_system(store, budget_bytes=budget_mib * MIB) as mounted:
        with trio.fail_after(600):
            await _read_all(mounted, size)
        blocks, budget = mounted.blocks.statistics(), mounted.budget.statistics()
        assert (budget.used, budget.waiting) == (0, 0)
        assert (blocks.objects, blocks.pending, blocks.ready, blocks.held_bytes) == (0, 0, 0, 0)
    assert store.counts["bytes"] <= 1.3 * _READERS * size
