"""What the mounter runs when a daemon died: the command's arguments once more, with a mount that exists.

Nothing here may touch the mount point, which nobody answers: it is not resolved again, and relative paths of the
other arguments are not looked for in a directory inside it.
"""

import contextlib
import os
import sys

from s3mount.cli.mount import build_config
from s3mount.cli.mount import main as command
from s3mount.cli.serving import take_over
from s3mount.daemon import exits
from s3mount.errors import S3MountError
from s3mount.mounter.channel import Channel, Hello


def main() -> int:
    """`successor CHANNEL ARGUMENTS…`; returns the exit code."""
    channel = Channel.inherited(int(sys.argv[1]))
    message = channel.receive()
    if message is None:
        return 1
    hello = Hello(**message.facts["hello"])
    _enter(hello)
    try:
        flags = command.make_context("s3mount", list(sys.argv[2:]), resilient_parsing=False).params
        config = build_config(flags.pop("bucket"), flags.pop("directory"), flags, os.environ, hello.mount_point)
    except S3MountError as error:  # a configuration file may have changed
        channel.send("failed", reason=exits.line_for(error))
        return exits.verdict_for(error).code
    if not hello.is_foreground:
        os.chdir("/")
    return take_over(config, channel, message, is_foreground=hello.is_foreground)


def _enter(hello: Hello) -> None:
    inside = os.path.join(hello.mount_point, "")
    if not os.path.join(hello.directory, "").startswith(inside):
        with contextlib.suppress(OSError):  # it may be gone, and nothing relative given
            os.chdir(hello.directory)


if __name__ == "__main__":
    sys.exit(main())
