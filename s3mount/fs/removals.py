"""Names that were removed and whose DELETE is on its way: many of them in one request.

    unlink                the name is gone here at once (cache.local_names); the DELETE leaves within `BATCH_S`, or
                          with the `MAX_DELETES`th name
    rmdir, fsync of a directory, sync, something new under the name
                          what they are about is deleted before they go on: `settle`
    S3 refuses            an error in the log, the name is there again, and the next `settle` that is about it raises
    a reader has it open  the DELETE waits for its last close, up to `HOLD_S`, so that it reads on; `settle` of the name
                          itself, or of everything, does not wait.  What is not much is kept then (fs.holds), and
                          what another host wrote under the name meanwhile stays
    a marker              goes after all that was in its directory: see `fs.removal_order`

INVARIANT: as long as a name waits here, nothing is under it in this mount.
"""

import logging
from collections.abc import Callable, Iterator

import trio

from s3mount.cache.metadata import MetadataCache
from s3mount.core.attrs import ObjectId
from s3mount.core.inode import Inode
from s3mount.core.keys import is_below, split_key
from s3mount.errors import NotSupported, StoreError
from s3mount.fs.deletion import delete_version
from s3mount.fs.holds import Holds
from s3mount.fs.kept_directories import KeptDirectories
from s3mount.fs.kernel_view import KernelView
from s3mount.fs.removal import Removal, RemovalStatistics
from s3mount.fs.removal_order import in_turn
from s3mount.store.writing import MAX_DELETES, Writer

log = logging.getLogger(__name__)

#: Seconds from the first name to its DELETE: below what another host takes notice of, above what a program takes from
#: one unlink to the next.
BATCH_S = 0.1
#: Seconds for which readers of a removed file keep it in S3, and between two looks at whether they are gone.
HOLD_S = 60.0
_LOOK_S = 1.0
#: Refusals remembered for whoever settles.
_MAX_REFUSALS = 1000


