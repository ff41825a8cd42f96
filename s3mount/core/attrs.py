"""What an object is, and what a file's attributes are made of.

Identity of content is (key, ETag) everywhere (decision 3): a read that mixes two versions
cannot be written down, because nothing above the store can ask for a key without a version.

Times are whole seconds from one source, the listing: LIST has milliseconds and HEAD seconds,
and a kernel that sees both drops its page cache (measured).
"""

import stat
from dataclasses import dataclass
from typing import NamedTuple

from s3mount.units import KIB

#: S3 User Guide, "Storage classes": not readable before a restore.  Intelligent-Tiering's
#: archive tiers cannot be told from a listing; reading them fails with InvalidObjectState.
ARCHIVE_CLASSES = frozenset({"GLACIER", "DEEP_ARCHIVE"})

#: stat(2): st_blocks counts 512-byte units whatever the block size is.
_STAT_BLOCK = 512


class ObjectId(NamedTuple):
    """One version of one object.  `etag` is as S3 sent it, quotes included; may be empty."""

    key: str
    etag: str


@dataclass(frozen=True, slots=True)
class ObjectStat:
    """What a LIST or HEAD tells about one object.

    Attributes:
        size: bytes.
        mtime_s: Last-Modified, whole seconds since the epoch.
        storage_class: S3's name; empty means STANDARD.
        restored: an archived object has a readable copy now.
    """

    key: str
    etag: str
    size: int
    mtime_s: int
    storage_class: str = ""
    restored: bool = False

    @property
    def id(self) -> ObjectId:
        """Key and version, the identity of the content."""
        return ObjectId(self.key, self.etag)

    @property
    def is_archived(self) -> bool:
        """Whether a GET would be refused until somebody restores the object."""
        return self.storage_class in ARCHIVE_CLASSES and not self.restored


@dataclass(frozen=True)
class Ownership:
    """Mode bits and owner that every entry of the mount shows; S3 has none of its own."""

    uid: int
    gid: int
    file_mode: int = 0o644
    dir_mode: int = 0o755


@dataclass(frozen=True, slots=True)
class FileAttrs:
    """The attributes of one inode, free of any FUSE type.

    Attributes:
        ttl_s: for how long the kernel may go on using them, and the name, without asking.
    """

    ino: int
    mode: int
    size: int
    mtime_s: int
    nlink: int
    uid: int
    gid: int
    ttl_s: float

    #: The unit programs choose their buffers by; 128 KiB is the kernel's largest default read-ahead.
    BLOCK_SIZE = 128 * KIB

    @property
    def blocks(self) -> int:
        """Allocated 512-byte units, as st_blocks counts."""
        return -(-self.size // _STAT_BLOCK)


def file_attrs(ino: int, found: ObjectStat, owner: Ownership, ttl_s: float) -> FileAttrs:
    """A regular file; an archived object shows mode 0000, because nobody can read it."""
    mode = 0 if found.is_archived else owner.file_mode
    return FileAttrs(ino, stat.S_IFREG | mode, found.size, found.mtime_s, 1, owner.uid, owner.gid, ttl_s)


def directory_attrs(ino: int, mtime_s: int, owner: Ownership, ttl_s: float) -> FileAttrs:
    """A directory; S3 gives it no time, so it shows when the mount was made."""
    return FileAttrs(ino, stat.S_IFDIR | owner.dir_mode, 0, mtime_s, 2, owner.uid, owner.gid, ttl_s)


def absent_attrs(ttl_s: float) -> FileAttrs:
    """No inode: what the kernel takes for "nothing has this name", and keeps for that time."""
    return FileAttrs(0, 0, 0, 0, 0, 0, 0, ttl_s)
