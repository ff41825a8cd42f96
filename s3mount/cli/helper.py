"""`mount.s3mount` and `mount.fuse.s3mount`: what mount(8) runs for a file system of this type.

It looks for them in /sbin, and calls them as mount(8), "EXTERNAL HELPERS", says: source, directory, [-sfnv], [-N
namespace], [-o options], [-t type].  They mount in the background and return when the mount answers; the daemon is the
same as of `s3mount`, with the same exit codes but for mount(8)'s own.

The mount has the source's name as fstab spells it, since that is how `mount -a` knows that it is there already.
"""

import os
import sys

import click

from s3mount.cli.fstab import flags_of
from s3mount.cli.mount import build_config
from s3mount.cli.mount import main as mount
from s3mount.cli.usage import OneLineUsage
from s3mount.daemon.exits import ExitCode

#: mount(8), "EXIT STATUS".
_USAGE, _FAILED = 1, 32


@click.command(cls=OneLineUsage, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("source")
@click.argument("directory")
@click.option("-o", "options", multiple=True, metavar="OPTIONS", help="Comma-separated; the flags of s3mount.")
@click.option("-s", "is_sloppy", is_flag=True, help="Pass over options that are not known.")
@click.option("-f", "is_fake", is_flag=True, help="Check the options, and do not mount.")
@click.option("-n", is_flag=True, expose_value=False, help="Without effect: there is no mtab.")
@click.option("-v", is_flag=True, expose_value=False, help="Without effect.")
@click.option("-t", expose_value=False, metavar="TYPE", help="Without effect: there is one.")
def helper(source: str, directory: str, options: tuple[str, ...], *, is_sloppy: bool, is_fake: bool) -> None:
    """Mount SOURCE (a bucket, an access point ARN, or s3://name/prefix/) on DIRECTORY."""
    arguments = [f"--fsname={source}", *flags_of(options, mount.params, is_sloppy=is_sloppy), "--", source, directory]
    if is_fake:
        with mount.make_context("s3mount", list(arguments)) as context:
            flags = dict(context.params)
        build_config(flags.pop("bucket"), flags.pop("directory"), flags, os.environ)
        sys.exit(ExitCode.OK)
    sys.argv[1:] = arguments  # for a daemon that takes over
    mount.main(arguments, "s3mount")


def main() -> None:
    """The program."""
    pid = os.getpid()
    try:
        helper.main(prog_name=os.path.basename(sys.argv[0]))
    except SystemExit as end:
        if os.getpid() != pid:
            raise  # a daemon ends, with a code of its own
        sys.exit(0 if not end.code else _USAGE if end.code == ExitCode.USAGE else _FAILED)
