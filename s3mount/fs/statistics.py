"""What the file system counts, of all its parts together."""

from dataclasses import dataclass

from s3mount.cache.metadata import MetadataStatistics
from s3mount.core.inodes import InodeStatistics
from s3mount.core.ledger import LedgerStatistics
from s3mount.core.waits import WaitSeconds
from s3mount.fs.blocks import BlockStatistics
from s3mount.fs.directories import DirectoryStatistics
from s3mount.fs.resolver import ResolverStatistics


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
