"""The composition root: config → store → caches → fs → operations.  Nothing is decided here."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

import trio

from s3mount.cache.disk import DiskCache
from s3mount.cache.inventory import Inventory
from s3mount.cache.metadata import MetadataCache
from s3mount.config import MountConfig
from s3mount.core.inodes import InodeTable
from s3mount.core.policies import PathPolicies
from s3mount.daemon.allocator import HeapLimit, trim
from s3mount.daemon.describing import describing
from s3mount.daemon.keeper import Keeper
from s3mount.daemon.pressure import MemoryWatch
from s3mount.daemon.write_wiring import Shared, spool_threads, writing
from s3mount.daemon.writing import Writing
from s3mount.fs.blocks import BlockStore
from s3mount.fs.budget import ByteBudget
from s3mount.fs.content import ContentReader
from s3mount.fs.directories import DirectoryLister
from s3mount.fs.filesystem import S3FileSystem
from s3mount.fs.misses import MissCounter
from s3mount.fs.probing import NameProbe
from s3mount.fs.resolver import Resolver
from s3mount.fs.selection import Selector
from s3mount.fs.versions import VersionCheck
from s3mount.fs.waits import ReaderWaits
from s3mount.fs.warming import Warmer
from s3mount.fuse.boundary import Boundary
from s3mount.fuse.callers import Callers
from s3mount.fuse.notify import ThreadNotifier
from s3mount.fuse.operations import Operations
from s3mount.fuse.quarantine import Quarantine
from s3mount.fuse.writing import WritingOperations
from s3mount.limits import MemoryUse
from s3mount.store.attempts import Attempts
from s3mount.store.catalogue import SplitCatalogue
from s3mount.store.connect import Connection, connect
from s3mount.store.guarded import GuardedStore
from s3mount.store.guarded_writer import GuardedWriter
from s3mount.store.patient import PatientStore
from s3mount.store.racing import RacingStore
from s3mount.store.retries import Retries

#: Seconds that a whole call gets beyond what a request may take: when S3 is late, the request
#: fails first, and the log names bucket, key and operation.
_NAMING_S = 1.0


@dataclass(frozen=True)
class Components:
    """What the runtime needs of a mount that is put together."""

    operations: Operations
    boundary: Boundary
    filesystem: S3FileSystem
    notifier: ThreadNotifier
    store: GuardedStore
    budget: ByteBudget
    disk: DiskCache | None
    watch: MemoryWatch
    region: str
    selector: Selector
    inventory: Inventory | None
    warmer: Warmer | None
    writing: Writing | None
    waits: ReaderWaits
    patient: PatientStore
    describer: GuardedWriter | None

    async def settle(self) -> None:
        """Another daemon serves this mount from now on."""
        if self.writing is not None:
            await self.writing.hand_over()
        await trio.lowlevel.checkpoint()

    def obstacle(self) -> str:
        """See `Obstacle`."""
        return "" if self.writing is None else self.writing.obstacle()

    @property
    def statistics(self) -> dict[str, Callable[[], object]]:
        """What counts, by a name for the log."""
        return {
            "calls": self.boundary.statistics,
            "file system": self.filesystem.statistics,
            "callers": self.boundary.callers.statistics,
            "requests": self.store.statistics,
            "retries": self.patient.statistics,
            "read budget": self.budget.statistics,
            "memory": self.watch.statistics,
            "notifications": self.notifier.statistics,
            **({} if self.describer is None else {"attributes asked for": self.describer.statistics}),
            **({} if self.writing is None else self.writing.statistics),
            **({} if self.disk is None else {"disk cache": self.disk.statistics}),
        }

    @property
    def attempts(self) -> tuple[Attempts, ...]:
        """Whatever sends requests to S3."""
        writer = () if self.writing is None else (self.writing.attempts,)
        describer = () if self.describer is None else (self.describer.attempts,)
        return (self.store.attempts, *writer, *describer)


@asynccontextmanager
async def components(config: MountConfig, keeper: Keeper) -> AsyncIterator[Components]:
    """A file system on a bucket that answered; everything is closed when the block ends.

    Args:
        keeper: what an earlier daemon of this mount found out, S3 is not asked for again; and as long as another one
            may serve, nothing is touched that it shares with this one.

    Raises:
        StoreError: the bucket cannot be reached or read.
        BadOption: a cache directory cannot be used.
    """
    root_key = config.s3.location.prefix
    policies = PathPolicies(config.paths, root_key)
    disk = None if config.cache is None else DiskCache(config.cache, config.s3.origin, policies=policies)
    async with (
        connect(config.s3, config.crt, keeper.region) as connection,
        _turn(keeper),
        AsyncExitStack() if disk is None else disk.running(),
        spool_threads() as threads,
        trio.open_nursery() as nursery,
    ):
        guarded, store = _store(connection, config, nursery)
        cache = MetadataCache(trio.current_time, config.metadata, policies)
        lister = DirectoryLister(store, cache, nursery)
        if connection.root_page is not None:
            lister.remember_page(root_key, connection.root_page, connection.root_asked_at)
        budget, heap = ByteBudget(config.read.budget_bytes), HeapLimit(config.read.memory_target)
        watch = MemoryWatch(budget, MemoryUse(), keeper)
        grew = _growth(heap, watch)
        probe = NameProbe(store, lister, may_list=config.s3.may_list)
        resolver = Resolver(probe, cache, MissCounter(lister, nursery))
        notifier, waits = ThreadNotifier(), ReaderWaits()
        content = ContentReader(store, disk)
        blocks = BlockStore(content, budget, nursery, config.read.part_size, waits, grew=grew, policies=policies)
        described = describing(config, connection, cache, nursery)
        filesystem = S3FileSystem(
            InodeTable(root_key, keeper.ledger(f"{config.s3.origin}/{root_key}")),
            lister=lister,
            cache=cache,
            blocks=blocks,
            versions=VersionCheck(resolver, lister, cache, store, waits, described.stored),
            notifier=notifier,
            owner=replace(config.owner, directory_mtime_s=keeper.started_s),
            give_back=trim,
        )
        callers = Callers(filesystem.key_of)
        boundary = Boundary(config.patience.total_s + _NAMING_S, keeper.marks, callers)
        interrupted = keeper.marks.interrupted()
        shared = Shared(connection, store, budget, nursery, filesystem.tree, disk, policies, interrupted, threads)
        writes = await _writing(config, shared)
        operations = _operations(filesystem, boundary, writes)
        Quarantine(operations, keeper.marks, filesystem).take_over(by_own_fault=keeper.is_to_blame)
        nursery.start_soon(watch.run, filesystem)
        nursery.start_soon(heap.rest, partial(_let_go, disk))
        on_demand = _on_demand(config, store, resolver, disk, budget)
        yield Components(
            operations, boundary, filesystem, notifier, guarded, budget, disk, watch, connection.region, *on_demand,
            writes, waits, store, described.guarded,
        )  # fmt: skip
        await _end(writes, nursery)


def _growth(heap: HeapLimit, watch: MemoryWatch) -> Callable[[int], None]:
    def grew(n_bytes: int) -> None:
        heap.grew(n_bytes)
        watch.grew(n_bytes)

    return grew


def _let_go(disk: DiskCache | None) -> None:
    for volume in [] if disk is None else disk.volumes.values():
        volume.give_back()


async def _writing(config: MountConfig, shared: Shared) -> Writing | None:
    if config.writing.policy.is_read_only:
        return None
    writes = writing(config, shared)
    await writes.files.recover()
    return writes


async def _end(writes: Writing | None, nursery: trio.Nursery) -> None:
    if writes is not None:
        await writes.save()
    nursery.cancel_scope.cancel()
    if writes is not None:
        with trio.CancelScope(shield=True):
            await writes.close()


def _operations(filesystem: S3FileSystem, boundary: Boundary, writes: Writing | None) -> Operations:
    if writes is None:
        return Operations(filesystem, boundary)
    return WritingOperations(filesystem, boundary, writes.files, writes.names)


@asynccontextmanager
async def _turn(keeper: Keeper) -> AsyncIterator[None]:
    await keeper.turn()
    yield


def _store(connection: Connection, config: MountConfig, nursery: trio.Nursery) -> tuple[GuardedStore, PatientStore]:
    """The store that counts, and the one that everything asks."""
    catalogue = SplitCatalogue(connection.reader, connection.catalogue)
    guarded = GuardedStore(catalogue, connection.reader, config.guard, bucket=config.s3.location.bucket)
    last = guarded.through(connection.catalogue, connection.catalogue)
    return guarded, PatientStore(RacingStore(guarded, nursery), Retries(config.patience), last)


def _on_demand(
    config: MountConfig, store: PatientStore, resolver: Resolver, disk: DiskCache | None, budget: ByteBudget
) -> tuple[Selector, Inventory | None, Warmer | None]:
    """What s3mountctl asks for."""
    selector = Selector(store, resolver, config.s3.location.prefix)
    if disk is None:
        return selector, None, None
    inventory = Inventory(disk)
    sizes = {"connections": config.guard.max_gets, "part_size": config.read.part_size}
    return selector, inventory, Warmer(store, inventory, selector, budget, **sizes)
