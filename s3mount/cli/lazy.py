"""Commands that are imported when they are used: the others need none of what these do."""

from importlib import import_module

import click

#: By name: module and command.
LAZY = {
    "debug-bundle": ("s3mount.cli.bundle", "debug_bundle"),
    "doctor": ("s3mount.cli.doctor", "doctor"),
    "unmount": ("s3mount.cli.unmounting", "unmount"),
}


class Commands(click.Group):
    """A group with those of `LAZY` among its commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """See click."""
        return sorted([*super().list_commands(ctx), *LAZY])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """See click."""
        if cmd_name in LAZY:
            module, name = LAZY[cmd_name]
            command: click.Command = getattr(import_module(module), name)
            return command
        return super().get_command(ctx, cmd_name)
