"""Mount, serve, unmount: the life of one FUSE connection.

This program mounts (`device`), answers the kernel's INIT message (`handshake`), and lets pyfuse3 start on a
socket in which an INIT message of its own making waits.  pyfuse3 tells its `Operations` before libfuse replies to it:
that is when the device takes the socket's place, and libfuse never learns of it.

Where anything of that cannot be done, libfuse mounts and answers by itself, as it always could; a mount that
nobody can make fails there, and with libfuse's words.

INVARIANT: when `mounted` ends, however it ends, nothing is mounted.
"""

import logging
import os
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyfuse3

from s3mount.errors import FuseUnavailable
from s3mount.fuse.device import Device, mount
from s3mount.fuse.handshake import MAX_PAGES, MIN_BACKGROUND, InitRequest, Wishes, agree
from s3mount.fuse.operations import Operations
from s3mount.units import KIB

log = logging.getLogger(__name__)

#: Handler tasks that stay when idle; with fewer, a burst starts a task and a 1 MiB buffer each.
_MIN_TASKS = 32
#: Requests in flight: 1,024 in the background (config's most connections), and as many opens and look-ups, which the
#: kernel sends without limit, beside them.
_MAX_TASKS = 2048
#: The kernel sends INIT as a part of mount(2), so this is for descriptors that are no FUSE device.
_INIT_S = 5
#: FUSE_MIN_READ_BUFFER is 8 KiB.
_INIT_BUFFER = 64 * KIB


@dataclass(frozen=True)
class FuseConfig:
    """How the kernel shows the mount.

    Attributes:
        source: what `mount` and `df` show in the first column.
        max_background: see `InitReply`.
        read_ahead_kib: what to ask the kernel for; None leaves it alone.
    """

    mount_point: str
    source: str
    allow_other: bool = False
    allow_root: bool = False
    auto_unmount: bool = False
    max_background: int = MIN_BACKGROUND
    read_ahead_kib: int | None = None

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
    introduced = _introduced(config)
    with _by_libfuse(operations, config) if introduced is None else _behind(*introduced, operations, config):
        yield


# -- our own exchange -----------------------------------------------------------------------


def _introduced(config: FuseConfig) -> tuple[Device, InitRequest] | None:
    """A mount whose kernel is content, and what libfuse must be offered; None, and nothing is mounted, where not."""
    try:
        with ExitStack() as stack:
            device = stack.enter_context(closing(mount(config.mount_point, config.options)))
            offer = introduce(device.fd, Wishes(config.max_background))
            stack.pop_all()
            return device, offer
    except (OSError, ValueError) as error:
        log.info("libfuse mounts %s with its own limits, 12 requests in the background: %s", config.mount_point, error)
        return None


def introduce(fd: int, wishes: Wishes) -> InitRequest:
    """Answer the INIT message that waits in a new FUSE descriptor.

    Returns:
        The message that libfuse gets in its place.

    Raises:
        OSError, ValueError: there is none, or one that cannot be answered.
    """
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    if not poll.poll(_INIT_S * 1000):
        raise TimeoutError(f"the kernel did not open the connection within {_INIT_S} s")
    kernel = InitRequest.parse(os.read(fd, _INIT_BUFFER))
    agreement = agree(kernel, wishes, page_size=os.sysconf("SC_PAGE_SIZE"), pages_limit=_pages_limit())
    os.write(fd, agreement.reply.to_bytes())
    log.debug("FUSE %d.%d offered %#x: told %s", kernel.major, kernel.minor, kernel.flags, agreement.reply)
    return agreement.offer


def _pages_limit() -> int:
    """Linux 6.13 and later have a limit that the administrator may set (Documentation/admin-guide/sysctl/fs.rst)."""
    try:
        return int(Path("/proc/sys/fs/fuse/max_pages_limit").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return MAX_PAGES


@contextmanager
def _behind(device: Device, offer: InitRequest, operations: Operations, config: FuseConfig) -> Iterator[None]:
    """libfuse opens its connection on a socket, and finds the device there from the second message on."""
    with ExitStack() as stack:
        stack.enter_context(closing(device))
        # `ours` stays open: a hang-up of the socket must not wake who waits for the device in its place.
        ours, theirs = map(stack.enter_context, socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        ours.send(offer.to_bytes())
        _init(operations, f"/dev/fd/{theirs.fileno()}", config)
        slot = theirs.detach()  # libfuse's from here on: it closes it
        operations.on_init = lambda: _swap(device.fd, slot)
        try:
            yield
        finally:
            pyfuse3.close(unmount=False)


def _swap(fd: int, slot: int) -> None:
    """Put the device in the place of the socket.

    pyfuse3 calls this between libfuse's reading of INIT and its reply.  No task waits for the descriptor
    then, so trio's epoll has no registration that would go on looking at the socket.  The reply goes to the
    kernel, which knows no such request (`SYNTHETIC_UNIQUE`) and drops it.
    """
    os.dup2(fd, slot, inheritable=False)


# -- libfuse's --------------------------------------------------------------------------------


@contextmanager
def _by_libfuse(operations: Operations, config: FuseConfig) -> Iterator[None]:
    _init(operations, config.mount_point, config)
    try:
        yield
    finally:
        pyfuse3.close(unmount=True)


def _init(operations: Operations, where: str, config: FuseConfig) -> None:
    try:
        pyfuse3.init(operations, where, config.options)
    except RuntimeError as error:
        raise FuseUnavailable(
            f"{config.mount_point} could not be mounted; the line of fusermount3 or the kernel above says why"
        ) from error


async def serve() -> None:
    """Answer requests until the mount is gone or the task is cancelled."""
    try:
        await pyfuse3.main(min_tasks=_MIN_TASKS, max_tasks=_MAX_TASKS)
    except* ConnectionAbortedError:
        # An unmount that comes while pyfuse3 takes a request off the device ends it with this, not with ENODEV.
        log.debug("the connection ended while a request was read from it")
