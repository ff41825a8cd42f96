"""The takeover record against a kernel whose daemons die at any byte of any write."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from unittest.mock import patch
from zlib import crc32

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from s3mount.core import journal
from s3mount.core.attrs import ObjectStat
from s3mount.core.inode import Inode
from s3mount.core.inodes import InodeTable
from s3mount.core.journal import Journal, newest
from s3mount.core.ledger import Ledger, succeed
from s3mount.core.takeover import FRAME_BYTES, Heading, RecordedInode, pack_heading, pack_inode, read_inodes
from s3mount.errors import StaleInode
from s3mount.units import MIB
from tests.core.strategies import any_text

IDENTITY = "https://s3.test/bucket/p/"
NOW_S = 1_700_000_000


class Tape:
    """Two areas, and every change of their bytes since the start, so that it can be stopped anywhere."""

    def __init__(self) -> None:
        self.changes: list[tuple[int, int | None, bytes]] = []  # area, where (None: all of it), what
        self.areas = (TapedArea(self, 0), TapedArea(self, 1))

    def until(self, n_changes: int, last_bytes: float = 1.0) -> tuple["TapedArea", "TapedArea"]:
        """The areas after so many changes, of the last of which only a part was made."""
        areas = Tape().areas
        for number, (area, at, written) in enumerate(self.changes[:n_changes], 1):
            part = written if number < n_changes else written[: round(len(written) * last_bytes)]
            content = areas[area].content
            if at is None:
                content[:] = written
            else:
                content[at : at + len(part)] = part
        return areas


class TapedArea:
    """An area as short as may be, so that it often grows."""

    def __init__(self, tape: Tape, number: int) -> None:
        self.tape, self.number = tape, number
        self.content = TapedBytes(self)

    def reserve(self, n_bytes: int) -> None:
        self.content[:] = bytes(self.content).ljust(n_bytes + 40, b"\0")

    def clear(self) -> None:
        self.content[:] = bytes(100)


class TapedBytes(bytearray):
    def __init__(self, area: TapedArea) -> None:
        super().__init__(100)
        self.area = area

    def __setitem__(self, index: slice | int, written: bytes | int) -> None:
        super().__setitem__(index, written)
        raw = bytes([written]) if isinstance(written, int) else bytes(written)
        at = index if isinstance(index, int) else None if index == slice(None) else index.start or 0
        self.area.tape.changes.append((self.area.number, at, raw))


def version(key: str, etag: str) -> ObjectStat:
    return ObjectStat(key, etag, 10, NOW_S, "GLACIER", restored=True)


THINGS = [("p/d/", None), ("p/d/d/", None), ("p/a", '"1"'), ("p/a", '"2"'), ("p/d/a", '"é"')]
VERBS = ["look up", "open", "close", "evict", "succeed", "answer lost", "forget lost"]
STEPS = st.lists(st.tuples(st.sampled_from(VERBS), st.sampled_from(THINGS)), max_size=40)
Thing = tuple[str, str | None]


@dataclass
class Kernel:
    """What a kernel holds, and what its daemons must have on record, in the order of their steps."""

    tape: Tape = field(default_factory=Tape)
    references: dict[Thing, int] = field(default_factory=dict)
    handles: dict[Thing, list[Inode]] = field(default_factory=dict)
    left_open: set[Thing] = field(default_factory=set)
    recorded: set[Thing] = field(default_factory=set)
    #: (changes of the tape, what is on record) after each step.
    history: list[tuple[int, set[Thing]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.succeed()

    def succeed(self, _: Thing = THINGS[0]) -> None:
        """The daemon is dropped as it is, and another takes over."""
        self.table = InodeTable("p/", succeed(self.tape.areas, IDENTITY))
        self.left_open = {thing for thing in self.recorded if thing[1] is not None}
        self.handles = {thing: [] for thing in self.handles}
        self.note()

    def note(self) -> None:
        is_open = {thing for thing, handles in self.handles.items() if handles}
        directories = {thing for thing in self.recorded if thing[1] is None}
        self.recorded = directories | self.left_open | is_open
        self.table.check_invariants()
        self.history.append((len(self.tape.changes), set(self.recorded)))

    def run(self, verb: str, thing: Thing) -> None:
        getattr(self, verb.replace(" ", "_"))(thing)
        self.note()

    def look_up(self, thing: Thing) -> Inode:
        key, etag = thing
        inode = self.table.intern(key, None if etag is None else version(key, etag))
        self.table.grant(inode)
        self.references[thing] = self.references.get(thing, 0) + 1
        if etag is None:
            self.recorded.add(thing)
        return inode

    def open(self, thing: Thing) -> None:
        if thing[1] is not None:
            inode = self.look_up(thing)
            self.table.opened(inode)
            self.handles.setdefault(thing, []).append(inode)

    def close(self, thing: Thing) -> None:
        if self.handles.get(thing):
            self.table.closed(self.handles[thing].pop())

    def evict(self, thing: Thing) -> None:
        """Only what no process has open."""
        if not self.handles.get(thing) and (n_references := self.references.pop(thing, 0)):
            self.table.forget(self.look_up_number(thing), n_references)
            self.left_open.discard(thing)
            self.recorded.discard(thing)

    def look_up_number(self, thing: Thing) -> int:
        key, etag = thing
        inode = self.table.intern(key, None if etag is None else version(key, etag))
        self.table.discard_if_unused(inode)
        return inode.ino

    def answer_lost(self, thing: Thing) -> None:
        """The daemon dies after it did the work for the look-up of a directory or the open of a file, which the kernel
        has looked up; it asks the next one again.
        """
        before = self.references.get(thing, 0)
        inode = self.look_up(thing)
        if thing[1] is not None:
            before += 1
            self.open(thing)
        self.note()
        self.succeed()
        self.references[thing] = before
        if thing[1] is None:
            self.look_up(thing)
        else:
            again = self.table.get(inode.ino)
            self.table.opened(again)
            self.handles.setdefault(thing, []).append(again)

    def forget_lost(self, thing: Thing) -> None:
        """The daemon dies with a FORGET that it read; nobody sends it again."""
        if not self.handles.get(thing):
            self.references.pop(thing, 0)
            self.succeed()

    def what_is_inherited(self, areas: tuple[TapedArea, TapedArea]) -> set[Thing]:
        inherited = succeed(areas, IDENTITY).inherited
        assert len({each.serial for each in inherited}) == len(inherited)
        for each in inherited:
            assert each.found is None or each.found == version(each.key, each.found.etag)
        return {(each.key, each.found.etag if each.found else None) for each in inherited}


@settings(max_examples=150)
@example(steps=[(verb, THINGS[2]) for verb in ("answer lost", "close", "evict")], part=0.0)
@given(steps=STEPS, part=st.floats(0, 1))
@patch.object(journal, "_MIN_LIMIT", 150)
def test_a_record_cut_off_anywhere_is_the_record_of_a_step(steps: list[tuple[str, Thing]], part: float) -> None:
    """Killed within any write, a daemon leaves the record as it was before or after the step it was in."""
    kernel = Kernel()
    for step in steps:
        kernel.run(*step)
    for (begin, before), (end, after) in pairwise([(0, set()), *kernel.history]):
        for n_changes in range(begin + 1, end + 1):
            assert kernel.what_is_inherited(kernel.tape.until(n_changes, part)) in (before, after)
        assert kernel.what_is_inherited(kernel.tape.until(end)) == after


@patch.object(journal, "_MIN_LIMIT", 500)
def test_what_is_inherited_ends_with_the_kernels_last_reference() -> None:
    """Twenty successors leave nothing behind when the kernel has let go of everything, not even by lost answers."""
    kernel = Kernel()
    for _ in range(20):
        for thing in THINGS:
            kernel.run("answer lost", thing)
            kernel.run("close", thing)
    for thing in THINGS:
        kernel.handles[thing] = []
        kernel.run("evict", thing)
    assert kernel.recorded == set()
    assert kernel.table.statistics().inodes == 1
    assert kernel.table.ledger.statistics().inherited == 1  # the root


def filled(tape: Tape, n_files: int = 3) -> list[Inode]:
    table = InodeTable("p/", succeed(tape.areas, IDENTITY))
    files = [table.intern(f"p/{n}", version(f"p/{n}", '"1"')) for n in range(n_files)]
    for inode in files:
        table.grant(inode)
        table.opened(inode)
    return files


@given(any_text, any_text, st.integers(0, 2**63), st.integers(-(2**40), 2**40), any_text, st.booleans())
def test_an_entry_comes_back_as_it_went_in(
    key: str,
    etag: str,
    size: int,
    mtime_s: int,
    storage_class: str,
    restored: bool,  # noqa: FBT001
) -> None:
    """Every field of every object and directory, any text included, is read as it was written."""
    found = ObjectStat(key, etag, size, mtime_s, storage_class[:255], restored)
    heading = Heading(7, 3, key)
    record = bytearray(
        pack_heading(heading) + pack_inode(2**64 - 1, 2**40 - 1, key, found) + pack_inode(2, 3, key, None)
    )
    assert read_inodes(record) == [RecordedInode(2**64 - 1, 2**40 - 1, key, found), RecordedInode(2, 3, key, None)]


def test_nothing_is_written_for_a_file_that_is_opened_again() -> None:
    """An epoch over files the record has room for adds no entry and no byte."""
    tape = Tape()
    table = InodeTable("p/", succeed(tape.areas, IDENTITY))
    inode = table.intern("p/a", version("p/a", '"1"'))
    table.grant(inode)
    table.opened(inode)
    table.closed(inode)
    written = table.ledger.statistics().journal
    for _ in range(100):
        table.opened(inode)
        table.opened(inode)
        table.closed(inode)
        table.closed(inode)
    assert table.ledger.statistics().journal == written


@pytest.mark.parametrize(("thing", "granted"), [(("p/a", '"1"'), 1), (("p/d/", None), 2)])
def test_a_reference_that_is_given_back_at_once_ends_nothing(thing: Thing, granted: int) -> None:
    """The kernel has no use for one entry of those that a successor gave it; what was open or in use stays."""
    kernel = Kernel()
    kernel.run("open" if thing[1] else "look up", thing)
    kernel.run("succeed", thing)
    for _ in range(granted):
        inode = kernel.look_up(thing)
    kernel.table.forget(inode.ino, 1)
    assert kernel.table.get(inode.ino).is_inherited
    kernel.table.forget(inode.ino, granted)
    with pytest.raises(StaleInode):
        kernel.table.get(inode.ino)
    kernel.table.check_invariants()


@patch.object(journal, "_MIN_LIMIT", 1000)
def test_a_file_is_recorded_again_when_its_entry_was_dropped() -> None:
    """An epoch over more files than the record has room for has each of them on record while it is open."""
    table = InodeTable("p/", succeed(Tape().areas, IDENTITY))
    files = [table.intern(f"p/{n}", version(f"p/{n}", '"1"')) for n in range(30)]
    for inode in files:
        table.grant(inode)
    for inode in files * 3:
        table.opened(inode)
        table.check_invariants()
        table.closed(inode)
    table.check_invariants()


@patch.object(journal, "_MIN_LIMIT", 10_000)
def test_a_record_is_no_longer_than_twice_what_holds() -> None:
    """A thousand files opened once each leave a record for the ten that are open."""
    table = InodeTable("p/", succeed(Tape().areas, IDENTITY))
    held: list[Inode] = []
    for n in range(1000):
        inode = table.intern(f"p/{n}", version(f"p/{n}", '"1"'))
        table.grant(inode)
        table.opened(inode)
        held.append(inode)
        if len(held) > 10:
            table.closed(held.pop(0))
        assert table.ledger.statistics().journal.bytes < 10_100
    table.check_invariants()


def cases_of_refusal() -> Iterator[tuple[bytes, str]]:
    heading = pack_heading(Heading(5, 2, IDENTITY))
    newer = bytearray(heading[FRAME_BYTES:])
    newer[9] = 2
    yield heading[:4] + crc32(newer).to_bytes(4, "little") + b"\1" + newer, "version 2"
    strange = b"\x09" + bytes(30)
    yield (
        heading + len(strange).to_bytes(4, "little") + crc32(strange).to_bytes(4, "little") + b"\1" + strange,
        "kind 9",
    )
    yield pack_heading(Heading(5, 2, "https://s3.test/other/")), "other"


@pytest.mark.parametrize(("record", "reason"), list(cases_of_refusal()))
def test_what_cannot_be_understood_is_refused_with_the_reason(record: bytes, reason: str) -> None:
    """A newer version, an unknown kind or another bucket's record gives nothing, and the next record is a new one."""
    tape = Tape()
    tape.areas[1].content[:] = record
    ledger = succeed(tape.areas, IDENTITY)
    assert (ledger.inherited, reason in ledger.refusal) == ([], True)
    InodeTable("p/", ledger).check_invariants()
    found = newest(tape.areas)
    assert found is not None
    assert found[0]._replace(serial=1) == Heading(6, 3, IDENTITY)
    assert found[0].serial > 2**32


