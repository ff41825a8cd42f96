"""One name that was removed, and what is counted of all of them (fs.removals)."""

from dataclasses import dataclass

from s3mount.core.inode import Inode


@dataclass(frozen=True)
class RemovalStatistics:
    """Names that wait, of which for readers; requests sent, names removed and refused since the start."""

    waiting: int
    held: int
    batches: int
    removed: int
    refused: int


@dataclass(eq=False)
class Removal:
    """A name, and the object that is to go.

    Attributes:
        inode: that somebody may have open.
        etag: of the version that is to go, if it is long until then; else any goes.
        is_alone: the directory it was in is gone, too.
        is_kept: another version is there, and stays.
    """

    path: str
    key: str
    inode: Inode | None
    etag: str
    held_until: float
    is_alone: bool = False
    is_kept: bool = False
