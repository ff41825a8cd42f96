"""Renames of anything: which may be, by what is under both names, and by whom they are done.

The rules are those of rename(2): a file may replace a file, a directory an empty directory.
"""

from functools import partial

from s3mount.cache.answers import Record
from s3mount.core.attrs import ObjectStat
from s3mount.core.keys import SEPARATOR
from s3mount.errors import AlreadyExists, InvalidName, IsADirectory, NotADirectory
from s3mount.fs.directory_renames import DirectoryRenames
from s3mount.fs.file_renames import FileRenames
from s3mount.fs.names import Names, check_fits


class Renames:
    """Renames in one mount."""

    def __init__(self, names: Names, files: FileRenames, directories: DirectoryRenames) -> None:
        self._names = names
        self._files = files
        self._directories = directories

    async def rename(self, path: str, new_path: str, *, may_replace: bool) -> None:
        """See `Namespace.rename`; both without a trailing slash."""
        for each in path, new_path:
            self._names.policy.check_edit(each, "rename")
        if path == new_path:
            return
        if new_path.startswith(path + SEPARATOR):
            raise InvalidName(f"{path!r} cannot be moved into itself")
        await self._names.retried(path, partial(self._attempt, path, new_path, may_replace=may_replace))

    async def _attempt(self, path: str, new_path: str, *, may_replace: bool) -> None:
        found = (await self._names.named(path)).found
        check_fits(new_path + (SEPARATOR if found is None else found.key.removeprefix(path)))
        replaced = await self._names.there(new_path)
        if replaced is not None:
            _check(new_path, found, replaced, may_replace=may_replace)
        await self._names.removals.settle(new_path)
        if found is not None:
            with self._names.taking(new_path):
                await self._files.rename(path, found, new_path, replaced, is_new=not may_replace)
            return
        await self._names.removals.settle(path)
        old_key, new_key = path + SEPARATOR, new_path + SEPARATOR
        for each in old_key, new_key:
            self._names.policy.check_move(each)
        await self._directories.rename(old_key, new_key, is_replacing=replaced is not None)

    async def go_on(self, path: str, new_path: str) -> None:
        """End a rename of a directory that a daemon may have begun before it died."""
        await self._directories.go_on(path + SEPARATOR, new_path + SEPARATOR)

    def check_invariants(self) -> None:
        """Raises ValueError when a part's invariant does not hold."""
        self._directories.check_invariants()


def _check(path: str, found: ObjectStat | None, replaced: Record, *, may_replace: bool) -> None:
    """Whether something may take the place of what is under a path."""
    if not may_replace:
        raise AlreadyExists("there is one", key=path, operation="rename")
    if found is None and replaced.found is not None:
        raise NotADirectory(f"{path!r} is a file")
    if found is not None and replaced.found is None:
        raise IsADirectory(f"{path!r} is a directory")
