"""Mount, serve, unmount: the life of one FUSE connection.

This program mounts (`device`), answers the kernel's INIT message (`handshake`), and lets pyfuse3 start on a
socket in which an INIT message of its own making waits.  pyfuse3 tells its `Operations` before libfuse replies to it:
that is when the device takes the socket's place, and libfuse never learns of it.

Where anything of that cannot be done, libfuse mounts and answers by itself, as it always could; a mount that
nobody can make fails there, and with libfuse's words.

With a mounter beside the daemon (`s3mount.mounter`) that one mounts and answers, and the descriptor is only borrowed:
`Connection` says which.

INVARIANT: when `mounted` ends, however it ends, nothing is mounted that this process mounted.
"""

import contextlib
import logging
import os
import select
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Protocol

import pyfuse3
import trio

from s3mount.errors import FuseUnavailable
from s3mount.fuse import passed
from s3mount.fuse.device import introduce, mount
from s3mount.fuse.handshake import RESEND, InitFlag, InitRequest, Wishes, granted_for
from s3mount.fuse.operations import Operations
from s3mount.fuse.options import FuseConfig

log = logging.getLogger(__name__)

#: Handler tasks that stay when idle; with fewer, a burst starts a task and a 1 MiB buffer each.
_MIN_TASKS = 32
#: Requests in flight: 1,024 in the background (config's most connections), and as many opens and look-ups, which the
#: kernel sends without limit, beside them.
MAX_TASKS = 2048
#: Seconds to look for a moment without a request that waits to be read.
_QUIET_S = 1.0


class ServedDevice(Protocol):
    """A descriptor of /dev/fuse, and what its end means."""

    @property
    def fd(self) -> int:
        """Valid until `close`."""
        ...

    def close(self) -> None:
        """Nobody here serves it any more."""
        ...


@dataclass(frozen=True)
class Connection:
    """A FUSE connection that the kernel has opened.

    Attributes:
        offer: the INIT message from which libfuse learns what was agreed on.
        is_taken_over: another daemon served it; the kernel is asked to send again what that one left unanswered.
    """

    device: ServedDevice
    offer: InitRequest
    is_taken_over: bool = False

    def begin(self, slot: int) -> None:
        """Put the device in the place of the socket that libfuse knows as its descriptor.

        pyfuse3 has this called between libfuse's reading of INIT and its reply.  No task waits for the descriptor
        then, so trio's epoll has no registration that would go on looking at the socket.  The reply goes to the
        kernel, which knows no such request (`SYNTHETIC_UNIQUE`) and drops it.
        """
        os.dup2(self.device.fd, slot, inheritable=False)
        if self.is_taken_over and self.offer.flags & InitFlag.HAS_RESEND:
            with contextlib.suppress(OSError):  # unmounted meanwhile: the first read says so
                os.write(slot, RESEND)


def connected(config: FuseConfig) -> Connection:
    """Mount, unless the caller did, and answer the kernel's INIT.

    Raises:
        OSError, ValueError: that cannot be done here, and nothing is mounted.
        FuseUnavailable: what the caller passed cannot be served.
    """
    if config.descriptor is not None:
        return Connection(*passed.adopt(config.descriptor, Wishes(config.max_background)))
    with ExitStack() as stack:
        device = stack.enter_context(closing(mount(config.mount_point, config.options)))
        wishes = Wishes(config.max_background, flags=granted_for(config.options))
        offer = introduce(device.fd, wishes)
        stack.pop_all()
        return Connection(device, offer)


@contextmanager
def mounted(
    operations: Operations, config: FuseConfig, connect: Callable[[FuseConfig], Connection] = connected
) -> Iterator[None]:
    """The mount exists inside the block; `serve` answers it.

    Args:
        connect: makes the mount or takes it over; raises OSError or ValueError where libfuse must mount instead.

    Raises:
        FuseUnavailable: the kernel or fusermount3 refused.
    """
    try:
        connection = connect(config)
    except (OSError, ValueError) as error:
        log.info("libfuse mounts %s with its own limits, 12 requests in the background: %s", config.mount_point, error)
        with _by_libfuse(operations, config):
            yield
    else:
        with _behind(connection, operations, config):
            yield


# -- our own exchange -----------------------------------------------------------------------


@contextmanager
def _behind(connection: Connection, operations: Operations, config: FuseConfig) -> Iterator[None]:
    """libfuse opens its connection on a socket, and finds the device there from the second message on."""
    with ExitStack() as stack:
        stack.enter_context(closing(connection.device))
        # `ours` stays open: a hang-up of the socket must not wake who waits for the device in its place.
        ours, theirs = map(stack.enter_context, socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        ours.send(connection.offer.to_bytes())
        _init(operations, f"/dev/fd/{theirs.fileno()}", config)
        slot = theirs.detach()  # libfuse's from here on: it closes it
        operations.on_init = lambda: connection.begin(slot)
        try:
            yield
        finally:
            pyfuse3.close(unmount=False)


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
        # pyfuse3 takes ASCII only; where this program mounts the kernel has the source already, whatever it is.
        pyfuse3.init(operations, where, {each for each in config.options if each.isascii()})
    except RuntimeError as error:
        raise FuseUnavailable(
            f"{config.mount_point} could not be mounted; the line of fusermount3 or the kernel above says why"
        ) from error


async def serve() -> None:
    """Answer requests until the mount is gone or the task is cancelled."""
    try:
        await pyfuse3.main(min_tasks=_MIN_TASKS, max_tasks=MAX_TASKS)
    except* ConnectionAbortedError:
        # An unmount that comes while pyfuse3 takes a request off the device ends it with this, not with ENODEV.
        log.debug("the connection ended while a request was read from it")


async def stop_reading(fd: int, obstacle: Callable[[], str]) -> str:
    """Take no more requests from the kernel; `serve` returns when those that were taken are answered.

    A request that is read after pyfuse3 was told to end is dropped (libfuse's fuse_session_receive_buf), so that
    is said at a moment when there is none to read, if one comes.

    Args:
        fd: of the device.
        obstacle: why that must not be now, at that moment; then everything goes on, and it is returned.
    """
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    with trio.move_on_after(_QUIET_S):
        while poll.poll(0):
            await trio.lowlevel.checkpoint()
    reason = obstacle()
    if not reason:
        pyfuse3.terminate()
    return reason
