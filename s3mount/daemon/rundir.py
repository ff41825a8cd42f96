"""Where the runtime files of a mount are: its control socket, and who may have made it.

    root              /run/s3mount
    a service         the directory that systemd made for it, /run/s3mount.NAME (RuntimeDirectory= of the unit)
    anyone else       $XDG_RUNTIME_DIR/s3mount, else /run/user/UID/s3mount where that is, else /tmp/s3mount-UID

A directory is made 0700, and neither used nor believed when another user owns it or others may write to it: who
could put a socket there could answer for the daemon.

The name of a mount's files comes from its mount point: what a person recognises, then a hash of the whole path, so that
no two mount points share one.  A name is given by bind(2), under a lock on the directory; a socket that nobody
listens on any more is replaced, one that answers is left alone.

Only the standard library, and little of it: the small process that outlives the daemon imports this.
"""

import contextlib
import errno
import fcntl
import os
import re
import socket
import stat
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path

_ROOTS = Path("/run/s3mount")
_RUN, _SERVICES = Path("/run"), "s3mount.*"
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_SUFFIX = ".sock"
#: unix(7): sun_path has 108 bytes, the last one a NUL; a long name leaves less for the directory.
_MAX_SOCKET_PATH = 107
_MAX_READABLE = 24
_HASH_BYTES = 8
#: Connections that may wait to be accepted.
_BACKLOG = 32


def candidates(uid: int, environ: Mapping[str, str]) -> list[Path]:
    """Where a user's runtime files can be, the place for new ones first.

    Args:
        environ: of the caller; what it says of directories counts for the caller's own files only.
    """
    if uid == 0:
        return [_ROOTS]
    is_own = uid == os.geteuid()
    said = environ.get("XDG_RUNTIME_DIR", "") if is_own else ""
    given = Path(environ.get("RUNTIME_DIRECTORY", "") if is_own else "")
    bases = [Path(said)] if os.path.isabs(said) else []
    bases.append(Path(f"/run/user/{uid}"))
    usable = [base / "s3mount" for base in dict.fromkeys(bases) if _is_safe(base, uid)]
    return [*([given] if given.is_absolute() else []), *usable, Path(f"/tmp/s3mount-{uid}")]


def _searched(uid: int, environ: Mapping[str, str]) -> list[Path]:
    """Where to look for a user's sockets: also where each of that user's services has its own."""
    return list(dict.fromkeys([*candidates(uid, environ), *sorted(_RUN.glob(_SERVICES))]))


def _is_safe(directory: Path, uid: int) -> bool:
    """Whether this is a directory that only its user may change."""
    try:
        found = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == uid and not found.st_mode & _OTHERS_MAY_WRITE


def own_directory(environ: Mapping[str, str]) -> Path:
    """Where the caller's new runtime files belong; `bind` makes it."""
    return candidates(os.geteuid(), environ)[0]


def prepare(directory: Path) -> None:
    """Make a directory for runtime files.

    Raises:
        OSError: it cannot be made, or (PermissionError) others could put files there.
    """
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    if not _is_safe(directory, os.geteuid()):
        raise PermissionError(errno.EPERM, f"must be a directory of uid {os.geteuid()} with mode 0700", str(directory))


def name_of(mount_point: str) -> str:
    """What the files of a mount are called, without a suffix.

    Args:
        mount_point: absolute, without symbolic links, as /proc/self/mountinfo has it.
    """
    readable = re.sub(r"[^A-Za-z0-9._-]", "_", os.path.basename(mount_point))[:_MAX_READABLE]
    digest = blake2b(os.fsencode(mount_point), digest_size=_HASH_BYTES).hexdigest()
    return f"{readable}-{digest}"


def find(mount_point: str, uid: int, environ: Mapping[str, str]) -> Path | None:
    """The control socket of a mount, whether anybody answers there or not; None when there is none.

    Args:
        mount_point: as for `name_of`.
        uid: whose mount it is.
    """
    for directory in _searched(uid, environ):
        path = directory / f"{name_of(mount_point)}{_SUFFIX}"
        if _is_safe(directory, uid) and _is_socket(path):
            return path
    return None


def _is_socket(path: Path) -> bool:
    """False also where the caller may not look."""
    try:
        return path.is_socket()
    except PermissionError:
        return False


def sockets(uid: int, environ: Mapping[str, str]) -> list[Path]:
    """All control sockets of a user's mounts."""
    safe = [directory for directory in _searched(uid, environ) if _is_safe(directory, uid)]
    return [path for directory in safe for path in sorted(directory.glob(f"*{_SUFFIX}")) if _is_socket(path)]


class ControlSocket:
    """A listening socket with a name, which is removed by `close`, unless it is another's by then.

    Attributes:
        path: its name.
        listener: to accept from; its descriptor may be given to other processes.
    """

    def __init__(self, path: Path, listener: socket.socket) -> None:
        self.path = path
        self.listener = listener
        self._identity = _identity(path)

    def close(self) -> None:
        """No new connections, and no name."""
        with contextlib.suppress(OSError), _locked(self.path.parent):
            if _identity(self.path) == self._identity:
                self.path.unlink()
        self.listener.close()


def _identity(path: Path) -> tuple[int, int]:
    """What tells a socket from one made later in its place, which may get the same inode number."""
    found = path.lstat()
    return found.st_ino, found.st_mtime_ns


def bind(directory: Path, mount_point: str) -> ControlSocket:
    """A control socket for a mount: mode 0600, listening.

    Args:
        directory: see `own_directory`.
        mount_point: as for `name_of`.

    Raises:
        OSError: the directory cannot be used, or (EADDRINUSE) another process answers for this mount point.
    """
    prepare(directory)
    path = directory / f"{name_of(mount_point)}{_SUFFIX}"
    if len(os.fsencode(path)) > _MAX_SOCKET_PATH:
        raise OSError(errno.ENAMETOOLONG, "too long for the path of a socket", str(path))
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    with contextlib.ExitStack() as undo:
        undo.callback(listener.close)
        os.fchmod(listener.fileno(), 0o600)  # which bind(2) gives to the name
        with _locked(path.parent):
            _clear_stale(path)
            listener.bind(os.fspath(path))
            listener.listen(_BACKLOG)
            control = ControlSocket(path, listener)
        undo.pop_all()
    return control


def _clear_stale(path: Path) -> None:
    if _is_socket(path) and is_answering(path):
        raise OSError(errno.EADDRINUSE, "another s3mount answers there", str(path))
    path.unlink(missing_ok=True)


def is_answering(path: Path) -> bool:
    """Whether a process listens on a socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as probe:
        probe.setblocking(False)  # noqa: FBT003
        try:
            probe.connect(os.fspath(path))
        except BlockingIOError:
            return True  # its backlog is full
        except OSError:
            return False
    return True


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Names in the directory change under this lock, so that no new socket is taken for a stale one."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
