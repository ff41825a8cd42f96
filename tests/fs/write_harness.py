"""What writes, over a bucket in memory."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from s3mount.errors import StoreError, StoreFailure
from s3mount.fs.budget import ByteBudget
from s3mount.fs.part_sender import StreamTools
from s3mount.fs.parts import StreamStatistics
from s3mount.fs.write_room import WriteRoom
from s3mount.units import MIB
from tests.support.fake_store import FakeStore
from tests.support.fake_writer import FakeWriter, FaultyWriter, Loss

PART = 5 * MIB


class Streams:
    """Tools of streams, and what they write to."""

    def __init__(self, nursery: trio.Nursery, budget_bytes: int, fault: Callable[[str, str, int], Loss | None]) -> None:
        self.store = FakeStore()
        self.writer = FakeWriter(self.store)
        self.budget = ByteBudget(budget_bytes)
        self.room = WriteRoom(self.budget)
        self.tools = StreamTools(FaultyWriter(self.writer, fault), self.room, nursery, PART, StreamStatistics())

    def content(self, key: str = "a") -> bytes:
        return self.store.objects[key][1]


def no_fault(_name: str, _key: str, _number: int) -> None:
    """Everything works."""


def failing(name: str, error: StoreError | None = None) -> Callable[[str, str, int], Loss | None]:
    """Every call of one method fails."""
    loss: Loss = ("request", error or StoreFailure("503"))
    return lambda called, _key, _number: loss if called == name else None


@asynccontextmanager
async def streams(
    budget_bytes: int = 256 * MIB, fault: Callable[[str, str, int], Loss | None] = no_fault
) -> AsyncIterator[Streams]:
    """Tools; at the end writers hold nothing, and no upload is left."""
    async with trio.open_nursery() as nursery:
        made = Streams(nursery, budget_bytes, fault)
        yield made
        made.room.check_invariants()
        made.budget.check_invariants()
        assert made.room.statistics().used == 0, "bytes are held though no stream is open"
        assert made.budget.used == 0
        assert made.writer.uploads == {}, "an upload was left"
        nursery.cancel_scope.cancel()


def ramp(start: int, length: int) -> bytes:
    """Bytes that say where they are, every 251."""
    unit = bytes(range(251))
    skip = start % 251
    return (unit * (length // 251 + 2))[skip : skip + length]
