"""One mount made by this program itself: its descriptor of /dev/fuse, the INIT exchange on it, and its end.

mount(2) where that is permitted, as root; where a mount service is (`fuse.mountservice`), by that; else fusermount3,
which mounts for an ordinary user and passes the descriptor back over a socket.  fusermount3 also serves --auto-unmount
for everybody: it stays, and unmounts when the socket is closed and nobody answers the mount.  All of it is what
libfuse does in lib/mount.c, so a mount looks and ends the same whoever made it.

INVARIANT: after `close` nothing of ours is mounted, and no descriptor and no process is left.
"""

import contextlib
import ctypes
import errno
import fcntl
import logging
import os
import select
import socket
import stat
import struct
import subprocess
from collections.abc import Set
from pathlib import Path

from s3mount.fuse import mountservice
from s3mount.fuse.handshake import MAX_PAGES, InitRequest, Wishes, agree
from s3mount.fuse.mountinfo import mounted_on
from s3mount.fuse.undertaker import Undertaker
from s3mount.units import KIB

log = logging.getLogger(__name__)

_DEVICE = "/dev/fuse"
_HELPER = "fusermount3"
#: The kernel sends INIT as a part of mount(2), so this is for descriptors that are no FUSE device.
_INIT_S = 5
#: FUSE_MIN_READ_BUFFER is 8 KiB.
_INIT_BUFFER = 64 * KIB
#: FUSE_DEV_IOC_CLONE of include/uapi/linux/fuse.h: _IOR(229, 0, uint32_t).
_CLONE = 0x8004E500
#: Of mount(2).
_FLAGS = {"ro": 1, "nosuid": 2, "nodev": 4, "noexec": 8, "noatime": 1024}
_MNT_FORCE = 1
_MNT_DETACH = 2
#: Arguments of mount(2) on their own.
_NOT_FOR_KERNEL = ("fsname=", "subtype=")

_libc = ctypes.CDLL(None, use_errno=True)


class Device:
    """A mounted FUSE connection.

    Attributes:
        fd: its descriptor.  Whoever duplicates it closes the duplicate before `close`.
    """

    def __init__(self, fd: int, path: str, helper: Undertaker | None = None) -> None:
        self.fd = fd
        self._path = path
        self._helper = helper

    @property
    def helper_fds(self) -> list[int]:
        """What a process must have open lest fusermount3 unmounts the mount as dead; none without --auto-unmount."""
        return [] if self._helper is None else [self._helper.fileno()]

    def is_connected(self) -> bool:
        """False after an unmount that is complete, or an abort."""
        poll = select.poll()
        poll.register(self.fd, 0)
        return not any(event & select.POLLERR for _, event in poll.poll(0))

    def clone(self) -> int:
        """A descriptor of the same connection with requests of its own: those that were read from it and not answered
        fail when its last duplicate is closed, and no others do (Linux 4.2).

        Raises:
            OSError: the kernel cannot, or the user may not open the device.
        """
        fd = os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.ioctl(fd, _CLONE, struct.pack("=I", self.fd))
        except OSError:
            os.close(fd)
            raise
        return fd

    def abort(self) -> None:
        """See `abort`; and unmount."""
        abort(self._path)
        unmount(self._path)

    def close(self) -> None:
        """Fail what was not answered, and unmount.

        The descriptor goes first: an unmount can ask the file system something, which nobody would answer any more.
        When the connection is gone already, so is the mount, and another may be in its place.
        """
        is_connected = self.is_connected()
        os.close(self.fd)
        if is_connected:
            unmount(self._path)
        if self._helper is not None:
            self._helper.end()


def mount(path: str, options: Set[str]) -> Device:
    """Mount with the options that libfuse takes (`fsname` and `subtype` among them).

    Raises:
        OSError: the kernel or fusermount3 refused, or one of them is missing.
    """
    if mountservice.is_there():
        fd = mountservice.mount(options)
        device = Device(fd, path)
        if mounted_on(path) is None:
            device.abort()
            raise OSError(errno.EXDEV, "mounted for the host, and not visible here: its root must be shared", path)
        return device
    if "auto_unmount" not in options:
        with contextlib.suppress(PermissionError):
            return Device(mount_for(os.getuid(), os.getgid(), path, options), path)
    return _mount_by_helper(path, options)


def mount_for(uid: int, gid: int, path: str, options: Set[str]) -> int:
    """Mount by mount(2) for a user, who need not be this one; the descriptor.

    Raises:
        OSError: the kernel refused.
    """
    names = dict(each.split("=", 1) for each in options if "=" in each)
    flags = sum(bit for name, bit in _FLAGS.items() if name in options)
    data = sorted(_translated(options) - _FLAGS.keys())
    data = [each for each in data if not each.startswith(_NOT_FOR_KERNEL)]
    root_mode = stat.S_IFMT(os.stat(path).st_mode)
    fd = os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC)
    owner = [f"fd={fd}", f"rootmode={root_mode:o}", f"user_id={uid}", f"group_id={gid}"]
    arguments = (names["fsname"], path, f"fuse.{names['subtype']}")
    if _libc.mount(*map(os.fsencode, arguments), ctypes.c_ulong(flags), ",".join(owner + data).encode()) != 0:
        error = ctypes.get_errno()
        os.close(fd)
        raise OSError(error, os.strerror(error), path)
    return fd


def _translated(options: Set[str]) -> Set[str]:
    """`allow_root` is libfuse's own: the kernel lets everybody in, and libfuse turns the others away."""
    return options - {"allow_root"} | ({"allow_other"} if "allow_root" in options else set())


def _mount_by_helper(path: str, options: Set[str]) -> Device:
    """What fusermount3 has to say is dropped: the caller lets libfuse try, and it says it again."""
    with contextlib.ExitStack() as stack:
        ours, theirs = map(stack.enter_context, socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM))
        process = subprocess.Popen(
            [_HELPER, "-o", ",".join(sorted(_translated(options))), "--", path],
            env={**os.environ, "_FUSE_COMMFD": str(theirs.fileno())},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        theirs.close()
        _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
        for fd in descriptors:
            os.set_inheritable(fd, False)  # noqa: FBT003  recv_fds leaves out its flags, and so MSG_CMSG_CLOEXEC
        helper = Undertaker(process, ours)
        if descriptors and "auto_unmount" in options:
            stack.pop_all()
            helper.move_out()
            return Device(descriptors[0], path, helper)
        helper.end()
        if not descriptors:
            raise OSError(f"{_HELPER} ended with {process.returncode}")
        return Device(descriptors[0], path)


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


def abort(path: str) -> None:
    """Fail every call that the mount there has not answered, for good: a process stuck in the kernel can end then.

    Another user than root can only where fusectl is mounted, whose files are the mount's owner's.
    """
    if mountservice.is_there():
        mountservice.ask("abort")
        return
    if os.geteuid() == 0:
        _libc.umount2(os.fsencode(path), _MNT_FORCE)  # says "busy", and does it all the same
        return
    taken = mounted_on(path)
    if taken is not None:
        with contextlib.suppress(OSError):
            Path(f"/sys/fs/fuse/connections/{taken.device.partition(':')[2]}/abort").write_text("1", encoding="ascii")


def unmount(path: str) -> None:
    """Detach whatever is mounted there; in the background if it is busy.  Never fails: there may be nothing."""
    if mountservice.is_there():
        mountservice.ask("unmount")
        return
    if _libc.umount2(os.fsencode(path), _MNT_DETACH) != 0 and ctypes.get_errno() == errno.EPERM:
        subprocess.run([_HELPER, "-u", "-q", "-z", "--", path], check=False, capture_output=True)
