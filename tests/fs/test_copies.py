"""Copies whose bytes pass through the daemon, because the server's own know no condition."""

import pytest
import trio
import trio.testing

from s3mount.core.attrs import ObjectId, ObjectStat
from s3mount.core.ranges import ByteRange
from s3mount.core.waits import Arrival
from s3mount.fs.budget import ByteBudget
from s3mount.fs.copies import Copies
from s3mount.fs.write_room import Allowance, WriteRoom
from s3mount.store.conditions import Conditions
from s3mount.units import MIB
from tests.support.fake_store import FakeStore
from tests.support.fake_writer import FakeWriter

SIZE = 6 * MIB


class Watched(FakeStore):
    """Notes what writers held at each GET."""

    def __init__(self, room: WriteRoom) -> None:
        super().__init__()
        self.room = room
        self.held: list[int] = []

    async def get_range(self, wanted: ObjectId, span: ByteRange, arrival: Arrival | None = None) -> bytes:
        self.held.append(self.room.statistics().used)
        return await super().get_range(wanted, span, arrival)


def copies_of(store: FakeStore, room: WriteRoom) -> Copies:
    of_puts = Conditions(of_puts=True, of_copies=False)
    return Copies(store, FakeWriter(store), "", lambda: 1_800_000_000.0, room, of_puts)


def put(store: FakeStore, key: str, content: bytes) -> ObjectStat:
    store.put(key, content)
    return store.objects[key][0]


async def test_bytes_that_pass_through_are_in_the_budget(autojump_clock: trio.testing.MockClock) -> None:
    """Links whose bytes pass through the daemon hold no more than writers may, and wait for each other beyond."""
    budget = ByteBudget(32 * MIB)
    store = Watched(WriteRoom(budget))
    store.latency_s = 1.0
    copies = copies_of(store, store.room)
    source = put(store, "a", b"x" * SIZE)
    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(lambda key: copies.copy(source, key, is_new=True), f"b{number}")
    assert {store.objects[f"b{number}"][1] for number in range(8)} == {b"x" * SIZE}
    assert min(store.held) == SIZE
    assert max(store.held) <= store.room.share + store.room.largest_part
    assert store.room.statistics().waits > 0
    assert (store.room.statistics().used, budget.used) == (0, 0)


async def test_a_link_waits_for_memory(autojump_clock: trio.testing.MockClock) -> None:
    """While writers hold all they may, a link whose bytes pass through waits, and asks S3 for nothing."""
    room = WriteRoom(ByteBudget(16 * MIB))
    store = FakeStore()
    source = put(store, "a", b"x" * 4 * MIB)
    writer = Allowance(room)
    await writer.take(8 * MIB)
    await writer.take(4 * MIB)  # the first goes beyond the share by a part
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: copies_of(store, room).copy(source, "b", is_new=True))
        await trio.testing.wait_all_tasks_blocked()
        assert store.counts["gets"] == 0
        writer.close()
    assert store.objects["b"][1] == b"x" * 4 * MIB


@pytest.mark.parametrize("is_small", [True, False])
async def test_more_than_a_part_does_not_pass_through(*, is_small: bool) -> None:
    """What is larger than the largest part that writers may hold is copied by the server, after a HEAD."""
    room = WriteRoom(ByteBudget(16 * MIB))
    store = FakeStore()
    size = room.largest_part if is_small else room.largest_part + 1
    await copies_of(store, room).copy(put(store, "a", b"x" * size), "b", is_new=True)
    assert (store.counts["gets"], store.counts["heads"]) == ((1, 0) if is_small else (0, 1))
