"""What programs wrote and was not saved, in the takeover record."""

from unittest.mock import patch

import pytest

from s3mount.core import journal
from s3mount.core.inodes import InodeTable
from s3mount.core.ledger import succeed
from s3mount.units import MIB
from tests.core.test_takeover import IDENTITY, Tape, filled, version


def lost_in(table: InodeTable) -> list[int]:
    return [inode.ino for inode in table.below("") if inode.is_lost]


@pytest.mark.parametrize("limit", [1, 8 * MIB])
def test_what_was_unsaved_is_lost_to_every_successor(limit: int) -> None:
    """Until the kernel forgets it, whatever is recorded meanwhile; what was saved in time is not."""
    tape = Tape()
    with patch.object(journal, "_MIN_LIMIT", limit):
        saved, lost, _ = filled(tape)
        table = InodeTable("p/", succeed(tape.areas, IDENTITY))
        for each in saved, lost:
            table.ledger.mark(table.get(each.ino), is_unsaved=True)
        table.ledger.mark(table.get(saved.ino), is_unsaved=False)
        for _ in range(2):
            table = InodeTable("p/", succeed(tape.areas, IDENTITY))
            assert lost_in(table) == [lost.ino]
            table.ledger.mark(table.get(lost.ino), is_unsaved=False)
            table.rewrite(table.get(lost.ino), "p/renamed", version("p/renamed", '"9"'))
            table.check_invariants()
        table.forget(lost.ino, 1)
        assert lost_in(InodeTable("p/", succeed(tape.areas, IDENTITY))) == []
