"""What an object is, and what a file's attributes are made of.

Identity of content is (key, ETag) everywhere (decision 3): a read that mixes two versions
cannot be written down, because nothing above the store can ask for a key without a version.

Times are whole seconds from one source, the listing: LIST has milliseconds and HEAD seconds,
and a kernel that sees both drops its page cache (measured).
"""

import stat
from dataclasses import dataclass
from typing import NamedTuple

from s3mount.core.symlinks import is_link_key
from s3mount.units import KIB

#: S3 User Guide, "Storage classes": not readable before a restore.  Intelligent-Tiering's
#: archive tiers cannot be told from a listing; reading them fails with InvalidObjectState.
ARCHIVE_CLASSES = frozenset({"GLACIER", "DEEP_ARCHIVE"})

#: The unit programs choose their buffers by; 128 KiB is the kernel's largest default read-ahead.
BLOCK_SIZE = 128 * KIB

#: stat(2): st_blocks counts 512-byte units whatever the block size is.
_STAT_BLOCK = 512


class ObjectId(NamedTuple):
    """One version of one object.  `etag` is as S3 sent it, quotes included; may be empty."""

    key: str
    etag: str


class ObjectStat(NamedTuple):
    """What a LIST or HEAD tells about one object.  A tuple, because a listing makes a thousand a page.

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
    def kept_class(self) -> str:
        """Storage class of what is made of it: its own, unless nobody could read that."""
        return "" if self.storage_class in ARCHIVE_CLASSES else self.storage_class

    @property
    def is_archived(self) -> bool:
        """Whether a GET would be refused until somebody restores the object."""
        return self.storage_class in ARCHIVE_CLASSES and not self.restored


@dataclass(frozen=True)
class Ownership:
    """What every entry of the mount shows, because S3 has none of its own.

    Attributes:
        directory_mtime_s: whole seconds since the epoch; when the mount was made.
    """

    uid: int
    gid: int
    file_mode: int = 0o644
    dir_mode: int = 0o755
    directory_mtime_s: int = 0


class FileAttrs(NamedTuple):
    """The attributes of one inode, free of any FUSE type.

    Attributes:
        ttl_s: for how long the kernel may go on using them without asking.
        is_name_kept: for as long it may use the name, too; else it looks the name up each time.
        is_whole: else S3 was not asked for all of them, and the kernel asks for them each time.
    """

    ino: int
    mode: int
    size: int
    mtime_s: int
    nlink: int
    uid: int
    gid: int
    ttl_s: float
    is_name_kept: bool = True
    is_whole: bool = True

    @property
    def blocks(self) -> int:
        """Allocated 512-byte units, as st_blocks counts."""
        return -(-self.size // _STAT_BLOCK)


def file_attrs(ino: int, found: ObjectStat, owner: Ownership, ttl_s: float) -> FileAttrs:
    """A regular file, or a symbolic link; an archived object shows mode 0000, because nobody can read it."""
    mode = 0 if found.is_archived else owner.file_mode
    kind = stat.S_IFLNK | 0o777 if is_link_key(found.key) else stat.S_IFREG | mode
    return FileAttrs(ino, kind, found.size, found.mtime_s, 1, owner.uid, owner.gid, ttl_s)


def directory_attrs(ino: int, owner: Ownership, ttl_s: float) -> FileAttrs:
    """A directory; S3 gives it no time of its own."""
    return FileAttrs(ino, stat.S_IFDIR | owner.dir_mode, 0, owner.directory_mtime_s, 2, owner.uid, owner.gid, ttl_s)


def absent_attrs(ttl_s: float) -> FileAttrs:
    """No inode: what the kernel takes for "nothing has this name", and keeps for that time."""
    return FileAttrs(0, 0, 0, 0, 0, 0, 0, ttl_s)


def permits(attrs: FileAttrs, wanted: int, uid: int, gid: int) -> bool:
    """Whether access(2) says yes; the rules of POSIX, "File Access Permissions".

    Args:
        wanted: R_OK (4), W_OK (2) and X_OK (1) together; 0 asks only whether it exists.
        gid: the caller's primary group; FUSE does not tell the others.
    """
    mode = stat.S_IMODE(attrs.mode)
    if uid == 0:
        is_executable = stat.S_ISDIR(attrs.mode) or bool(mode & 0o111)
        return is_executable or not wanted & 1
    shift = 6 if uid == attrs.uid else 3 if gid == attrs.gid else 0
    return wanted & ~(mode >> shift) & 0o7 == 0
