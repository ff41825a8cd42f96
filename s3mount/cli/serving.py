"""From a configuration to an exit code: the processes, the log, and who hears of a failure."""

import logging
import os
from collections.abc import Sequence
from typing import NamedTuple

import click

from s3mount.config import MountConfig
from s3mount.daemon import background, exits, processes, runtime
from s3mount.daemon.keeper import Keeper, NoKeeper
from s3mount.daemon.tenant import Tenant
from s3mount.errors import S3MountError
from s3mount.fuse import marks
from s3mount.logs import logging_to
from s3mount.mounter.channel import RECORD, Channel, Hello, Message
from s3mount.mounter.keeping import Kept
from s3mount.mounter.sdnotify import ServiceManager

log = logging.getLogger(__name__)


class Command(NamedTuple):
    """How the command was started; a later daemon is started with the same arguments, in the same directory.

    Attributes:
        kept: a mount that an earlier mounter left to the service manager.
    """

    arguments: Sequence[str]
    directory: str
    is_foreground: bool
    kept: Kept | None


class NoParent:
    """`Readiness` in the foreground: nobody waits."""

    def ready(self) -> None:
        """Nothing to say."""


def serve(config: MountConfig, parent: background.Pipe | NoParent, command: Command) -> int:
    """The life of a mount, in two processes or in one; returns the exit code of the daemon."""
    if not config.has_takeover:
        manager = ServiceManager.of(os.environ)
        return _serve(config, parent, NoKeeper(manager), os.getpid(), is_foreground=command.is_foreground)
    mounter_pid = os.getpid()
    channel = processes.split(config.fuse.mount_point)
    memories = _introduce(channel, config, command)
    keeper = Tenant(channel, memories, None if command.kept is None else command.kept.facts)
    return _serve(config, parent, keeper, mounter_pid, is_foreground=command.is_foreground)


def take_over(config: MountConfig, channel: Channel, message: Message, *, is_foreground: bool) -> int:
    """The life of a later daemon of a mount, which was told to take over; returns its exit code."""
    keeper = Tenant(channel, message.descriptors, message.facts["facts"])
    return _serve(config, NoParent(), keeper, os.getppid(), is_foreground=is_foreground)


def _introduce(channel: Channel, config: MountConfig, command: Command) -> list[int]:
    """Tell the mounter what it must know; returns the memory files that it keeps."""
    directory = config.log.directory
    hello = Hello(
        arguments=list(command.arguments),
        directory=command.directory,
        mount_point=config.fuse.mount_point,
        is_foreground=command.is_foreground,
        log_directory=None if directory is None else str(directory),
        is_debug=config.log.is_debug,
        is_log_off=config.log.is_off,
        hang_timeout_s=config.hang_timeout_s,
        is_log_json=config.log.is_json,
    )
    kept = command.kept
    if kept is None:
        memories = [*(os.memfd_create(f"s3mount-{name}") for name in RECORD), marks.new_memory()]
        channel.send("hello", memories, **vars(hello))
        return memories
    channel.send("hello", kept.memories, **vars(hello))
    channel.send("kept", [kept.device.fd], offer=kept.offer.to_bytes().hex(), facts=kept.facts)
    os.close(kept.device.fd)
    return kept.memories


def _serve(
    config: MountConfig, parent: background.Pipe | NoParent, keeper: Keeper, log_pid: int, *, is_foreground: bool
) -> int:
    try:
        with logging_to(config.log, is_foreground=is_foreground, pid=log_pid) as log_sink:
            try:
                is_saved = runtime.run(config, parent, keeper, log_sink)
            except S3MountError as error:
                log.log(logging.ERROR, "%s", exits.line_for(error))
                raise
    except S3MountError as error:
        outcome = background.Outcome(exits.verdict_for(error).code, exits.line_for(error))
        if isinstance(parent, background.Pipe):
            parent.report(outcome)
        elif keeper.region is not None:
            keeper.failed(outcome.message)
        elif config.log.is_off or config.log.directory is not None:
            click.echo(f"s3mount: {outcome.message}", err=True)  # the log went elsewhere
        return outcome.code
    return exits.ExitCode.OK if is_saved else exits.ExitCode.NOT_SAVED


def fail(error: S3MountError) -> int:
    """Say it; the exit code."""
    click.echo(f"s3mount: {exits.line_for(error)}", err=True)
    return exits.verdict_for(error).code
