"""One inode: a file version or a directory, and the number it gets.

A number is a 64-bit hash of what the inode stands for when it is first seen.  What this mount writes keeps the
number it had: programs compare lock files by it.
"""

import math
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple, Protocol

from s3mount.core.attrs import ObjectStat
from s3mount.core.journal import NOWHERE
from s3mount.core.posix import Posix
from s3mount.core.ranges import ByteRange
from s3mount.core.readahead import SMALL_FILE
from s3mount.core.windows import HEAD
from s3mount.units import KIB

_EMPTY = blake2b(digest_size=8)
#: An open fetches nothing beyond it.
_OPENED = max(SMALL_FILE, HEAD)
#: What the kernel asks for, and keeps, whole.
_PAGE = 4 * KIB


class Stored(NamedTuple):
    """What an object's metadata said of the file.

    Attributes:
        etag, modified_s: of the version, which is changed by who changes its metadata: the ETag may be, the time
            of the change is, in whole seconds.
        asked_at: when S3 said so, on the cache's timer.
        is_settled: that was so long after the change that any other has another time.
        is_proven: S3 said that this is the version.
    """

    posix: Posix
    etag: str
    modified_s: int
    asked_at: float
    is_settled: bool
    is_proven: bool = True


class Unsaved(Protocol):
    """Content that is read as it was written."""

    async def read(self, offset: int, length: int) -> bytes:
        """Bytes at an offset; fewer at the end."""
        ...


@dataclass(slots=True, eq=False)
class Inode:
    """One file version or one directory that the kernel may know.

    Attributes:
        key: the full object key; a directory's ends in `/` (the root's may be empty).
        found: the object, or None for a directory.
        delivered: pages the kernel got since it knows this inode, and so holds in its page
            cache unless it dropped them; what `open` need not fetch again.  One bit for each page of what an open may
            fetch, so that a name costs no more for having been read, however it was.
        is_gone: S3 said that the key no longer has this version.
        is_orphan: this mount took its name away, or gave it to another; what holds it goes on with what it is.
        asked_at: when S3 last said that the name has this version, on the cache's timer.
        vouched_until: an open before that time, on the cache's timer, need not ask S3 (fs.versions).
        is_doubtful: a look-up answered with an expired record, and nothing was asked since.
        unsaved: what is being written to it, and S3 does not have.
        serial: names it in its handles; 0 until it needs one.
        place: of its entry in the takeover record.
        is_inherited: the kernel may have more references than `lookups`, and, of a file, handles that only a
            predecessor knew: those count as one of `handles`.
        is_unsaved: what programs wrote is in this process alone.
        is_lost: it went with a predecessor, whose handles the kernel may have.
        agreed_at, agreed_until: the state of the cache in which its record was of this version, and how long
            that record is good.
        stored: None where it was not asked for.
    """

    ino: int
    key: str
    found: ObjectStat | None
    lookups: int = 0
    handles: int = 0
    delivered: int = 0
    is_gone: bool = False
    is_orphan: bool = False
    asked_at: float = -math.inf
    vouched_until: float = -math.inf
    is_doubtful: bool = False
    unsaved: Unsaved | None = None
    serial: int = 0
    place: int = NOWHERE
    is_inherited: bool = False
    is_unsaved: bool = False
    is_lost: bool = False
    agreed_at: int = -1
    agreed_until: float = -math.inf
    stored: Stored | None = None

    @property
    def is_directory(self) -> bool:
        """Whether it has no object of its own."""
        return self.found is None

    def deliver(self, content: ByteRange) -> None:
        """The kernel got these bytes; a page counts when all of it came at once, or up to the end of the file."""
        start, stop = content
        if start < _OPENED and self.found is not None:
            last = -(-stop // _PAGE) if stop == self.found.size else stop // _PAGE
            self.delivered |= _pages(-(-start // _PAGE), min(last, _OPENED // _PAGE))

    def was_delivered(self, content: ByteRange) -> bool:
        """Whether the kernel got all of these bytes; of more than an open may fetch it is not known."""
        start, stop = content
        if start == stop:
            return True
        wanted = _pages(start // _PAGE, -(-stop // _PAGE))
        return self.delivered & wanted == wanted


def _pages(first: int, stop: int) -> int:
    """The bits of pages first, first + 1, …, stop - 1."""
    return (1 << stop) - (1 << first) if first < stop else 0


def inode_number(key: str, etag: str, probe: int = 0) -> int:
    """64 bits of BLAKE2b over the length-prefixed parts, so that no two identities concatenate alike."""
    digest = _EMPTY.copy()  # half the time of a new one
    digest.update(f"{len(key)}:{key}:{probe}:{etag}".encode("utf-8", "surrogatepass"))
    return int.from_bytes(digest.digest(), "little")


def stands_for(holder: Inode, key: str, found: ObjectStat | None) -> bool:
    """Whether an inode is that of a key's version; any that has the key, where either version is not said."""
    if holder.key != key or holder.is_directory != (found is None) or holder.is_orphan:
        return False
    return holder.found is None or found is None or holder.found.etag == found.etag
