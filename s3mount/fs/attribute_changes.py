"""chmod, chown and utime: shown at once, and with --posix-metadata soon in S3.

    the file is being written        its next publication has it (fs.draft_attributes)
    it is not                        `DELAY_S` after the first change one copy of the object onto itself has them all
    fsync, link, end of the mount    what they are about has it before they go on: `settle`
    rename                           the copy under the new name has it
    directory, or no leave to edit   kept while mounted
    S3 refuses                       an error in the log, what S3 has is shown again, and the next `settle` raises

INVARIANT: an object is not copied onto itself while its name is `held`: by a rename, which would bring it back.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from s3mount.cache.shown import Shown
from s3mount.core.attrs import FileAttrs, ObjectStat
from s3mount.core.inode import Inode
from s3mount.core.keys import is_directory_key
from s3mount.core.posix import Posix, formatted
from s3mount.errors import StoreError
from s3mount.fs.drafts import Drafts
from s3mount.fs.tree import Tree
from s3mount.fs.write_policy import WritePolicy
from s3mount.store.writing import Attributes

log = logging.getLogger(__name__)

#: Seconds from the first change to the copy: programs make several in a row.
DELAY_S = 0.5
#: Copies at once, of what is settled together.
_AT_ONCE = 32
#: Refusals remembered for whoever settles.
_MAX_REFUSALS = 1000


class AttributeChanges:
    """Changes of attributes in one mount.

    Args:
        nursery: the mount's.
    """

    def __init__(self, tree: Tree, drafts: Drafts, policy: WritePolicy, nursery: trio.Nursery) -> None:
        self._tree = tree
        self._drafts = drafts
        self._stamps = drafts.stamps
        self._policy = policy
        self._nursery = nursery
        self._waiting: dict[Inode, None] = {}
        self._busy: set[str] = set()
        self._held: list[str] = []
        self._lot = trio.lowlevel.ParkingLot()
        self._refusals: dict[str, StoreError] = {}

    def set(self, inode: Inode, change: Shown) -> FileAttrs:
        """A program set some; returns all.

        Raises:
            ReadOnlyMount.
        """
        self._policy.check_create(inode.key, "set attributes of")
        if self._tree.stored.is_on:
            change = Shown(*change.posix.as_kept)  # as it will be read
        self._tree.shown.set(inode, change)
        has_none = inode.is_directory or inode.is_orphan
        if not has_none and inode not in self._waiting and self._stamps.is_pending(inode.key):
            self._waiting[inode] = None
            self._nursery.start_soon(self._follow, inode)
        return self._tree.attrs(inode, 0.0)

    def created(self, inode: Inode, made: Posix) -> None:
        """A program made a file: with that mode, as the kernel leaves it of that, and by a user of that group."""
        stored, owner = self._tree.stored, self._tree.owner
        said = stored.config.counting(made).as_kept if stored.is_on else Posix(made.mode)
        self._tree.shown.set(inode, Shown(*said.unlike(Posix(owner.file_mode, owner.uid, owner.gid))))

    async def _follow(self, inode: Inode) -> None:
        try:
            await trio.sleep(DELAY_S)
        finally:
            del self._waiting[inode]
        try:
            await self._commit(inode.key)
        except StoreError as error:
            log.error("attributes of %r are not in S3: %s", inode.key, error)  # noqa: TRY400  the error says it all
            self._refuse(inode.key, error)

    def _refuse(self, path: str, error: StoreError) -> None:
        self._tree.shown.removed(path)
        self._tree.kernel.forget_name(path)
        self._refusals[path] = error
        if len(self._refusals) > _MAX_REFUSALS:
            del self._refusals[next(iter(self._refusals))]

    async def settle(self, path: str) -> None:
        """What was set of a file is in S3 when this returns.

        Raises:
            StoreError: it is not.
        """
        await self._commit(path)
        refusal = self._refusals.pop(path, None)
        if refusal is not None:
            raise refusal

    async def settle_below(self, prefix: str) -> None:
        """As `settle`, of all whose path starts with a prefix; what fails ends the others."""
        failures: list[StoreError] = []
        limit = trio.CapacityLimiter(_AT_ONCE)

        async def work(path: str) -> None:
            try:
                async with limit:
                    await self._commit(path)
            except StoreError as error:
                failures.append(error)

        async with trio.open_nursery() as nursery:
            for path in self._tree.shown.keys_below(prefix):
                nursery.start_soon(work, path)
        if failures:
            raise failures[0]

    async def settle_all(self) -> None:
        """As `settle_below`, of everything; what was refused earlier is raised, too, if nobody was told."""
        try:
            await self.settle_below("")
        finally:
            earlier = list(self._refusals.values())
            self._refusals.clear()
        if earlier:
            raise earlier[0]

    async def _commit(self, path: str) -> None:
        """Copy an object onto itself with what was set, if that has to be."""
        await self.quiet(path, is_held=True)
        draft = self._drafts.find(path)
        if not self._stamps.is_pending(path) or is_directory_key(path) or (draft is not None and draft.is_unsaved):
            return
        if draft is not None:
            await draft.fsync()
            return
        record = self._tree.cache.last_record(path)
        if record is None or record.found is None or not self._policy.may_edit(path):
            return
        self._busy.add(path)
        try:
            self._copied(path, record.found, *await self._stamps.copied(path, record.found))
        finally:
            self._busy.remove(path)
            self._lot.unpark_all()

    def _copied(self, path: str, old: ObjectStat, found: ObjectStat, attributes: Attributes) -> None:
        tree = self._tree
        inode = tree.inodes.peek(path, old)
        if inode is not None:
            tree.inodes.rewrite(inode, path, found)
        tree.cache.made(path, found)
        tree.shown.saved(path, found.etag)
        self._stamps.made(path, found, attributes)

    async def quiet(self, path: str, *, is_held: bool = False) -> None:
        """Wait until no object under a path is being copied onto itself.

        Args:
            is_held: also until nobody holds it.
        """
        while path in self._busy or (is_held and path.startswith(tuple(self._held))):
            await self._lot.park()

    async def opened(self, inode: Inode, attributes: Attributes, *, is_new: bool) -> Attributes:
        """A file is about to be written: what its object is made with, if it is made anew.

        Args:
            attributes: of any object.
            is_new: it is cut off to nothing; its mode and owner stay.

        Raises:
            StaleInode, StoreError.
        """
        if inode.unsaved is not None:
            return attributes
        await self.quiet(inode.key)
        if not is_new:
            return attributes
        await self._tree.stored.learn(inode)
        if inode.stored is None:
            return attributes
        kept = formatted(inode.stored.posix._replace(mtime_s=None))
        return Attributes(attributes.headers, {**attributes.metadata, **kept})

    @asynccontextmanager
    async def held(self, *prefixes: str) -> AsyncIterator[None]:
        """No object whose path starts with one of them is copied onto itself meanwhile."""
        self._held += prefixes
        try:
            while any(path.startswith(prefixes) for path in self._busy):
                await self._lot.park()
            yield
        finally:
            for prefix in prefixes:
                self._held.remove(prefix)
            self._lot.unpark_all()

    @property
    def n_waiting(self) -> int:
        """Files whose change is on its way."""
        return len(self._waiting)

    def check_invariants(self) -> None:
        """Raises ValueError when more refusals are remembered than may be, or what is held is copied."""
        if len(self._refusals) > _MAX_REFUSALS:
            raise ValueError(f"{len(self._refusals)} refusals are remembered")
