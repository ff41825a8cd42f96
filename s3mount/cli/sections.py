"""Flags → the smaller sections of the configuration."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from s3mount.core.attrs import Ownership
from s3mount.errors import BadOption
from s3mount.fuse.options import FuseConfig
from s3mount.logs import LogConfig


def owner(flags: Mapping[str, Any]) -> Ownership:
    """What entries show."""
    return Ownership(
        uid=os.getuid() if flags["uid"] is None else flags["uid"],
        gid=os.getgid() if flags["gid"] is None else flags["gid"],
        file_mode=flags["file_mode"],
        dir_mode=flags["dir_mode"],
    )


def fuse_config(flags: Mapping[str, Any], mount_point: str, label: str, max_background: int) -> FuseConfig:
    """How the kernel shows the mount."""
    return FuseConfig(
        mount_point,
        flags["fsname"] or label,
        flags["allow_other"],
        flags["allow_root"],
        flags["auto_unmount"],
        is_read_only=flags["read_only"],
        max_background=max_background,
        read_ahead_kib=None if flags["no_kernel_tuning"] else flags["read_ahead_kib"],
        is_noexec=flags["noexec"],
    )


def log_config(flags: Mapping[str, Any], mount_point: str, environ: Mapping[str, str]) -> LogConfig:
    """Where the log goes; raises BadOption."""
    if flags["no_log"] and (flags["debug"] or flags["log_directory"] or flags["log_json"]):
        raise BadOption("--no-log excludes --debug, --log-directory and --log-json")
    stream = environ.get("JOURNAL_STREAM", "")
    config = LogConfig(None, flags["debug"], flags["no_log"], is_json=flags["log_json"], journal_stream=stream)
    if flags["log_directory"] is None:
        return config
    directory = Path(os.path.realpath(flags["log_directory"]))
    if directory.is_relative_to(mount_point):
        raise BadOption(f"the log directory {str(directory)!r} lies inside the mount point; choose another")
    return replace(config, directory=directory)
