"""What writes, over a bucket in memory."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar, TypeVarTuple

import trio

from s3mount.core.attrs import ObjectId, ObjectStat
from s3mount.core.ranges import ByteRange
from s3mount.errors import StoreError, StoreFailure
from s3mount.fs.appending import Appender
from s3mount.fs.budget import ByteBudget
from s3mount.fs.draft import Draft
from s3mount.fs.draft_content import DraftTools
from s3mount.fs.drafts import Drafts, Opening
from s3mount.fs.part_sender import StreamTools
from s3mount.fs.parts import StreamStatistics
from s3mount.fs.spool import Spool
from s3mount.fs.spooled import SpoolTools
from s3mount.fs.write_room import WriteRoom
from s3mount.store.patient_writer import PatientWriter
from s3mount.store.retries import Retries
from s3mount.units import MIB
from tests.support.fake_store import FakeStore
from tests.support.fake_writer import FakeWriter, FaultyWriter, Loss

PART = 5 * MIB
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


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


class Inline:
    """Where blocking calls are made in these tests: on the loop, so that MockClock does not run ahead of them."""

    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        await trio.lowlevel.checkpoint()
        return function(*args)


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


class Writing:
    """The drafts of one daemon.

    Attributes:
        base_reads: what was read of base versions.
    """

    def __init__(
        self,
        made: Streams,
        nursery: trio.Nursery,
        directory: Path,
        *,
        keeps_streamed: bool = True,
        appends: bool = False,
    ) -> None:
        self.made = made
        self.base_reads: list[ByteRange] = []
        self.spool = Spool(directory, Inline(), min_free_share=0.0)
        appender = Appender(made.tools.writer, self._read_base) if appends else None
        spool_tools = SpoolTools(self.spool, self._read_base, made.tools, appender)
        self.tools = DraftTools(spool_tools, lambda: 1_800_000_000.0, keeps_streamed=keeps_streamed)
        self.drafts = Drafts(self.tools, nursery)

    async def _read_base(self, version: ObjectId, span: ByteRange) -> bytes:
        self.base_reads.append(span)
        return await self.made.store.get_range(version, span)

    def found(self, key: str = "a") -> ObjectStat | None:
        there = self.made.store.objects.get(key)
        return there[0] if there else None

    async def open(self, key: str = "a", **flags: bool) -> Draft:
        return await self.drafts.open(key, self.found(key), Opening(**flags))


@asynccontextmanager
async def writing(
    directory: Path,
    budget_bytes: int = 256 * MIB,
    fault: Callable[[str, str, int], Loss | None] = no_fault,
    *,
    keeps_streamed: bool = True,
    appends: bool = False,
    retries: Retries | None = None,
) -> AsyncIterator[Writing]:
    """Drafts; at the end nothing is left of them, but for what is acknowledged.

    Args:
        appends: to a bucket that can append.
        retries: of what fails; without it the first failure is final.
    """
    async with streams(budget_bytes, fault) as made, trio.open_nursery() as nursery:
        if retries is not None:
            made.tools = replace(made.tools, writer=PatientWriter(made.tools.writer, retries))
        each = Writing(made, nursery, directory, keeps_streamed=keeps_streamed, appends=appends)
        yield each
        each.drafts.check_invariants()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await each.drafts.close()
        assert each.spool.n_files == 0, "a file of the spool is left open"
