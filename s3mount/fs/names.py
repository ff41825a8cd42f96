"""What all verbs on names have in common: what is under a path, and new entries for the kernel.

What there is, is answered from the cache, as the look-up before the call was; that nothing is replaced or lost all the
same is what the conditions of the requests are for.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from s3mount.cache.answers import Record
from s3mount.core.attrs import FileAttrs, ObjectStat
from s3mount.core.inode import Inode
from s3mount.core.keys import fits_in_key
from s3mount.errors import AlreadyExists, KeyTooLong, NameNotFound, ObjectChanged
from s3mount.fs.removals import Removals
from s3mount.fs.tree import Tree
from s3mount.fs.write_policy import WritePolicy

T = TypeVar("T")

#: Attempts at what another host replaces meanwhile.
_ATTEMPTS = 3


@dataclass(frozen=True)
class Names:
    """Looks up, and makes."""

    tree: Tree
    policy: WritePolicy
    removals: Removals

    async def resolve(self, path: str) -> Record:
        """What is under a path.

        Raises:
            NameNotFound, StoreError.
        """
        versions = self.tree.versions
        return await versions.waits.of_names(versions.resolver.resolve(path))

    async def named(self, path: str) -> Record:
        """What was under a path when S3 was last asked, however long ago: for what does no harm if that is wrong.

        Raises:
            NameNotFound, StoreError.
        """
        return self.tree.cache.last_record(path) or await self.resolve(path)

    async def fresh(self, path: str) -> Record:
        """As `resolve`, by S3's word now."""
        versions = self.tree.versions
        return await versions.waits.of_names(versions.resolver.resolve(path, not_before=self.tree.cache.now()))

    async def to_remove(self, path: str) -> Record:
        """As `named`; where somebody reads the file as `fresh`: it goes later, and then no other version does."""
        record = await self.named(path)
        inode = record.found and self.tree.inodes.peek(path, record.found)
        is_read = inode is not None and inode.handles > 0 and inode.unsaved is None
        return await self.fresh(path) if is_read else record

    async def there(self, path: str) -> Record | None:
        """As `resolve`; None for nothing."""
        try:
            return await self.resolve(path)
        except NameNotFound:
            return None

    async def new_path(self, parent_ino: int, name: bytes, what: str, suffix: str = "") -> str:
        """A path that nothing has; what was removed there is gone in S3.

        Args:
            what: is to be made; suffix: of its key.

        Raises:
            AlreadyExists, InvalidName, KeyTooLong, NotADirectory, ReadOnlyMount, StaleInode, StoreError.
        """
        path = self.tree.path_of(parent_ino, name)
        self.policy.check_create(path, what)
        check_fits(path + suffix)
        await self.removals.settle(path)
        if await self.there(path) is not None:
            raise AlreadyExists("there is one", key=path, operation=what)
        return path

    @contextmanager
    def taking(self, path: str) -> Iterator[None]:
        """While S3 is asked to make something: when it says that there is something, the next look-up finds it."""
        try:
            yield
        except AlreadyExists:
            self.tree.cache.drop(path)
            raise

    async def retried(self, path: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try again, when another host replaced what is under a path since it was looked up."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return await attempt()
            except ObjectChanged:
                self.tree.cache.drop(path)
        return await attempt()

    def made(self, path: str, found: ObjectStat) -> FileAttrs:
        """S3 has an object that was made for a path; the kernel holds one more reference."""
        self.tree.cache.made(path, found)
        return self.granted(self.tree.intern(path, found))

    def granted(self, inode: Inode) -> FileAttrs:
        """The kernel holds one more reference to an inode."""
        self.tree.inodes.grant(inode)
        return self.tree.attrs(inode, self.tree.cache.ages.fresh_s(inode.key))


def check_fits(key: str) -> None:
    """Raises KeyTooLong when S3 takes no such key."""
    if not fits_in_key(key):
        raise KeyTooLong(f"{key!r} is longer than a key can be")
