"""`s3mount BUCKET DIRECTORY`: options and environment → MountConfig, and nothing else.

Only this package reads argv and the environment.  Flag names are Mountpoint's for the same
things, so that scripts carry over; a flag that does nothing does not exist, with one exception:
--max-threads limits threads that are not there.
"""

import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import click

from s3mount import __version__
from s3mount.cli.bucket import s3_config
from s3mount.cli.cache import CACHE_FLAGS, cache_config
from s3mount.cli.serving import Command, NoParent, fail, serve
from s3mount.cli.values import DURATION, MAX_ID, MODE, OUTAGE, TTL, size_in
from s3mount.cli.writing import WRITE_FLAGS, writing_config
from s3mount.config import (
    DEFAULT_GBPS,
    DEFAULT_PART_SIZE,
    Limits,
    MountConfig,
    metadata_config,
    size_components,
)
from s3mount.core.attrs import Ownership
from s3mount.core.backoff import Patience
from s3mount.core.location import parse_location
from s3mount.daemon import background, rundir
from s3mount.errors import BadOption, S3MountError
from s3mount.fuse.handshake import background_limit
from s3mount.fuse.kernel import READ_AHEAD_KIB, READ_AHEAD_RANGE_KIB
from s3mount.fuse.options import FuseConfig
from s3mount.limits import this_host
from s3mount.logs import LogConfig
from s3mount.mounter.keeping import kept
from s3mount.mounter.sdnotify import take_kept
from s3mount.units import MIB, format_size


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """Every flag, in the order --help shows them."""
    flag = click.option
    for option in reversed([
        flag("--prefix", metavar="PREFIX", help="Mount only the keys under this prefix; it must end with /."),
        flag("--region", metavar="REGION", help="Region of the bucket.  [default: found out from the bucket]"),
        flag("--endpoint-url", metavar="URL", help="An S3-compatible server, or another endpoint of AWS."),
        flag("--force-path-style", is_flag=True, help="Address the bucket in the path, not in the host name."),
        flag("--profile", metavar="NAME", help="Profile of the AWS configuration files."),
        flag("--no-sign-request", is_flag=True, help="Send unsigned requests: for public buckets."),
        flag("--requester-pays", is_flag=True, help="Accept to pay for the requests."),
        flag("--expected-bucket-owner", metavar="ACCOUNT", help="Fail unless this account owns the bucket."),
        flag("--without-listing", is_flag=True,
             help="The credentials may read objects but not list the bucket: known paths open, listing says EACCES."),
        flag("--ca-bundle", type=click.Path(exists=True, dir_okay=False), help="PEM file of trusted authorities."),
        flag("--allow-other", is_flag=True, help="Let other users use the mount."),
        flag("--allow-root", is_flag=True, help="Let root use the mount."),
        flag("--uid", type=click.IntRange(0, MAX_ID), help="Owner of every file.  [default: you]"),
        flag("--gid", type=click.IntRange(0, MAX_ID), help="Group of every file.  [default: yours]"),
        flag("--file-mode", type=MODE, default="0644", show_default=True, help="Mode of every file."),
        flag("--dir-mode", type=MODE, default="0755", show_default=True, help="Mode of every directory."),
        flag("--auto-unmount", is_flag=True, help="Unmount when the daemon dies, however it dies."),
        flag("--no-takeover", is_flag=True, help="One process: when it dies the mount is dead."),
        flag("--hang-timeout", type=DURATION, default="30", show_default=True, metavar="SECONDS",
             help="Replace a daemon that answers nothing for so long; 0 for never."),
        flag("--metadata-ttl", type=TTL, metavar="TIME",
             help="How long to believe what a name or a directory was: minimal, indefinite, or seconds.  "
             "[default: minimal; with --cache 60]"),
        flag("--negative-metadata-ttl", type=TTL, metavar="TIME",
             help="How long to believe that a name is absent.  [default: --metadata-ttl]"),
        *CACHE_FLAGS,
        *WRITE_FLAGS,
        flag("--part-size", type=size_in(1), default=DEFAULT_PART_SIZE, metavar="BYTES",
             help="Size of the largest GET.  [default: 8 MiB]"),
        flag("--maximum-throughput-gbps", type=float, default=DEFAULT_GBPS, show_default=True,
             help="What the network can do; more connections are opened above 51."),
        flag("--memory-target", type=size_in(MIB), metavar="MIB",
             help="Memory for data in flight and read ahead.  [default: a quarter of the RAM, at most 4 GiB]"),
        flag("--request-deadline", type=DURATION, default="60", show_default=True, metavar="SECONDS",
             help="Longest time a request may take before it fails with ETIMEDOUT."),
        flag("--on-outage", type=OUTAGE, default="wait", show_default=True, metavar="WHAT",
             help="While S3 does not answer: wait[:SECONDS], 90 s if not said, or error."),
        flag("--read-ahead-kib", type=click.IntRange(*READ_AHEAD_RANGE_KIB), default=READ_AHEAD_KIB, show_default=True,
             metavar="KIB", help="How far the kernel reads ahead of a buffered reader; needs root."),
        flag("--no-kernel-tuning", is_flag=True, help="Leave the kernel's read-ahead as it is."),
        flag("--max-threads", type=click.IntRange(1), metavar="N", help="For scripts that say it; without effect."),
        flag("-f", "--foreground", is_flag=True, help="Stay in the foreground; for services."),
        flag("-d", "--debug", is_flag=True, help="Log more."),
        flag("-l", "--log-directory", type=click.Path(file_okay=False), help="Log to a file in this directory."),
        flag("--no-log", is_flag=True, help="Log nothing."),
    ]):  # fmt: skip
        command = option(command)
    return command


