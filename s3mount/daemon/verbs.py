"""The table of what `s3mountctl` can ask: each verb is one of a component's own, with its arguments unpacked.

A new verb is one line in `verbs_of`.
"""

import os

from s3mount import __version__
from s3mount.config import MountConfig
from s3mount.daemon.control import Arguments, Talk, Verb
from s3mount.daemon.wiring import Components


def verbs_of(config: MountConfig, parts: Components) -> dict[str, Verb]:
    """Everything that this daemon does on demand."""
    return {
        "status": _status(config),
    }


def _status(config: MountConfig) -> Verb:
    location = config.s3.location
    facts = {
        "mount_point": config.fuse.mount_point,
        "bucket": location.bucket,
        "prefix": location.prefix,
        "pid": os.getpid(),
        "version": __version__,
    }

    async def status(args: Arguments, talk: Talk) -> dict[str, object]:
        return facts

    return status
