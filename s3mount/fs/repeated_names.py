"""The verbs on names after a takeover: a call that a dead daemon may have done already succeeds if it has.

    mkdir            there is a directory
    symlink          there is a link that points there
    link             there is a file that is a copy of this one
    unlink, rmdir    nothing has the name
    rename           nothing has the old name, and something the new one; or both have it, and the new one is a copy:
                     then it is done to its end, of a directory too

A copy is known by its ETag, or by the token that S3 copies with an object (decision 0034).
"""

from s3mount.core.attrs import FileAttrs, ObjectStat
from s3mount.core.symlinks import is_link_key
from s3mount.errors import AlreadyExists, DirectoryNotEmpty, NameNotFound, ObjectNotFound
from s3mount.fs.interrupted import InterruptedCalls
from s3mount.fs.namespace import Namespace
from s3mount.store.patient_writer import TOKEN


class RepeatedNames(Namespace):
    """A `Namespace` for a kernel that sends calls again.

    Attributes:
        interrupted: the calls.
    """

    interrupted: InterruptedCalls

    async def mkdir(self, parent_ino: int, name: bytes, mode: int) -> FileAttrs:
        """See `Namespace.mkdir`."""
        is_again = self.interrupted.take("mkdir", parent_ino, name)
        try:
            return await super().mkdir(parent_ino, name, mode)
        except AlreadyExists:
            path = self._tree.path_of(parent_ino, name)
            if not is_again or (await self._names.fresh(path)).found is not None:
                raise
            return self._names.granted(self._tree.intern(path, None))

    async def symlink(self, parent_ino: int, name: bytes, target: bytes) -> FileAttrs:
        """See `Namespace.symlink`."""
        is_again = self.interrupted.take("symlink", parent_ino, name)
        try:
            return await super().symlink(parent_ino, name, target)
        except AlreadyExists:
            path = self._tree.path_of(parent_ino, name)
            found = (await self._names.fresh(path)).found
            if not is_again or found is None or not is_link_key(found.key):
                raise
            if await self._symlinks.read(found) != target:
                raise
            return self._names.made(path, found)

    async def link(self, ino: int, parent_ino: int, name: bytes) -> FileAttrs:
        """See `Namespace.link`."""
        is_again = self.interrupted.take("link", parent_ino, name)
        try:
            return await super().link(ino, parent_ino, name)
        except AlreadyExists:
            path = self._tree.path_of(parent_ino, name)
            found, source = (await self._names.fresh(path)).found, self._tree.inodes.get(ino).found
            if not is_again or not await self._is_copy(source, found) or found is None:
                raise
            return self._names.made(path, found)

    async def unlink(self, parent_ino: int, name: bytes) -> None:
        """See `Namespace.unlink`."""
        is_again = self.interrupted.take("unlink", parent_ino, name)
        try:
            await super().unlink(parent_ino, name)
        except NameNotFound:
            if not is_again:
                raise

    async def rmdir(self, parent_ino: int, name: bytes) -> None:
        """See `Namespace.rmdir`."""
        is_again = self.interrupted.take("rmdir", parent_ino, name)
        try:
            await super().rmdir(parent_ino, name)
        except NameNotFound:
            if not is_again:
                raise

    async def rename(
        self, parent_ino: int, name: bytes, new_parent_ino: int, new_name: bytes, *, may_replace: bool
    ) -> None:
        """See `Namespace.rename`."""
        is_again = self.interrupted.take("rename", parent_ino, name)
        try:
            await super().rename(parent_ino, name, new_parent_ino, new_name, may_replace=may_replace)
        except (AlreadyExists, DirectoryNotEmpty, NameNotFound):
            if not is_again:
                raise
            path, new_path = self._tree.path_of(parent_ino, name), self._tree.path_of(new_parent_ino, new_name)
            if not await self._goes_on(path, new_path):
                raise

    async def _goes_on(self, path: str, new_path: str) -> bool:
        """Whether a rename has been done, or is done to its end now."""
        old, new = await self._names.there(path), await self._names.there(new_path)
        if old is None or new is None:
            return new is not None
        if old.found is None and new.found is None:
            await self._renames.go_on(path, new_path)
        elif await self._is_copy(old.found, new.found):
            await self._renames.rename(path, new_path, may_replace=True)
        else:
            return False
        return True

    async def _is_copy(self, source: ObjectStat | None, found: ObjectStat | None) -> bool:
        if source is None or found is None or source.size != found.size:
            return False
        if source.etag == found.etag:
            return True
        try:
            tokens = [
                (await self._writer.describe(each.key)).attributes.metadata.get(TOKEN) for each in (source, found)
            ]
        except ObjectNotFound:
            return False
        return tokens[0] is not None and tokens[0] == tokens[1]
