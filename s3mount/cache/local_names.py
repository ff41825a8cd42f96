"""What this mount knows of names before S3 does, or better: it comes before every cache and every question.

    a file being written      S3 has an older version, or none
    a directory made here     S3 has nothing until something is in it
    a name that was removed   the DELETE is on its way

INVARIANT: a name is one of them at most; the file under a path is the inode with that key.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from s3mount.cache.answers import Absence, Record
from s3mount.cache.ghosts import Ghosts
from s3mount.core.inode import Inode
from s3mount.core.keys import SEPARATOR, split_key
from s3mount.core.listing import Entry

#: Seconds for which the kernel may use such an answer; what changes it here changes it in the kernel.
_GOOD_S = 1.0


class _Special(Enum):
    DIRECTORY = "directory"
    REMOVED = "removed"


@dataclass(frozen=True)
class LocalStatistics:
    """Names known here: of files being written, directories, and names whose removal is on its way."""

    files: int
    directories: int
    removed: int


class LocalNames:
    """By directory and name.

    Args:
        timer: of the metadata cache.

    Attributes:
        ghosts: directories that were removed here.
    """

    def __init__(self, timer: Callable[[], float]) -> None:
        self._timer = timer
        self._names: dict[str, dict[str, Inode | _Special]] = {}
        self.ghosts = Ghosts(timer)

    # -- asked of it ----------------------------------------------------------------------------

    def answer(self, path: str) -> Record | Absence | None:
        """What is under a path; None when that is not decided here."""
        if not self._names:
            return None
        known = self._known(path)
        if known is None:
            return None
        now = self._timer()
        if known is _Special.REMOVED:
            return Absence(now, now + _GOOD_S)
        return Record(known.found if isinstance(known, Inode) else None, now, now + _GOOD_S)

    def entries(self, directory_key: str) -> list[Entry]:
        """What a listing of a directory may lack, in order of the names."""
        names = self._names.get(directory_key, {})
        return [
            Entry(name, known.found if isinstance(known, Inode) else None)
            for name, known in sorted(names.items(), key=lambda each: each[0])
            if known is not _Special.REMOVED
        ]

    def corrected(self, directory_key: str, listed: Sequence[Entry | None]) -> Sequence[Entry | None]:
        """Entries of a listing as they are here; None for one that is removed."""
        names = self._names.get(directory_key)
        if self.ghosts:
            listed = [None if entry and self.ghosts.has(directory_key, entry) else entry for entry in listed]
        if names is None:
            return listed
        return [entry and _corrected(entry, names.get(entry.name)) for entry in listed]

    def removed_below(self, directory_key: str) -> set[str]:
        """Paths below a directory, and its own, whose removal is on its way: S3 lists them still."""
        path = directory_key.removesuffix(SEPARATOR)
        itself = {path} if self._known(path) is _Special.REMOVED else set()
        return itself | {
            parent + name
            for parent, names in self._names.items()
            if parent.startswith(directory_key)
            for name, known in names.items()
            if known is _Special.REMOVED
        }

    def is_directory(self, key: str) -> bool:
        """Whether a directory is there by what is known here."""
        return self._known(key.removesuffix(SEPARATOR)) is _Special.DIRECTORY

    def directories_below(self, directory_key: str) -> list[str]:
        """Keys of the directories known here, below one and itself."""
        return [key for key in self._directory_keys() if key.startswith(directory_key)]

    def _directory_keys(self) -> Iterator[str]:
        for parent, names in self._names.items():
            for name, known in names.items():
                if known is _Special.DIRECTORY:
                    yield parent + name + SEPARATOR

    def _known(self, path: str) -> Inode | _Special | None:
        directory_key, name = split_key(path)
        names = self._names.get(directory_key)
        return None if names is None else names.get(name)

    # -- told to it -----------------------------------------------------------------------------

    def add_file(self, inode: Inode) -> None:
        """A file is being written; the inode says what it is by now."""
        self._put(inode.key, inode)

    def forget_file(self, path: str) -> None:
        """S3 has it, or it is nowhere."""
        if isinstance(self._known(path), Inode):
            self._drop(path)

    def add_directory(self, key: str) -> None:
        """A directory is there, whatever S3 has."""
        path = key.removesuffix(SEPARATOR)
        if path and not isinstance(self._known(path), Inode):
            self.ghosts.forget(path)
            self._put(path, _Special.DIRECTORY)

    def forget_directory(self, key: str) -> None:
        """It is gone, or S3 knows it."""
        if self.is_directory(key):
            self._drop(key.removesuffix(SEPARATOR))

    def add_removed(self, path: str) -> None:
        """Nothing is there any more, and S3 is about to learn it."""
        self._put(path, _Special.REMOVED)

    def forget_removed(self, path: str) -> None:
        """S3 knows it, or refused."""
        if self._known(path) is _Special.REMOVED:
            self._drop(path)

    def _put(self, path: str, known: Inode | _Special) -> None:
        directory_key, name = split_key(path)
        self._names.setdefault(directory_key, {})[name] = known

    def _drop(self, path: str) -> None:
        directory_key, name = split_key(path)
        names = self._names[directory_key]
        del names[name]
        if not names:
            del self._names[directory_key]

    def statistics(self) -> LocalStatistics:
        """A snapshot of the counters."""
        known = [each for names in self._names.values() for each in names.values()]
        directories, removed = known.count(_Special.DIRECTORY), known.count(_Special.REMOVED)
        return LocalStatistics(len(known) - directories - removed, directories, removed)

    def check_invariants(self) -> None:
        """Raises ValueError when a file is not under its key."""
        self.ghosts.check_invariants()
        for directory_key, names in self._names.items():
            for name, known in names.items():
                if isinstance(known, Inode) and (known.key != directory_key + name or known.is_orphan):
                    raise ValueError(f"{known.key!r} is known as {directory_key + name!r}")


def _corrected(entry: Entry, known: Inode | _Special | None) -> Entry | None:
    if known is _Special.REMOVED:
        return None
    if isinstance(known, Inode):
        return Entry(entry.name, known.found)
    return entry if known is None else Entry(entry.name, None)
