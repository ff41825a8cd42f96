"""LARGE_GIB (default 100) written in order, with holes, over a bucket that keeps nothing: memory stays flat."""

import dataclasses
import os
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from s3mount.core.attrs import ObjectId
from s3mount.fs.drafts import Opening
from s3mount.store.writing import ANYTHING, Body, Condition, Part, Upload, Written, size_of
from s3mount.units import GIB, MIB
from tests.fs.write_harness import Streams, Writing, no_fault
from tests.support.fake_writer import FakeWriter

pytestmark = [pytest.mark.soak, pytest.mark.timeout(0)]

_SIZE = int(os.environ.get("LARGE_GIB", "100")) * GIB
_BUDGET = 512 * MIB
#: Beside the budget's half: what Python and malloc have of it.
_MORE_MIB = 256


class Forgetful(FakeWriter):
    """Counts what is written and keeps nothing."""

    n_bytes = 0
    n_parts = 0

    async def upload_part(self, upload: Upload, number: int, body: Body) -> Part:
        await trio.lowlevel.checkpoint()
        self.n_bytes += size_of(body)
        self.n_parts += 1
        return Part(number, f'"{number}"', size_of(body))

    async def complete(self, upload: Upload, parts: object, condition: Condition = ANYTHING) -> Written:
        del self.uploads[upload.upload_id]
        return Written(ObjectId(upload.key, '"whole"'))


def rss_mib(field: str) -> float:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition(f"{field}:")[2].split()[0]) / 1024


def begin_peak() -> float:
    """The resident memory now; VmHWM counts from here."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return rss_mib("VmRSS")


async def test_memory_is_flat(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Every byte goes into a part, there are at most 10,000, and the process does not grow with the file."""
    before = begin_peak()
    piece, hole = os.urandom(MIB), 3 * MIB
    async with trio.open_nursery() as nursery:
        made = Streams(nursery, _BUDGET, no_fault)
        writer = Forgetful(made.store)
        made.tools = dataclasses.replace(made.tools, writer=writer)
        each = Writing(made, nursery, tmp_path, keeps_streamed=False)
        draft = await each.drafts.open("a", None, Opening(is_truncating=True))
        await draft.truncate(_SIZE)
        for offset in range(0, _SIZE, MIB + hole):
            await draft.write(offset, piece)
        await each.drafts.release(draft)
        nursery.cancel_scope.cancel()
    assert writer.n_bytes == _SIZE
    assert writer.n_parts <= 10_000
    assert rss_mib("VmHWM") - before < _BUDGET / MIB / 2 + _MORE_MIB