def test_a_damaged_record_is_read_up_to_the_damage() -> None:
    """A byte that changed in the second file's entry leaves the first."""
    tape = Tape()
    second = filled(tape)[1]
    tape.areas[1].content[second.place + FRAME_BYTES + 3] ^= 1
    assert [each.key for each in succeed(tape.areas, IDENTITY).inherited] == ["p/0"]


@pytest.mark.parametrize("damage", ["an entry", "the heading", "a second record", "what holds"])
def test_the_invariants_see_damage(damage: str) -> None:
    """check_invariants finds a record that a successor would not read as it should."""
    tape = Tape()
    table = InodeTable("p/", succeed(tape.areas, IDENTITY))
    inode = table.intern("p/a", version("p/a", '"1"'))
    table.grant(inode)
    table.opened(inode)
    table.check_invariants()
    content = tape.areas[1].content
    if damage == "an entry":
        content[inode.place + FRAME_BYTES + 1] ^= 1
    elif damage == "the heading":
        content[FRAME_BYTES + 1] ^= 1
    elif damage == "a second record":
        tape.areas[0].content[:] = bytes(content)
    else:
        content[inode.place + FRAME_BYTES - 1] = 0
    with pytest.raises(ValueError, match=r"read|heading|two|record"):
        table.check_invariants()


