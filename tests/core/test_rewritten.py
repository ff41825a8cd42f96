"""The takeover record has what a file is now: this mount renames and rewrites files that are open, or were."""

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from s3mount.core import journal
from s3mount.core.inode import Inode
from s3mount.core.inodes import InodeTable
from s3mount.core.ledger import succeed
from tests.core.test_takeover import IDENTITY, Tape, version

_FILES = [("p/a", '"1"'), ("p/a", '"2"'), ("p/b", '"1"'), ("p/b", '"2"')]
_STEPS = st.lists(st.sampled_from(["open", "close", *_FILES]), max_size=30)


def known(tape: Tape) -> tuple[InodeTable, Inode]:
    """A table with one file, which the kernel has looked up."""
    table = InodeTable("p/", succeed(tape.areas, IDENTITY))
    inode = table.intern("p/a", version("p/a", '"1"'))
    table.grant(inode)
    return table, inode


def test_a_file_that_is_renamed_and_opened_again() -> None:
    """Closed, renamed and opened to be read, as a checkpoint is: whoever takes over reads it under its new name."""
    tape = Tape()
    table, inode = known(tape)
    table.opened(inode)
    table.closed(inode)
    table.rewrite(inode, "p/b", version("p/b", '"2"'))
    table.opened(inode)
    (inherited,) = succeed(tape.areas, IDENTITY).inherited
    assert (inherited.ino, inherited.key, inherited.found) == (inode.ino, "p/b", version("p/b", '"2"'))


@given(steps=_STEPS)
@patch.object(journal, "_MIN_LIMIT", 150)
def test_whatever_is_done_to_a_file(steps: list[str | tuple[str, str]]) -> None:
    """Opened, closed and rewritten in any order: it is on record when it is open, as it is."""
    table, inode = known(Tape())
    for step in steps:
        if step == "open":
            table.opened(inode)
        elif step == "close":
            if inode.handles:
                table.closed(inode)
        else:
            key, etag = step
            table.rewrite(inode, key, version(key, etag))
        table.check_invariants()
