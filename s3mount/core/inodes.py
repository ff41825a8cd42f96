"""Inode numbers, lookup counts, forget.

* A number is a 64-bit hash of what the inode stands for: (key, ETag) of a file, the key of a
  directory.  A restarted daemon finds the same number without any record (decision 3).  On a
  collision the next probe of the same hash is taken.  Never 0 (the kernel's negative entry) or
  1 (the root).
* A new version of an object is a new inode, so the kernel's page cache cannot mix versions.  But for what this mount
  writes: the kernel wrote the same bytes to its cache, and programs compare lock files by number.  Such an inode is
  found by its key, in front of the hash.
* The kernel counts its references: `grant` when it took an entry, `forget` when it lets go.
  A handle pins an inode too.  At zero of both the inode is gone.
* What a predecessor left (`core.ledger`) is there from the start; the kernel's references to it were not
  counted here.

INVARIANT: no inode in the table is without a lookup or a handle when the file system awaits, the root and what is
inherited excepted.
"""

import math
from dataclasses import dataclass
from itertools import count

from s3mount.core.attrs import ObjectStat
from s3mount.core.inode import Inode, inode_number, stands_for
from s3mount.core.keys import is_directory_key
from s3mount.core.ledger import Ledger
from s3mount.core.takeover import ROOT_SERIAL, key_of
from s3mount.errors import StaleInode

ROOT = 1
_RESERVED = (0, ROOT)
#: Inodes; a table of fewer is not worth copying.
_WORTH_REBUILDING = 10_000


@dataclass(frozen=True)
class InodeStatistics:
    """Attributes: inodes known, references the kernel took, handles open; of what is inherited only what came since."""

    inodes: int
    lookups: int
    handles: int