class Removals:
    """The DELETEs of one mount.

    Args:
        kept: is told of directories that may have lost their last key.
        holds: keep what readers have open.
        nursery: the mount's.
        clock: of the hold.
    """

    def __init__(
        self,
        cache: MetadataCache,
        kernel: KernelView,
        kept: KeptDirectories,
        writer: Writer,
        holds: Holds,
        nursery: trio.Nursery,
        clock: Callable[[], float] = trio.current_time,
    ) -> None:
        self._cache = cache
        self._kernel = kernel
        self._kept = kept
        self._writer = writer
        self._holds = holds
        self._nursery = nursery
        self._clock = clock
        self._waiting: dict[str, Removal] = {}
        self._sent: dict[str, Removal] = {}
        self._refusals: dict[str, StoreError] = {}
        self._is_working = False
        self._full = trio.Event()
        self._answered = trio.Event()
        self._batches = self._n_removed = self._n_refused = 0

    def add(self, path: str, found: ObjectId, inode: Inode | None = None) -> None:
        """Nothing has a name any more.

        Args:
            path: without a trailing slash; found: the object that is to go, as it is now if somebody has it open.
        """
        self._cache.local.add_removed(path)
        self._refusals.pop(path, None)
        etag = found.etag if inode is not None and inode.handles else ""
        self._waiting[path] = Removal(path, found.key, inode, etag, self._clock() + HOLD_S)
        if len(self._waiting) >= MAX_DELETES:
            self._full.set()
        if not self._is_working:
            self._is_working = True
            self._nursery.start_soon(self._work)

    def keys_below(self, directory_key: str) -> set[str]:
        """Keys that S3 may list still."""
        return {each.key for each in self._all() if each.key.startswith(directory_key)}

    def directory_removed(self, directory_key: str) -> None:
        """A directory is gone; what waits for readers of its files does not bring it back."""
        for each in self._all():
            if each.key.startswith(directory_key):
                each.is_alone = True

    async def settle(self, path: str, *, waits_for_readers: bool = False) -> None:
        """What was removed under a path, or below it, is gone in S3 when this returns.

        Args:
            path: without a trailing slash; empty for everything.
            waits_for_readers: leave what somebody has open.

        Raises:
            StoreError: S3 refused one of them, now or earlier; its name is there again.
        """
        while True:
            due = [each for each in self._waiting.values() if is_below(each.path, path)]
            held = [each for each in due if waits_for_readers and self._is_held(each)]
            due = in_turn(due, held, self._sent.values())
            if due:
                await self._send(due)
            elif any(is_below(sent, path) for sent in self._sent):
                await self._answered.wait()
            else:
                break
        refused = [each for each in self._refusals if is_below(each, path)]
        errors = [self._refusals.pop(each) for each in refused]
        if errors:
            raise errors[0]

    def _all(self) -> Iterator[Removal]:
        yield from self._waiting.values()
        yield from self._sent.values()

    def _is_held(self, removal: Removal) -> bool:
        is_open = removal.inode is not None and removal.inode.handles > 0
        return is_open and self._clock() < removal.held_until

    def _due(self) -> list[Removal]:
        waiting = list(self._waiting.values())
        return in_turn(waiting, [each for each in waiting if self._is_held(each)], self._sent.values())

    async def _work(self) -> None:
        """Send what nobody settles; ends when nothing waits."""
        try:
            while self._waiting:
                self._full = trio.Event()
                with trio.move_on_after(BATCH_S if self._due() else _LOOK_S):
                    await self._full.wait()
                if due := self._due():
                    await self._send(due)
        finally:
            self._is_working = False

    async def _send(self, due: list[Removal]) -> None:
        """One request; what it leaves for the next one still waits."""
        batch = due[:MAX_DELETES]
        for each in batch:
            del self._waiting[each.path]
            self._sent[each.path] = each
        self._keep(batch)
        refused = None
        try:
            for each in batch:
                if each.inode is not None:
                    await self._holds.keep(each.inode)
            refused = await self._deleted(batch)
        finally:
            for each in batch:
                del self._sent[each.path]
                if refused is None:  # cancelled: it may have been done, and is done again
                    self._waiting[each.path] = each
                else:
                    self._end(each, refused.get(each.key))
            self._keep(batch)
            self._answered.set()
            self._answered = trio.Event()

    def _keep(self, batch: list[Removal]) -> None:
        """Before and after, since S3 may be asked at any time whether a directory has keys."""
        for directory_key in {split_key(each.path)[0] for each in batch if not each.is_alone}:
            self._kept.keep(directory_key)

    async def _deleted(self, batch: list[Removal]) -> dict[str, StoreError]:
        """Of what waited for readers only that version goes: another host may have used the name since."""
        refused: dict[str, StoreError] = {}
        for each in [each for each in batch if each.etag]:
            self._batches += 1
            try:
                each.is_kept = not await delete_version(self._writer, each.key, each.etag)
            except StoreError as error:
                refused[each.key] = error
        keys = [each.key for each in batch if not each.etag]
        return refused | (await self._deleted_together(keys) if keys else {})

    async def _deleted_together(self, keys: list[str]) -> dict[str, StoreError]:
        self._batches += 1
        try:
            if len(keys) > 1:
                return await self._writer.delete_many(keys)
            await self._writer.delete(keys[0])
        except NotSupported:
            return await self._one_by_one(keys)
        except StoreError as error:
            return dict.fromkeys(keys, error)
        return {}

    async def _one_by_one(self, keys: list[str]) -> dict[str, StoreError]:
        refused: dict[str, StoreError] = {}
        for key in keys:
            try:
                await self._writer.delete(key)
            except StoreError as error:
                refused[key] = error
        return refused

    def _end(self, removal: Removal, error: StoreError | None) -> None:
        path = removal.path
        self._cache.local.forget_removed(path)
        if removal.is_kept:
            self._cache.drop(path)
            self._kernel.forget_name(path)
        elif error is None:
            self._n_removed += 1
            self._cache.gone(path)
        if error is None:
            return
        self._n_refused += 1
        log.error("%r was removed and is there again: %s", path, error)
        error.logged = True
        self._cache.drop(path)
        self._kernel.forget_name(path)
        if len(self._refusals) < _MAX_REFUSALS:
            self._refusals[path] = error

    def statistics(self) -> RemovalStatistics:
        """A snapshot of the counters."""
        held = sum(self._is_held(each) for each in self._waiting.values())
        waiting = len(self._waiting) + len(self._sent)
        return RemovalStatistics(waiting, held, self._batches, self._n_removed, self._n_refused)

    def check_invariants(self) -> None:
        """Raises ValueError when something is under a name that waits, or nobody sends it."""
        if self._waiting and not self._is_working:
            raise ValueError("names wait for nobody")
        for each in self._all():
            if self._cache.last_record(each.path) is not None:
                raise ValueError(f"{each.path!r} was removed and is there")
