"""Inode numbers and lookup counts against a model of what the kernel holds."""

import sys
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from s3mount.core.attrs import ObjectStat
from s3mount.core.inode import Inode, inode_number
from s3mount.core.inodes import ROOT, InodeTable
from s3mount.core.ranges import ByteRange, Coverage
from s3mount.errors import StaleInode
from s3mount.units import MIB
from tests.core.strategies import any_text

ROOT_KEY = "p/"
#: Numbers as the first release made them.
RECORDED = (0xE8B242C722651709, 0x26F03B647057621F, 0x2FE2B937A5C26196)


def version(key: str, etag: str, **facts: object) -> ObjectStat:
    """One version of an object."""
    return ObjectStat(key, etag, 10, 1_700_000_000)._replace(**facts)


#: What an inode may stand for: (key, version), None for a directory.
Identity = tuple[str, str | None]
identities = st.one_of(
    st.tuples(st.sampled_from(["p/a", "p/b", "p/d/a"]), st.sampled_from(["", '"1"', '"2"'])),
    st.tuples(st.sampled_from(["p/d/", "p/a/", "p/d/d/"]), st.none()),
)


def intern(table: InodeTable, identity: Identity) -> Inode:
    """The inode of an identity."""
    key, etag = identity
    return table.intern(key, None if etag is None else version(key, etag))


@dataclass
class Held:
    """What the kernel holds of one inode."""

    inode: Inode
    lookups: int = 0
    handles: int = 0


class KernelModel(RuleBasedStateMachine):
    """Any order of lookups, opens, closes, forgets and restarts that a kernel may produce."""

    def __init__(self) -> None:
        super().__init__()
        self.table = InodeTable(ROOT_KEY)
        self.held: dict[Identity, Held] = {}
        self.numbers: dict[Identity, int] = {}

    def _interned(self, identity: Identity) -> Inode:
        inode = intern(self.table, identity)
        assert self.numbers.setdefault(identity, inode.ino) == inode.ino
        assert (inode.key, inode.found.etag if inode.found else None) == identity
        return inode

    def _settle(self, identity: Identity) -> None:
        held = self.held[identity]
        if held.lookups == held.handles == 0:
            del self.held[identity]

    @rule(identity=identities)
    def look_up(self, identity: Identity) -> None:
        inode = self._interned(identity)
        self.table.grant(inode)
        held = self.held.setdefault(identity, Held(inode))
        assert held.inode is inode
        held.lookups += 1

    @rule(identity=identities)
    def look_up_without_room_in_the_reply(self, identity: Identity) -> None:
        self.table.discard_if_unused(self._interned(identity))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def open(self, data: st.DataObject) -> None:
        held = self.held[data.draw(st.sampled_from(sorted(self.held, key=str)))]
        self.table.opened(self.table.get(held.inode.ino))
        held.handles += 1

    @precondition(lambda self: any(held.handles for held in self.held.values()))
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        opened = sorted((each for each, held in self.held.items() if held.handles), key=str)
        identity = data.draw(st.sampled_from(opened))
        self.held[identity].handles -= 1
        self.table.closed(self.held[identity].inode)
        self._settle(identity)

    @precondition(lambda self: any(held.lookups for held in self.held.values()))
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        known = sorted((each for each, held in self.held.items() if held.lookups), key=str)
        identity = data.draw(st.sampled_from(known))
        held = self.held[identity]
        n_lookups = data.draw(st.integers(1, held.lookups))
        held.lookups -= n_lookups
        self.table.forget(held.inode.ino, n_lookups)
        self._settle(identity)

    @rule(identity=identities, n_lookups=st.integers(1, 3))
    def forget_what_nobody_knows(self, identity: Identity, n_lookups: int) -> None:
        if identity not in self.held:
            self.table.forget(self.numbers.get(identity, 2), n_lookups)

    @rule(n_lookups=st.integers(0, 3))
    def use_the_root(self, n_lookups: int) -> None:
        root = self.table.intern(ROOT_KEY, None)
        assert root is self.table.root is self.table.get(ROOT)
        for _ in range(n_lookups):
            self.table.grant(root)
        self.table.discard_if_unused(root)
        self.table.forget(ROOT, n_lookups)

    @rule()
    def restart(self) -> None:
        self.table = InodeTable(ROOT_KEY)
        self.held = {}

    @invariant()
    def counts_are_the_kernel_s(self) -> None:
        self.table.check_invariants()
        held = self.held.values()
        found = self.table.statistics()
        assert found.inodes == 1 + len(held)
        assert found.lookups == sum(each.lookups for each in held)
        assert found.handles == sum(each.handles for each in held)
        assert all((each.inode.lookups, each.inode.handles) == (each.lookups, each.handles) for each in held)

    @invariant()
    def only_what_is_held_is_known(self) -> None:
        for identity, number in self.numbers.items():
            if identity in self.held:
                assert self.table.get(number) is self.held[identity].inode
            else:
                with pytest.raises(StaleInode):
                    self.table.get(number)

    @invariant()
    def numbers_are_distinct(self) -> None:
        taken = list(self.numbers.values())
        assert len(set(taken)) == len(taken)
        assert not {0, ROOT} & set(taken)


