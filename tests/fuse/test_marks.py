"""Every call that waits is marked as itself, whatever it waits for."""

from pathlib import Path
from typing import Any

import pyfuse3
import trio

from s3mount.core.suspects import Call
from s3mount.fuse.boundary import Boundary
from s3mount.fuse.marks import CODES, CallMarks
from s3mount.fuse.operations import Operations
from s3mount.units import KIB, MIB
from tests.fs.harness import ROOT
from tests.fs.test_disk_cache import BIG, bucket, filled, mount


class WatchedMarks(CallMarks):
    """Remembers which calls were found to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[Call] = []

    def keep(self) -> int | None:
        slot = super().keep()
        self.waited += [call for call in self.in_flight() if call not in self.waited]
        return slot


async def test_reads_that_wait_for_a_disk_are_marked(tmp_path: Path) -> None:
    """Two reads at once that the disk answers are marked each, with its own offset, until they are answered."""
    store, marks = bucket(), WatchedMarks()
    await filled(store, tmp_path)
    async with mount(store, tmp_path) as (mounted, _):
        operations: Any = Operations(mounted.fs, Boundary(60.0, marks))
        context = pyfuse3.RequestContext()
        entry = await operations.lookup(ROOT, b"big", context)
        handle = (await operations.open(entry.st_ino, 0, context)).fh
        marks.waited.clear()
        spans = [8 * MIB, 16 * MIB]
        async with trio.open_nursery() as nursery:
            for offset in spans:
                nursery.start_soon(operations.read, handle, offset, 4 * KIB)
        assert set(marks.waited) == {Call(CODES["read"], handle, 0, offset) for offset in spans}
        assert marks.in_flight() == []
        marks.check_invariants()
        assert bytes(await operations.read(handle, 8 * MIB, 4 * KIB)) == BIG[8 * MIB : 8 * MIB + 4 * KIB]
