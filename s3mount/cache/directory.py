"""One cache directory: the file operations, all of which may block and belong in threads.

    DIR/v1/3f/3f…       one block (core.blockfile), named by 40 hexadecimal digits, in a folder by the first two
    DIR/v1/new/…        blocks being written; rename(2) into place makes a block whole or absent

Any number of processes use a directory at once.  Readers and writers need no lock: a name has one
content only, a block appears by rename and goes by unlink, and an open descriptor keeps what it has.
Who evicts holds a flock(2) on the folder `v1` itself: a file for it could not be made on a full disk.
A block's mtime is its last use.

Nothing is synced to the disk: after a power failure a block may be torn, and then its checksums
are wrong.  After kill -9 the kernel still has every byte.

Other versions of the format lie beside `v1`, in folders this module does not read.  Their blocks
are removed when they were not used for a week, or for an hour when there is no room for new ones: a version
that nobody runs any more must not keep the disk from the one that runs.  Only files with the names of blocks
are ever removed.
"""

import contextlib
import errno
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from s3mount.cache.access import Access
from s3mount.cache.filling import FileFiller
from s3mount.core.blockfile import VERSION
from s3mount.core.cells import BLOCK_SIZE
from s3mount.core.lru import N_FOLDERS, KnownBlock
from s3mount.errors import BadOption

#: A writer that has not renamed its file by then is dead, or will find that it is gone and go on.
_NEW_FILES_LIVE_S = 600.0
#: Longer than a weekend, so that going back to the version of Friday finds its blocks.
_OTHER_VERSIONS_LIVE_S = 7 * 86_400.0
#: A mount of the other version that runs now writes down what it uses twice a minute (cache.upkeep).
_OTHER_VERSIONS_IN_THE_WAY_LIVE_S = 3_600.0
_BLOCK = re.compile(r"[0-9a-f]{40}")
_OTHER_VERSION = re.compile(r"v\d+")
_FOLDER = re.compile(r"[0-9a-f]{2}")
#: Files of others are not ours to remove, whatever somebody put in the folder's place.
_NEW = re.compile(r"\d+-[0-9a-f]+-[0-9a-f]{40}-\d+")


class Space(NamedTuple):
    """Bytes of the file system: all of it, and what an ordinary user may still write."""

    total: int
    free: int