KernelModel.TestCase.settings = settings(max_examples=100, stateful_step_count=40)
test_any_kernel_agrees_with_the_model = KernelModel.TestCase


def test_a_new_version_is_a_new_inode_and_the_old_one_stays() -> None:
    """After a replacement the old inode keeps its number and its version while it is held."""
    table = InodeTable("")
    old = table.intern("a", version("a", '"1"'))
    table.grant(old)
    new = table.intern("a", version("a", '"2"'))
    table.grant(new)
    assert old.ino != new.ino
    assert old.found == version("a", '"1"')
    assert table.get(old.ino) is old
    table.check_invariants()


def test_the_same_version_shows_its_newest_attributes() -> None:
    """An archived object that was restored keeps its inode and becomes readable."""
    table = InodeTable("")
    inode = table.intern("a", version("a", '"1"', storage_class="GLACIER"))
    table.grant(inode)
    assert inode.found is not None
    assert inode.found.is_archived
    assert table.intern("a", version("a", '"1"', storage_class="GLACIER", restored=True)) is inode
    assert not inode.found.is_archived


def test_more_forgets_than_lookups_do_not_count_below_zero() -> None:
    """A kernel that forgets too much removes the inode once, and the next lookup starts at one."""
    table = InodeTable("")
    inode = intern(table, ("a", '"1"'))
    table.grant(inode)
    table.opened(inode)
    table.forget(inode.ino, 7)
    table.check_invariants()
    assert table.get(inode.ino) is inode  # the handle pins it
    table.closed(inode)
    with pytest.raises(StaleInode, match=f"inode {inode.ino} is not known"):
        table.get(inode.ino)
    again = intern(table, ("a", '"1"'))
    table.grant(again)
    assert (again.ino, again.lookups) == (inode.ino, 1)


def test_a_taken_number_gives_the_next_probe() -> None:
    """An identity whose number another inode keeps, as one renamed in this mount would, takes the second probe."""
    table = InodeTable("")
    renamed = intern(table, ("a", '"1"'))
    table.grant(renamed)
    renamed.key = "b"
    inode = intern(table, ("a", '"1"'))
    table.grant(inode)
    assert inode is not renamed
    assert inode.ino == inode_number("a", '"1"', probe=1)
    assert intern(table, ("a", '"1"')) is inode
    assert table.get(renamed.ino) is renamed
    table.check_invariants()


def test_a_collision_of_a_directory_is_probed_too() -> None:
    """A directory whose number is taken by a file takes the second probe and is a directory."""
    table = InodeTable("")
    holder = intern(table, ("d/", None))
    table.grant(holder)
    holder.key, holder.found = "file", version("file", '"1"')
    directory = intern(table, ("d/", None))
    table.grant(directory)
    assert directory.is_directory
    assert directory.ino == inode_number("d/", "", probe=1)
    table.check_invariants()


@given(any_text, any_text, st.integers(0, 2))
def test_numbers_are_64_bits_and_depend_on_each_part(key: str, etag: str, probe: int) -> None:
    """Key, version and probe each change the number, and moving a character between them does too."""
    number = inode_number(key, etag, probe)
    assert 0 <= number < 1 << 64
    others = [(key + "x", etag, probe), (key, etag + "x", probe), (key, etag, probe + 1)]
    if key:
        others.append((key[:-1], key[-1] + etag, probe))
    assert number not in [inode_number(*other) for other in others]