def test_a_journal_without_a_commit_is_no_record() -> None:
    """A successor that dies while it copies leaves its predecessor's record as the valid one."""
    tape = Tape()
    files = filled(tape)
    Journal(tape.areas, Heading(2, 1, IDENTITY)).add(
        RecordedInode(files[0].ino, files[0].serial, "p/0", files[0].found)
    )
    assert len(succeed(tape.areas, IDENTITY).inherited) == 3


@pytest.mark.parametrize("limit", [1, 8 * MIB])
def test_a_serial_is_given_out_once(limit: int) -> None:
    """Neither a directory that the kernel forgot nor a record that was compacted frees a serial for a later daemon."""
    tape, serials = Tape(), [1]
    with patch.object(journal, "_MIN_LIMIT", limit):
        for takeover in range(4):
            table = InodeTable("p/", succeed(tape.areas, IDENTITY))
            for number in range(3):
                inode = table.intern(f"p/{takeover}{number}/", None)
                table.grant(inode)
                serials.append(inode.serial)
                table.forget(inode.ino, 1)
            table.check_invariants()
    assert serials == list(range(1, 14))


def test_without_a_journal_inodes_have_serials_all_the_same() -> None:
    """A mount that leaves nothing to anybody numbers its handles in the same way."""
    table = InodeTable("p/", Ledger())
    serials = set()
    for key in ("p/d/", "p/e/"):
        inode = table.intern(key, None)
        table.grant(inode)
        serials.add(inode.serial)
    assert len(serials | {table.root.serial}) == 3
    assert table.ledger.statistics().journal is None
