"""How a mount is written to, as its switches say."""

from dataclasses import dataclass
from pathlib import Path

from s3mount.fs.object_headers import ObjectHeaders
from s3mount.fs.stored_attributes import PosixConfig
from s3mount.fs.write_policy import WritePolicy
from s3mount.store.write_config import WriteConfig


@dataclass(frozen=True)
class WritingConfig:
    """How a mount is written to.

    Attributes:
        part_size: bytes of the first parts of an upload.
        objects: what S3 is told of each.
        spool: directory for what cannot be streamed.
        keeps_streamed: parts that were sent go there, too.
        has_markers: directories that are made have an object.
        rename_dir_limit: objects of the largest directory that is renamed.
        appends: what is only appended is sent alone, by a bucket that can do that.
        aborts_uploads: those that dead daemons left are aborted at the start.
        posix: modes, owners and times are kept in metadata, and these are read; None where they are not.
    """

    policy: WritePolicy
    part_size: int
    objects: WriteConfig
    headers: ObjectHeaders
    spool: Path
    keeps_streamed: bool = True
    has_markers: bool = True
    rename_dir_limit: int = 100_000
    appends: bool = False
    aborts_uploads: bool = False
    posix: PosixConfig | None = None