def test_numbers_do_not_change_between_releases() -> None:
    """The number of an identity is what it always was: a new daemon must find the same one."""
    assert inode_number("a/b.txt", '"d41d8cd98f00b204e9800998ecf8427e"') == RECORDED[0]
    assert inode_number("a/", "") == RECORDED[1]
    assert inode_number("a/", "", 1) == RECORDED[2]


def test_an_inode_remembers_what_was_delivered() -> None:
    """The bytes the kernel got belong to one version: while it is held they stay, a new version has none."""
    table = InodeTable("")
    inode = intern(table, ("a", '"1"'))
    table.grant(inode)
    inode.deliver(ByteRange(0, 10))
    assert intern(table, ("a", '"1"')).was_delivered(ByteRange(0, 10))
    assert not intern(table, ("a", '"2"')).was_delivered(ByteRange(0, 1))
    table.forget(inode.ino, 1)
    assert not intern(table, ("a", '"1"')).was_delivered(ByteRange(0, 1))


def pages(first: int, stop: int) -> ByteRange:
    return ByteRange(first * 4096, stop * 4096)


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 40))), st.integers(0, 255), st.integers(0, 256))
def test_what_an_open_may_fetch_is_known_by_the_page(reads: list[tuple[int, int]], first: int, length: int) -> None:
    """Of the first MiB it is known exactly which pages the kernel got, in whatever order; beyond it is never said."""
    inode = Inode(2, "a", version("a", '"1"', size=MIB + 5000))
    coverage = Coverage()
    for start, n in reads:
        inode.deliver(pages(start, start + n))
        coverage.add(pages(start, start + n))
    wanted = pages(first, min(first + length, MIB // 4096))
    assert inode.was_delivered(wanted) == coverage.holds(wanted)
    assert not inode.was_delivered(ByteRange(0, MIB + 5000))
    assert sys.getsizeof(inode.delivered) <= 64


@pytest.mark.parametrize("size", [1, 4095, 4096, 4097, MIB - 1, MIB])
def test_a_small_file_was_delivered_when_its_last_byte_was(size: int) -> None:
    """The end of the file ends its last page; a read that ends elsewhere does not."""
    inode = Inode(2, "a", version("a", '"1"', size=size))
    inode.deliver(ByteRange(0, size - 1))
    assert not inode.was_delivered(ByteRange(0, size))
    inode.deliver(ByteRange(0, size))
    assert inode.was_delivered(ByteRange(0, size))


@pytest.mark.parametrize("spoil", ["lookups", "handles", "ino", "key", "nobody"])
def test_a_broken_table_is_found(spoil: str) -> None:
    """check_invariants raises for each thing that must not be."""
    table = InodeTable("")
    inode = intern(table, ("d/", None))
    table.grant(inode)
    table.check_invariants()
    if spoil == "nobody":
        inode.lookups = 0
    else:
        setattr(inode, spoil, "file" if spoil == "key" else -1)
    with pytest.raises(ValueError, match="inode"):
        table.check_invariants()


def test_a_table_that_shrank_says_so_once() -> None:
    """When most of many inodes went, the dict is a new, small one, and the caller can tell; a few are not worth it."""
    table = InodeTable("")
    inodes = [intern(table, (f"f{number}", '"1"')) for number in range(20_000)]
    for inode in inodes:
        table.grant(inode)
    large = sys.getsizeof(table._by_number)
    for inode in inodes[:14_000]:
        table.forget(inode.ino, 1)
    assert not table.has_shrunk
    for inode in inodes[14_000:]:
        table.forget(inode.ino, 1)
    assert table.has_shrunk
    assert sys.getsizeof(table._by_number) < large / 3
    table.check_invariants()


def test_finding_what_the_kernel_knows() -> None:
    """A directory by its key, the root too; and everything whose key starts with one."""
    table = InodeTable("p/")
    directory = intern(table, ("p/d/", None))
    table.grant(directory)
    file = intern(table, ("p/d/f", '"1"'))
    table.grant(file)
    assert [table.find("p/"), table.find("p/d/"), table.find("p/none/")] == [table.root, directory, None]
    assert table.below("p/d") == [directory, file]
    assert table.below("p/x") == []
