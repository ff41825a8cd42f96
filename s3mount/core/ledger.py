"""What the takeover record has of the inodes: which must be in it, and what a successor makes of it.

In it are the directories the kernel may know and the files that are open.  Each has a serial, which no other inode
gets, here or in a successor; a handle's number has it, so that whoever gets a handle it never gave out finds the inode.

What is inherited stays until the kernel says that it let go.  How many references it had is not known: a
FORGET that the predecessor read is not sent again, and what it granted in an answer that was lost never
counted.  But the kernel drops an inode all at once, with every reference it has.  So what is inherited ends with a
FORGET of more references than were granted here; of a directory, of which it may have had none, with as many.
Handles of a file's predecessor end then at the latest: the kernel keeps an open file's inode.  Until then the file
counts as open, whatever RELEASE says, because one that was half done comes again.

INVARIANT: when a verb returns, the record has every directory that was granted and every file that has a handle.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from s3mount.core.attrs import ObjectStat
from s3mount.core.journal import NOWHERE, Area, Journal, JournalStatistics, newest
from s3mount.core.takeover import ROOT_SERIAL, Heading, RecordedInode, greatest_serial, read_inodes, recorded_key

#: Serials that are passed over when a record is refused, whose own are not all known: the kernel may still have handles
#: of its open files, which must never read another.
_UNREAD = 1 << 32


class Recorded(Protocol):
    """What is needed of an inode."""

    ino: int
    key: str
    found: ObjectStat | None
    lookups: int
    handles: int
    serial: int
    place: int
    is_inherited: bool
    is_unsaved: bool
    is_lost: bool
    is_orphan: bool


@dataclass(frozen=True)
class LedgerStatistics:
    """Attributes: daemons before this one, inodes still inherited, and the journal's counters if there is one."""

    takeovers: int
    inherited: int
    journal: JournalStatistics | None


class Ledger:
    """Notes for a successor, if there is to be one.

    Args:
        journal: where they go; None for nowhere.
        inherited: what the predecessor left.
        refusal: why nothing is inherited though there was a record.
    """

    def __init__(
        self, journal: Journal | None = None, inherited: Sequence[RecordedInode] = (), refusal: str = ""
    ) -> None:
        self.inherited = inherited
        self.refusal = refusal
        self._journal = journal
        self._by_number: Callable[[int], Recorded]
        self._by_serial: dict[int, Recorded] = {}
        self._serials = count((ROOT_SERIAL if journal is None else journal.heading.serial) + 1)

    def open(self, by_number: Callable[[int], Recorded], root: Recorded) -> None:
        """Write down what is inherited; from now on there is a valid record.

        Args:
            by_number: gives what is inherited, and later whatever was added.
        """
        self._by_number = by_number
        if self._journal is None:
            return
        if self.takeovers:
            self._by_serial[ROOT_SERIAL] = root
        for each in self.inherited:
            inode = self._by_serial[each.serial] = by_number(each.ino)
            inode.place = self._journal.add(each)
        self.inherited = ()
        self._journal.commit()

    @property
    def takeovers(self) -> int:
        """Daemons that served the mount before this one."""
        return 0 if self._journal is None else self._journal.heading.takeovers

    def number_of(self, serial: int) -> int | None:
        """The number of an inode that a predecessor gave handles out on, as long as the kernel may have it."""
        inode = self._by_serial.get(serial)
        return None if inode is None else inode.ino

    def add(self, inode: Recorded) -> None:
        """The kernel may know a directory from now on, or a file is open of which there is no entry."""
        if not inode.serial:
            inode.serial = next(self._serials)
        if self._journal is not None:
            inode.place = self._journal.add(
                RecordedInode(inode.ino, inode.serial, _key(inode), inode.found, inode.is_unsaved)
            )
            if self._journal.is_bloated:
                self._journal.compact(self._moved)

    def _moved(self, ino: int, place: int) -> None:
        self._by_number(ino).place = place

    def opened(self, inode: Recorded) -> None:
        """A file has its first handle."""
        if not inode.serial or self._journal is None or not self._journal.revive(inode.place):
            self.add(inode)

    def changed(self, inode: Recorded) -> None:
        """It has another key or version now, or is nameless; the record has that, too, if it has the inode at all."""
        if self._journal is not None and inode.serial:
            self._journal.end(inode.place)
            inode.place = NOWHERE  # what was written down of it holds no more, also when it is opened again
            if inode.found is None or inode.handles:
                self.add(inode)

    def mark(self, inode: Recorded, *, is_unsaved: bool) -> None:
        """A file that is open has content that is lost with this daemon, or has none; what is lost stays so."""
        inode.is_unsaved = is_unsaved or inode.is_lost
        if self._journal is not None:
            self._journal.mark(inode.place, is_unsaved=inode.is_unsaved)

    def ended(self, inode: Recorded) -> None:
        """A file has no handle any more, or the kernel does not know a directory."""
        if self._journal is not None:
            self._journal.end(inode.place)

    def forgotten(self, inode: Recorded, n_lookups: int) -> None:
        """The kernel let go of references to something inherited; the caller counts those it granted."""
        is_file = inode.found is not None
        if n_lookups >= inode.lookups + is_file:
            inode.is_inherited = inode.is_lost = inode.is_unsaved = False
            inode.handles -= is_file
            del self._by_serial[inode.serial]

    def statistics(self) -> LedgerStatistics:
        """A snapshot of the counters."""
        journal = None if self._journal is None else self._journal.statistics()
        return LedgerStatistics(self.takeovers, len(self._by_serial), journal)

    def check_invariants(self, inodes: Iterable[Recorded]) -> None:
        """Raises ValueError when the record has not exactly the directories and the open files.

        Args:
            inodes: all but the root.
        """
        if self._journal is None:
            return
        self._journal.check_invariants()
        held = [inode for inode in inodes if inode.found is None or inode.handles]
        expected = {inode.serial: (inode.ino, _key(inode), inode.found and inode.found.id) for inode in held}
        recorded = self._journal.inodes()
        if {each.serial: (each.ino, each.key, each.found and each.found.id) for each in recorded} != expected:
            raise ValueError(f"the record has {recorded}, and should have {held}")
        if len(recorded) != len(expected):
            raise ValueError("an inode is in the record twice")


def _key(inode: Recorded) -> str:
    return recorded_key(inode.key, is_nameless=inode.is_orphan and inode.found is None)


def succeed(areas: tuple[Area, Area], identity: str) -> Ledger:
    """The ledger of a daemon that finds what its predecessor left, if there was one.

    Args:
        identity: what is mounted, as `Heading` has it; a record of something else is refused.
    """
    found = newest(areas)
    if found is None:
        return Ledger(Journal(areas, Heading(1, 0, identity)))
    left, record = found
    try:
        inherited, refusal = read_inodes(record), ""
    except ValueError as error:
        inherited, refusal = [], str(error)
    if left.identity != identity:
        inherited, refusal = [], f"it is of {left.identity}, and this is {identity}"
    serial = greatest_serial(record) + (_UNREAD if refusal else 0)
    heading = Heading(left.generation + 1, left.takeovers + 1, identity, serial)
    return Ledger(Journal(areas, heading), inherited, refusal)