class BlockDirectory:
    """The files of one cache directory.

    Args:
        path: of the directory; made if it is missing.
        group: gid of those who share it; None for one user.
    """

    def __init__(self, path: Path, group: int | None = None) -> None:
        self.path = path
        self._access = Access(path, group)
        self._filler = FileFiller()
        self._root = f"{path}/v{VERSION}"
        self._device = 0
        self._serial = 0

    def prepare(self) -> None:
        """Make what is missing and check who may write here.

        Raises:
            BadOption: the directory cannot be used; the message says what to do.
        """
        self._access.check_member()
        try:
            if not self.path.exists():
                with contextlib.suppress(FileExistsError):  # another mount starts now
                    self._access.make_folder(str(self.path))
            self._make_and_check()
            self._device = os.stat(self.path).st_dev
        except OSError as error:
            raise BadOption(
                f"--cache {self.path}: {error.strerror}; name a directory this user may write to, on a local disk"
            ) from error

    def _folders(self) -> Iterator[str]:
        yield self._root
        for name in ("new", *(f"{number:02x}" for number in range(N_FOLDERS))):
            yield f"{self._root}/{name}"

    def _make_and_check(self) -> None:
        self._access.check(str(self.path))
        for folder in self._folders():
            with contextlib.suppress(FileExistsError):
                self._access.make_folder(folder)
            self._access.check(folder)

    def restore(self) -> None:
        """Make the folders again, if the directory is there, on the disk it was on, and only its users may change it.

        Raises:
            OSError: it is not; on another disk it would fill that one, and who made it could forge what is in it.
        """
        if os.stat(self.path).st_dev != self._device:
            raise FileNotFoundError(2, "another file system is mounted there", str(self.path))
        try:
            self._make_and_check()
        except BadOption as error:
            raise PermissionError(errno.EPERM, str(error), str(self.path)) from error

    def path_of(self, name: bytes) -> str:
        """Where a block is, if it is."""
        digits = name.hex()
        return f"{self._root}/{digits[:2]}/{digits}"

    def open(self, name: bytes, *, is_direct: bool = False) -> int:
        """A descriptor of a block; direct ones read past the kernel's memory, where the file system has that.

        Raises:
            OSError: FileNotFoundError when it is absent.
        """
        direct = os.O_DIRECT if is_direct else 0
        return os.open(self.path_of(name), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | direct)

    def write(self, name: bytes, header: bytes, content: memoryview) -> None:
        """A block, whole or not at all.

        Raises:
            OSError: nothing was written.
        """
        self._serial += 1
        new = f"{self._root}/new/{os.getpid()}-{id(self):x}-{name.hex()}-{self._serial}"
        fd = self._access.make_file(new)
        try:
            try:
                self._filler.fill(fd, header, content)
            finally:
                os.close(fd)
            os.rename(new, self.path_of(name))
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(new)
            raise

    def remove(self, name: bytes) -> bool:
        """Remove a block, whoever reads it: descriptors keep what they have. Returns whether it was there."""
        try:
            os.unlink(self.path_of(name))
        except FileNotFoundError:
            return False
        return True

    def last_use(self, name: bytes) -> float | None:
        """When a block was last used, by any process; None when it is gone."""
        try:
            return os.stat(self.path_of(name)).st_mtime
        except FileNotFoundError:
            return None

    def touch(self, name: bytes, used_s: float) -> None:
        """Keep when a block was last used."""
        with contextlib.suppress(FileNotFoundError):
            self._access.touch(self.path_of(name), used_s)

    def blocks(self, folder: int) -> list[KnownBlock]:
        """All blocks in one folder; none when the folder is gone."""
        found: list[KnownBlock] = []
        try:
            entries = os.scandir(f"{self._root}/{folder:02x}")
        except FileNotFoundError:
            return found
        with entries:
            for entry in entries:
                if _BLOCK.fullmatch(entry.name):
                    with contextlib.suppress(FileNotFoundError):
                        status = entry.stat(follow_symlinks=False)
                        found.append(KnownBlock(bytes.fromhex(entry.name), status.st_size, status.st_mtime))
        return found

    def folder_times(self) -> list[int]:
        """When each folder last changed, ns; 0 for one that is gone."""
        times = []
        for folder in range(N_FOLDERS):
            try:
                times.append(os.stat(f"{self._root}/{folder:02x}").st_mtime_ns)
            except FileNotFoundError:
                times.append(0)
        return times

    def space(self) -> Space:
        """What statvfs says now."""
        found = os.statvfs(self.path)
        return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    @contextlib.contextmanager
    def eviction(self) -> Iterator[bool]:
        """Whether this process may evict now: one does at a time, so that not each removes what all need."""
        fd = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(fd)

    def clean(self, now: float, room: int) -> int:
        """Remove what dead writers and other versions left. Returns how many files.

        Args:
            room: bytes that may be written as it is.
        """
        live_s = _OTHER_VERSIONS_LIVE_S if room >= BLOCK_SIZE else _OTHER_VERSIONS_IN_THE_WAY_LIVE_S
        removed = _remove_old(f"{self._root}/new", now - _NEW_FILES_LIVE_S, _NEW)
        for version in os.listdir(self.path):
            if not _OTHER_VERSION.fullmatch(version) or version == f"v{VERSION}":
                continue
            with contextlib.suppress(NotADirectoryError):
                for folder in filter(_FOLDER.fullmatch, os.listdir(self.path / version)):
                    removed += _remove_old(f"{self.path}/{version}/{folder}", now - live_s, _BLOCK)
        return removed


def _remove_old(folder: str, before: float, names: re.Pattern[str]) -> int:
    removed = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                if names.fullmatch(entry.name) and entry.stat(follow_symlinks=False).st_mtime < before:
                    os.unlink(entry.path)
                    removed += 1
    return removed
