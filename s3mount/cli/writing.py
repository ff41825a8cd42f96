"""Flags → `WritingConfig`: what may be changed, and how objects are made."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from s3mount.cli.values import size_in
from s3mount.config import MAX_PART_SIZE, MIN_PART_SIZE
from s3mount.errors import BadOption
from s3mount.fs.object_headers import ObjectHeaders
from s3mount.fs.stored_attributes import PosixConfig
from s3mount.fs.write_config import WritingConfig
from s3mount.fs.write_policy import WritePolicy
from s3mount.store.session import S3Config
from s3mount.store.write_config import WriteConfig
from s3mount.units import MIB, format_size

DEFAULT_WRITE_PART_SIZE = 8 * MIB

#: In the order --help shows them.
WRITE_FLAGS = [
    click.option("--read-only", is_flag=True, help="Nothing can be changed; opening files costs a little less."),
    click.option("--rw", is_flag=True, help="Everything can be changed: overwrite, delete, rename, append."),
    click.option("--allow-overwrite", is_flag=True, help="Existing files may be replaced (opened with O_TRUNC)."),
    click.option("--allow-delete", is_flag=True, help="Files and empty directories may be removed."),
    click.option("--incremental-upload", is_flag=True,
                 help="Append to existing files of a directory bucket (S3 Express); only what is new is sent."),
    click.option("--write-part-size", type=size_in(1), metavar="BYTES",
                 help="Size of the first parts of an upload; they grow with it.  [default: 8 MiB]"),
    click.option("--upload-checksums", type=click.Choice(["crc32c", "crc64nvme", "off"]), default="crc32c",
                 show_default=True, help="Checksum that S3 verifies and keeps."),
    click.option("--storage-class", metavar="CLASS", help="Storage class of new objects.  [default: the bucket's]"),
    click.option("--sse", type=click.Choice(["aws:kms", "aws:kms:dsse", "AES256"]),
                 help="Server-side encryption of new objects.  [default: the bucket's]"),
    click.option("--sse-kms-key-id", metavar="KEY", help="KMS key for --sse aws:kms and aws:kms:dsse."),
    click.option("--infer-content-type", is_flag=True, help="Set the content type of new objects by their names."),
    click.option("--spool-dir", type=click.Path(), metavar="DIR",
                 help="Local directory for what cannot be streamed: random writes, appends.  "
                 "[default: in the first --cache, or the state directory]"),
    click.option("--no-spool-streamed", is_flag=True,
                 help="Keep nothing on disk of what is written in order; a patch far behind is EIO then."),
    click.option("--no-dir-markers", is_flag=True, help="Directories that are made have no object until a file is."),
    click.option("--rename-dir-limit", type=click.IntRange(0), default=100_000, show_default=True, metavar="N",
                 help="Objects of the largest directory that may be renamed."),
    click.option("--posix-metadata", is_flag=True,
                 help="Keep mode, owner and time of files in their objects' metadata, and show what is there."),
    click.option("--abort-uploads", is_flag=True,
                 help="Abort at start what daemons of this host that died left of multipart uploads."),
]  # fmt: skip


def writing_config(
    flags: Mapping[str, Any], environ: Mapping[str, str], s3: S3Config, mount_point: str
) -> WritingConfig:
    """What the flags say of writing.

    Raises:
        BadOption: they contradict each other, or cannot be meant.
    """
    switches = [name for name in ("rw", "allow_overwrite", "allow_delete", "incremental_upload") if flags[name]]
    if flags["read_only"] and switches:
        raise BadOption(f"--read-only excludes --{switches[0].replace('_', '-')}")
    if flags["sse_kms_key_id"] and not (flags["sse"] or "").startswith("aws:kms"):
        raise BadOption("--sse-kms-key-id needs --sse aws:kms or aws:kms:dsse")
    if flags["incremental_upload"] and not s3.location.is_directory_bucket:
        raise BadOption(
            f"--incremental-upload: {s3.location.bucket!r} is not a directory bucket (S3 Express One Zone), and no "
            "other can append; --rw appends there, too, by copies"
        )
    part_size = flags["write_part_size"] or DEFAULT_WRITE_PART_SIZE
    if not MIN_PART_SIZE <= part_size <= MAX_PART_SIZE:
        between = f"{format_size(MIN_PART_SIZE)} and {format_size(MAX_PART_SIZE)}"
        raise BadOption(f"--write-part-size must be between {between}")
    return WritingConfig(
        policy=WritePolicy(
            is_read_only=flags["read_only"],
            is_rw=flags["rw"],
            may_overwrite=flags["allow_overwrite"],
            may_delete=flags["allow_delete"],
            may_append=flags["incremental_upload"],
        ),
        part_size=part_size,
        objects=WriteConfig(
            flags["upload_checksums"], flags["storage_class"] or "", flags["sse"] or "", flags["sse_kms_key_id"] or ""
        ),
        headers=ObjectHeaders(flags["infer_content_type"]),
        spool=_spool(flags, environ, s3, mount_point),
        keeps_streamed=not flags["no_spool_streamed"],
        has_markers=not flags["no_dir_markers"],
        rename_dir_limit=flags["rename_dir_limit"],
        appends=flags["incremental_upload"],
        aborts_uploads=flags["abort_uploads"],
        posix=_posix(flags) if flags["posix_metadata"] else None,
    )


def _posix(flags: Mapping[str, Any]) -> PosixConfig:
    """Who says that every file has one owner means it."""
    return PosixConfig(has_uids=flags["uid"] is None, has_gids=flags["gid"] is None)


def _spool(flags: Mapping[str, Any], environ: Mapping[str, str], s3: S3Config, mount_point: str) -> Path:
    """Of this bucket alone; mounts of its prefixes share it (fs.spool)."""
    if flags["spool_dir"]:
        base = Path(os.path.realpath(flags["spool_dir"]))
        if base.is_relative_to(mount_point):
            raise BadOption(f"--spool-dir {flags['spool_dir']}: it lies inside the mount point; choose another")
    elif flags["cache"]:
        base = Path(os.path.realpath(flags["cache"][0])) / "spool"
    else:
        base = state_directory(environ) / "spool"
    return base / hashlib.sha256(s3.origin.encode()).hexdigest()[:16]


def state_directory(environ: Mapping[str, str]) -> Path:
    """Where this user's state is kept: the service manager's, the system's for root, or XDG's."""
    if given := environ.get("STATE_DIRECTORY"):
        return Path(given.split(":")[0])
    if os.geteuid() == 0:
        return Path("/var/lib/s3mount")
    return Path(environ.get("XDG_STATE_HOME") or Path(environ.get("HOME", "/")) / ".local/state") / "s3mount"
