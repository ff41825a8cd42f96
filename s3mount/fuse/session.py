"""Mount, serve, unmount: the life of one FUSE connection, through libfuse.

INVARIANT: when `mounted` ends, however it ends, nothing is mounted.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyfuse3

from s3mount.errors import FuseUnavailable
from s3mount.fuse.operations import Operations

log = logging.getLogger(__name__)

#: Handler tasks that stay when idle; with fewer, a burst starts a task and a 1 MiB buffer each.
_MIN_TASKS = 32
#: Requests in flight; the kernel sends opens without limit.
_MAX_TASKS = 1000


@dataclass(frozen=True)
class FuseConfig:
    """How the kernel shows the mount.

    Attributes:
        source: what `mount` and `df` show in the first column.
    """

    mount_point: str
    source: str
    allow_other: bool = False
    allow_root: bool = False
    auto_unmount: bool = False

    @property
    def options(self) -> set[str]:
        """Mount options; the kernel itself refuses writes (`ro`).

        The kernel checks modes and owners only where other users can come in: for that it asks for the attributes
        of each name it opens, which in the minimal mode is a request to S3.
        """
        chosen = {
            "allow_other": self.allow_other,
            "allow_root": self.allow_root,
            "default_permissions": self.allow_other or self.allow_root,
            "auto_unmount": self.auto_unmount,
        }
        fixed = {"ro", "nosuid", "nodev", "noatime", f"fsname={self.source}", "subtype=s3mount"}
        return fixed | {name for name, is_on in chosen.items() if is_on}


@contextmanager
def mounted(operations: Operations, config: FuseConfig) -> Iterator[None]:
    """The mount exists inside the block; `serve` answers it.

    Raises:
        FuseUnavailable: the kernel or fusermount3 refused.
    """
    try:
        pyfuse3.init(operations, config.mount_point, config.options)
    except RuntimeError as error:
        raise FuseUnavailable(
            f"{config.mount_point} could not be mounted; the line of fusermount3 or the kernel above says why"
        ) from error
    try:
        yield
    finally:
        pyfuse3.close(unmount=True)


async def serve() -> None:
    """Answer requests until the mount is gone or the task is cancelled."""
    try:
        await pyfuse3.main(min_tasks=_MIN_TASKS, max_tasks=_MAX_TASKS)
    except* ConnectionAbortedError:
        # An unmount that comes while pyfuse3 takes a request off the device ends it with this, not with ENODEV.
        log.debug("the connection ended while a request was read from it")
