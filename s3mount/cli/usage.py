"""Commands that say what is wrong in one line, and the one that takes mount options."""

import contextlib
import sys
from typing import Any

import click

from s3mount.cli.fstab import flags_of
from s3mount.cli.serving import fail
from s3mount.errors import BadOption, S3MountError


class OneLineUsage(click.Command):
    """A flag that click refuses is reported as any other bad option: in one line."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Raises BadOption."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            line = error.format_message().rstrip(".")
            raise BadOption(f"{line}; {ctx.info_name} --help lists the options") from error

    def main(self, *args: Any, **extra: Any) -> Any:
        """As a program: ends with an exit code."""
        try:
            return super().main(*args, **extra)
        except S3MountError as error:
            sys.exit(fail(error))


class MountCommand(OneLineUsage):
    """What -o says is said by flags."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Raises BadOption."""
        with contextlib.suppress(click.UsageError):  # which is found again
            options = self.make_parser(ctx).parse_args(list(args))[0].get("options", [])
            args = [*flags_of(options, self.params), *args]
        return super().parse_args(ctx, args)