class _OneLineUsage(click.Command):
    """A flag that click refuses is reported as any other bad option: in one line."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            _fail(BadOption(f"{error.format_message().rstrip('.')}; s3mount --help lists the options"))


@click.command(cls=_OneLineUsage, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("bucket", metavar="BUCKET")
@click.argument("directory", metavar="DIRECTORY")
@_options
@click.version_option(__version__, prog_name="s3mount")
def main(bucket: str, directory: str, **flags: Any) -> None:
    """Mount BUCKET (a name, an access point ARN, or s3://name/prefix/) on DIRECTORY."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # whoever ignores it is not told how a child ended
    found = kept(take_kept(os.environ, os.getpid()), directory)
    try:
        config = build_config(bucket, directory, flags, os.environ, None if found is None else found.mount_point)
    except S3MountError as error:
        _fail(error)
    command = Command(sys.argv[1:], os.getcwd(), flags["foreground"], found)
    if flags["foreground"]:
        sys.exit(serve(config, NoParent(), command))
    outcome = background.start(lambda pipe: serve(config, pipe, command), config.fuse.mount_point)
    if outcome.message:
        click.echo(f"s3mount: {outcome.message}", err=True)
    sys.exit(outcome.code)


def build_config(
    bucket: str, directory: str, flags: Mapping[str, Any], environ: Mapping[str, str], mount_point: str | None = None
) -> MountConfig:
    """The configuration that flags and environment mean.

    Args:
        mount_point: `directory` as it was resolved before anything was mounted there; None to do that.

    Raises:
        BadOption: they contradict each other, or cannot be meant.
    """
    location = parse_location(bucket, flags["prefix"])
    mount_point = mount_point or os.path.realpath(directory)
    limits = Limits(
        flags["part_size"],
        flags["memory_target"],
        flags["maximum_throughput_gbps"],
        flags["request_deadline"],
        disks=len(set(map(os.path.realpath, flags["cache"]))),
    )
    host = this_host()
    crt, guard, read = size_components(limits, host)
    if limits.memory_target is not None and limits.memory_target > host.memory_bytes:
        may = f"more than the {format_size(host.memory_bytes)} that this process may use"
        click.echo(f"s3mount: --memory-target {format_size(limits.memory_target)} is {may}", err=True)
    if flags["allow_other"] and flags["allow_root"]:
        raise BadOption("--allow-other and --allow-root exclude each other")
    s3 = s3_config(location, flags, environ)
    writing = writing_config(flags, environ, s3, mount_point)
    return MountConfig(
        s3=s3,
        crt=crt,
        guard=guard,
        patience=Patience(guard.deadline_s, flags["on_outage"], s3.max_attempts),
        read=read,
        metadata=metadata_config(
            flags["metadata_ttl"],
            flags["negative_metadata_ttl"],
            has_disk_cache=bool(flags["cache"]),
            is_rw=writing.policy.is_rw,
        ),
        writing=writing,
        cache=cache_config(flags, mount_point, read.disk_queue_bytes),
        owner=Ownership(
            uid=os.getuid() if flags["uid"] is None else flags["uid"],
            gid=os.getgid() if flags["gid"] is None else flags["gid"],
            file_mode=flags["file_mode"],
            dir_mode=flags["dir_mode"],
        ),
        fuse=_fuse_config(flags, mount_point, location.label, background_limit(crt.connections)),
        log=_log_config(flags, mount_point),
        runtime_directory=rundir.own_directory(environ),
        has_takeover=not flags["no_takeover"],
        hang_timeout_s=flags["hang_timeout"],
    )


def _fuse_config(flags: Mapping[str, Any], mount_point: str, label: str, max_background: int) -> FuseConfig:
    return FuseConfig(
        mount_point,
        label,
        flags["allow_other"],
        flags["allow_root"],
        flags["auto_unmount"],
        is_read_only=flags["read_only"],
        max_background=max_background,
        read_ahead_kib=None if flags["no_kernel_tuning"] else flags["read_ahead_kib"],
    )


def _log_config(flags: Mapping[str, Any], mount_point: str) -> LogConfig:
    if flags["no_log"] and (flags["debug"] or flags["log_directory"]):
        raise BadOption("--no-log excludes --debug and --log-directory")
    if flags["log_directory"] is None:
        return LogConfig(None, is_debug=flags["debug"], is_off=flags["no_log"])
    directory = Path(os.path.realpath(flags["log_directory"]))
    if directory.is_relative_to(mount_point):
        raise BadOption(f"the log directory {str(directory)!r} lies inside the mount point; choose another")
    return LogConfig(directory, is_debug=flags["debug"])


def _fail(error: S3MountError) -> NoReturn:
    sys.exit(fail(error))