class InodeTable:
    """Every inode the kernel may ask about.

    Args:
        root_key: the prefix of the mount, empty or ending in `/`.
        ledger: what it inherits, and notes for a successor.

    Attributes:
        has_shrunk: most inodes went at once since the caller set this to False.
    """

    def __init__(self, root_key: str, ledger: Ledger | None = None) -> None:
        self.root = Inode(ROOT, root_key, None, serial=ROOT_SERIAL)
        self.ledger = Ledger() if ledger is None else ledger
        self._by_number: dict[int, Inode] = {ROOT: self.root}
        self._rewritten: dict[str, Inode] = {}  # by key, those whose number is the hash of something else
        for each in self.ledger.inherited:
            (ino, serial, _, found, is_lost), (key, is_orphan) = each, key_of(each)
            inode = Inode(ino, key, found, handles=int(found is not None), serial=serial, is_inherited=True)
            inode.is_lost = inode.is_unsaved = is_lost
            inode.is_orphan = is_orphan
            self._by_number[ino] = inode
            if inode_number(key, found.etag if found else "") != ino and not is_orphan:
                self._rewritten[key] = inode
        self.ledger.open(self.get, self.root)
        self._largest = 0
        self.has_shrunk = False

    def get(self, ino: int) -> Inode:
        """The inode of a number the kernel holds.

        Raises:
            StaleInode: nothing is known under that number (after a restart, for example).
        """
        try:
            return self._by_number[ino]
        except KeyError:
            raise StaleInode(f"inode {ino} is not known to this daemon") from None

    def intern(self, key: str, found: ObjectStat | None) -> Inode:
        """The inode of a key's current version, made when it is new.

        The caller grants it, opens it, or hands it back to `discard_if_unused` before it
        awaits anything.
        """
        if found is None and key == self.root.key:
            return self.root
        inode = self._rewritten.get(key)
        if inode is not None and stands_for(inode, key, found):
            inode.found, inode.is_gone = found, False
            return inode
        number = inode_number(key, found.etag if found else "")
        inode = self._by_number.get(number)
        if number in _RESERVED or (inode is not None and not stands_for(inode, key, found)):
            number = self._next_number(key, found)
            inode = self._by_number.get(number)
        if inode is None:
            name = found.key if found is not None and found.key == key else key  # the same, and kept once
            inode = self._by_number[number] = Inode(number, name, found)
            self._largest = max(self._largest, len(self._by_number))
        elif found is not None:
            inode.found = found  # same version; its restore status may have changed
            inode.is_gone = False
        return inode

    def peek(self, key: str, found: ObjectStat | None) -> Inode | None:
        """As `intern`, of one that is there."""
        for holder in self._rewritten.get(key), self._by_number.get(inode_number(key, found.etag if found else "")):
            if holder is not None and stands_for(holder, key, found):
                return holder
        return self._by_number.get(self._next_number(key, found))

    def _next_number(self, key: str, found: ObjectStat | None) -> int:
        """The first of a key's further numbers that is its own or free."""
        for probe in count(1):
            number = inode_number(key, found.etag if found else "", probe)
            holder = self._by_number.get(number)
            if number not in _RESERVED and (holder is None or stands_for(holder, key, found)):
                break
        return number

    def rewrite(self, inode: Inode, key: str, found: ObjectStat | None) -> None:
        """This mount wrote it, or gave it another name: it stands for that from now on, under its own number.

        The caller made an orphan of the inode that had the key, if there was another.
        """
        if inode.key != key or (inode.found and inode.found.etag) != (found and found.etag):
            self._forget_rewritten(inode)
            inode.key = key
            self._rewritten[key] = inode
            inode.asked_at = inode.vouched_until = -math.inf
            inode.agreed_at = -1
            if inode.stored is not None and found is not None:  # what this mount makes of it keeps its metadata
                inode.stored = inode.stored._replace(etag=found.etag, is_settled=False)
            inode.found = found
            self.ledger.changed(inode)
        inode.found, inode.is_gone = found, False

    def orphan(self, inode: Inode) -> None:
        """Its name is gone, or another inode's; what holds it goes on with what it is."""
        self._forget_rewritten(inode)
        inode.is_orphan = True
        if inode.is_directory:  # to the kernel it is dead: a successor must not give its number to another
            self.ledger.changed(inode)

    def _forget_rewritten(self, inode: Inode) -> None:
        if self._rewritten.get(inode.key) is inode:
            del self._rewritten[inode.key]

    def grant(self, inode: Inode) -> None:
        """The kernel took one more reference."""
        inode.lookups += 1
        if inode.serial == 0 and inode.found is None:
            self.ledger.add(inode)

    def forget(self, ino: int, n_lookups: int) -> None:
        """The kernel let go of references; a number we do not know is not an error."""
        inode = self._by_number.get(ino)
        if inode is not None:
            if inode.is_inherited:
                self.ledger.forgotten(inode, n_lookups)
            inode.lookups = max(0, inode.lookups - n_lookups)
            self.discard_if_unused(inode)

    def opened(self, inode: Inode) -> None:
        """One more handle."""
        inode.handles += 1
        if inode.handles == 1:
            self.ledger.opened(inode)

    def closed(self, inode: Inode) -> None:
        """One handle less."""
        inode.handles -= 1
        if inode.handles == 0:
            self.ledger.ended(inode)
            self.discard_if_unused(inode)

    def discard_if_unused(self, inode: Inode) -> None:
        """Drop an inode that neither the kernel nor a handle refers to."""
        if inode.lookups == 0 and inode.handles == 0 and not inode.is_inherited and inode is not self.root:
            self._by_number.pop(inode.ino, None)
            self._forget_rewritten(inode)
            self.ledger.ended(inode)
            if self._largest > _WORTH_REBUILDING and len(self._by_number) < self._largest // 4:
                self._by_number = dict(self._by_number)  # a dict never gives room back by itself
                self._largest = len(self._by_number)
                self.has_shrunk = True

    def inherited(self, serial: int) -> Inode | None:
        """What a predecessor gave a handle out on, as long as the kernel may have it."""
        ino = self.ledger.number_of(serial)
        return None if ino is None else self._by_number[ino]

    def find(self, key: str) -> Inode | None:
        """The inode of a directory, if the kernel knows it."""
        if key == self.root.key:
            return self.root
        rewritten = self._rewritten.get(key)
        if rewritten is not None:
            return rewritten
        inode = self._by_number.get(inode_number(key, ""))
        if inode is not None and not stands_for(inode, key, None):
            inode = self._by_number.get(self._next_number(key, None))
        return inode

    def below(self, key: str) -> list[Inode]:
        """Every inode whose key starts with a key, in no order; takes time in proportion to all there are."""
        return [inode for inode in self._by_number.values() if inode.key.startswith(key)]

    def statistics(self) -> InodeStatistics:
        """A snapshot of the counters."""
        inodes = self._by_number.values()
        n_handles = sum(i.handles - (i.is_inherited and not i.is_directory) for i in inodes)
        return InodeStatistics(len(inodes), sum(i.lookups for i in inodes), n_handles)

    def check_invariants(self) -> None:
        """Raises ValueError when an inode is held by nobody, or filed under a wrong number."""
        for number, inode in self._by_number.items():
            if inode.ino != number or number == 0:
                raise ValueError(f"inode {inode.ino} is filed under {number}")
            if inode.lookups < 0 or inode.handles < 0:
                raise ValueError(f"inode {number} has a negative count")
            is_held = inode.lookups or inode.handles or inode.is_inherited
            if inode is not self.root and not is_held:
                raise ValueError(f"inode {number} ({inode.key!r}) is held by nobody")
            if inode.found is None and not is_directory_key(inode.key):
                raise ValueError(f"directory inode {number} has the file key {inode.key!r}")
        for key, inode in self._rewritten.items():
            if inode.key != key or inode.is_orphan or self._by_number.get(inode.ino) is not inode:
                raise ValueError(f"inode {inode.ino} is filed under {key!r} and is not its inode")
        self.ledger.check_invariants(inode for inode in self._by_number.values() if inode is not self.root)
