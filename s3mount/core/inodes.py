"""Inode numbers, lookup counts, forget.

* A number is a 64-bit hash of what the inode stands for: (key, ETag) of a file, the key of a
  directory.  A restarted daemon finds the same number without any record (decision 3).  On a
  collision the next probe of the same hash is taken.  Never 0 (the kernel's negative entry) or
  1 (the root).
* A new version of an object is a new inode, so the kernel's page cache cannot mix versions.
* The kernel counts its references: `grant` when it took an entry, `forget` when it lets go.
  A handle pins an inode too.  At zero of both the inode is gone.

INVARIANT: no inode in the table is without a lookup or a handle when the file system awaits, the root
excepted.
"""

from dataclasses import dataclass, field
from hashlib import blake2b

from s3mount.core.attrs import ObjectStat
from s3mount.core.keys import is_directory_key
from s3mount.core.ranges import Coverage
from s3mount.errors import StaleInode

ROOT = 1
_RESERVED = (0, ROOT)


@dataclass(slots=True, eq=False)
class Inode:
    """One file version or one directory that the kernel may know.

    Attributes:
        key: the full object key; a directory's ends in `/` (the root's may be empty).
        found: the object, or None for a directory.
        delivered: bytes the kernel got since it knows this inode, and so holds in its page
            cache unless it dropped them; what `open` need not fetch again.
        is_gone: S3 said that the key no longer has this version.
    """

    ino: int
    key: str
    found: ObjectStat | None
    lookups: int = 0
    handles: int = 0
    delivered: Coverage = field(default_factory=Coverage)
    is_gone: bool = False

    @property
    def is_directory(self) -> bool:
        """Whether it has no object of its own."""
        return self.found is None


@dataclass(frozen=True)
class InodeStatistics:
    """Attributes: inodes known, references the kernel holds, handles open."""

    inodes: int
    lookups: int
    handles: int


class InodeTable:
    """Every inode the kernel may ask about.

    Args:
        root_key: the prefix of the mount, empty or ending in `/`.
    """

    def __init__(self, root_key: str) -> None:
        self.root = Inode(ROOT, root_key, None)
        self._by_number: dict[int, Inode] = {ROOT: self.root}

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
        number = self._number_for(key, found)
        inode = self._by_number.get(number)
        if inode is None:
            inode = self._by_number[number] = Inode(number, key, found)
        elif found is not None:
            inode.found = found  # same version; its restore status may have changed
            inode.is_gone = False
        return inode

    def _number_for(self, key: str, found: ObjectStat | None) -> int:
        probe = 0
        while True:
            number = inode_number(key, found.etag if found else "", probe)
            holder = self._by_number.get(number)
            if number not in _RESERVED and (holder is None or _stands_for(holder, key, found)):
                return number
            probe += 1

    def grant(self, inode: Inode) -> None:
        """The kernel took one more reference."""
        inode.lookups += 1

    def forget(self, ino: int, n_lookups: int) -> None:
        """The kernel let go of references; a number we do not know is not an error."""
        inode = self._by_number.get(ino)
        if inode is not None:
            inode.lookups = max(0, inode.lookups - n_lookups)
            self.discard_if_unused(inode)

    def opened(self, inode: Inode) -> None:
        """One more handle."""
        inode.handles += 1

    def closed(self, inode: Inode) -> None:
        """One handle less."""
        inode.handles -= 1
        self.discard_if_unused(inode)

    def discard_if_unused(self, inode: Inode) -> None:
        """Drop an inode that neither the kernel nor a handle refers to."""
        if inode is not self.root and inode.lookups == 0 and inode.handles == 0:
            self._by_number.pop(inode.ino, None)

    def statistics(self) -> InodeStatistics:
        """A snapshot of the counters."""
        inodes = self._by_number.values()
        return InodeStatistics(len(inodes), sum(i.lookups for i in inodes), sum(i.handles for i in inodes))

    def check_invariants(self) -> None:
        """Raises ValueError when an inode is held by nobody, or filed under a wrong number."""
        for number, inode in self._by_number.items():
            if inode.ino != number or number == 0:
                raise ValueError(f"inode {inode.ino} is filed under {number}")
            if inode.lookups < 0 or inode.handles < 0:
                raise ValueError(f"inode {number} has a negative count")
            if inode is not self.root and inode.lookups == 0 and inode.handles == 0:
                raise ValueError(f"inode {number} ({inode.key!r}) is held by nobody")
            if inode.found is None and not is_directory_key(inode.key):
                raise ValueError(f"directory inode {number} has the file key {inode.key!r}")


def inode_number(key: str, etag: str, probe: int = 0) -> int:
    """64 bits of BLAKE2b over the length-prefixed parts, so that no two identities concatenate alike."""
    raw_key = key.encode("utf-8", "surrogatepass")
    material = b"%d:%s:%d:%s" % (len(raw_key), raw_key, probe, etag.encode("utf-8", "surrogatepass"))
    return int.from_bytes(blake2b(material, digest_size=8).digest(), "little")


def _stands_for(holder: Inode, key: str, found: ObjectStat | None) -> bool:
    if holder.key != key or holder.is_directory != (found is None):
        return False
    return holder.found is None or found is None or holder.found.etag == found.etag
