"""What the file system counts, of all its parts together."""

from dataclasses import dataclass

from s3mount.cache.metadata import MetadataStatistics
from s3mount.core.inodes import InodeStatistics
from s3mount.core.ledger import LedgerStatistics
from s3mount.core.waits import WaitSeconds
from s3mount.fs.directories import DirectoryStatistics
from s3mount.fs.resolver import ResolverStatistics
from s3mount.fs.shelf import BlockStatistics


@dataclass(frozen=True)
class FileSystemStatistics:
    """A snapshot of every part, for logs and tests.

    Attributes:
        reader_wait_seconds: how long programs waited, and for what; they count, not requests.
    """

    inodes: InodeStatistics
    metadata: MetadataStatistics
    resolver: ResolverStatistics
    directories: DirectoryStatistics
    blocks: BlockStatistics
    open_files: int
    takeover: LedgerStatistics
    reader_wait_seconds: WaitSeconds


@dataclass
class WarmCounts:
    """Of one run of `fs.warming`; bytes are of content.

    Attributes:
        files, n_bytes: selected so far; all of them when `is_listed`.
        done_files, done_bytes: on disk now; cached_files, cached_bytes: of these, before the run.
        failed: files and paths that are not, and were told.
        left_out: files for which the cache has no room.
    """

    files: int = 0
    n_bytes: int = 0
    is_listed: bool = False
    done_files: int = 0
    done_bytes: int = 0
    cached_files: int = 0
    cached_bytes: int = 0
    failed: int = 0
    left_out: int = 0
