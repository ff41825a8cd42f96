"""Puts together what a mount that may be written to has beside the rest (daemon.writing brings it to its end)."""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

import trio

from s3mount.cache.disk import DiskCache
from s3mount.cache.threads import CallThreads
from s3mount.config import MountConfig
from s3mount.core.attrs import ObjectId
from s3mount.core.policies import PathPolicies
from s3mount.daemon.writing import Writing
from s3mount.fs.appending import Appender
from s3mount.fs.budget import ByteBudget
from s3mount.fs.draft_content import DraftTools
from s3mount.fs.drafts import Drafts
from s3mount.fs.interrupted import InterruptedCall, InterruptedCalls
from s3mount.fs.left_uploads import LeftUploads
from s3mount.fs.names import Names
from s3mount.fs.namespace import NamespaceConfig
from s3mount.fs.part_sender import StreamTools
from s3mount.fs.parts import StreamStatistics
from s3mount.fs.repeated_files import RepeatedFiles
from s3mount.fs.repeated_names import RepeatedNames
from s3mount.fs.spool import Spool
from s3mount.fs.spooled import SpoolTools
from s3mount.fs.stamps import PosixStamps
from s3mount.fs.tree import Tree
from s3mount.fs.upload_records import UploadRecords
from s3mount.fs.write_room import WriteRoom
from s3mount.fs.written import WrittenInodes
from s3mount.store.checking_writer import CheckingWriter
from s3mount.store.connect import Connection
from s3mount.store.crt_writer import CrtWriter
from s3mount.store.guarded_writer import GuardedWriter, WriteGuardConfig
from s3mount.store.large_bodies import LargeBodies
from s3mount.store.patient import PatientStore
from s3mount.store.renaming import ObjectMover
from s3mount.store.retries import Retries
from s3mount.store.s3_writer import S3Writer
from s3mount.store.writing import Body, size_of

#: Threads that wait for the spool's disk.
_SPOOL_THREADS = 4


@dataclass(frozen=True)
class Shared:
    """What a mount has anyway, and writing needs."""

    connection: Connection
    store: PatientStore
    budget: ByteBudget
    nursery: trio.Nursery
    tree: Tree
    disk: DiskCache | None
    policies: PathPolicies
    interrupted: Sequence[InterruptedCall]
    spool_threads: CallThreads


@asynccontextmanager
async def spool_threads() -> AsyncIterator[CallThreads]:
    """Where the spool's disk is waited for; they end with the block, which no task that writes may outlive."""
    threads = CallThreads(_SPOOL_THREADS, "spool")
    try:
        yield threads
    finally:
        threads.close()


def _remember_on(disk: DiskCache | None) -> Callable[[ObjectId, Body], None]:
    """What was written is read from the disk cache, as if it had been read before."""

    def remember(version: ObjectId, body: Body) -> None:
        content = None if disk is None else disk.content(version, size_of(body))
        if disk is not None and content is not None:
            disk.put(content, 0, b"".join(body))

    return remember


def _writer(
    mount: MountConfig, shared: Shared, records: UploadRecords, large: LargeBodies
) -> tuple[GuardedWriter, CheckingWriter, ObjectMover | None]:
    """The writer that counts, the one that everything asks, and what renames objects where the bucket can."""
    config, client, s3 = mount.writing, shared.connection.client, mount.s3
    by_crt = CrtWriter(shared.connection.reader.requests, client, s3, config.objects, large)
    limits = WriteGuardConfig(mount.guard.deadline_s, mount.guard.max_gets, mount.guard.max_gets)
    guarded = GuardedWriter(by_crt, limits, bucket=s3.location.bucket)
    last = guarded.through(S3Writer(client, s3, config.objects))
    retries = Retries(mount.patience)
    writer = CheckingWriter(guarded, retries, last, log=records)
    is_directory = s3.location.is_directory_bucket
    return guarded, writer, ObjectMover(client, s3, writer, guarded.attempts, retries) if is_directory else None


def writing(mount: MountConfig, shared: Shared) -> Writing:
    """Put it together."""
    config = mount.writing
    policy = replace(config.policy, paths=shared.policies)
    spool = Spool(config.spool, shared.spool_threads, prefix=mount.s3.location.prefix)
    records = UploadRecords(spool, time.time)
    large = LargeBodies(shared.connection.reader.requests, config.objects.checksums)
    guarded, writer, mover = _writer(mount, shared, records, large)
    room = WriteRoom(shared.budget)
    counts = StreamStatistics()
    streams = StreamTools(writer, room, shared.nursery, config.part_size, counts, _remember_on(shared.disk))
    written, read = WrittenInodes(shared.tree), shared.store.get_range
    may_append = config.appends and config.posix is None  # it leaves the metadata as it was
    tools = DraftTools(
        SpoolTools(spool, read, streams, Appender(writer, read) if may_append else None),
        time.time,
        keeps_streamed=config.keeps_streamed,
        watch=written,
        stamps=PosixStamps(shared.tree, writer),
    )
    drafts = Drafts(tools, shared.nursery)
    names = RepeatedNames(
        shared.tree,
        drafts,
        policy,
        shared.store,
        writer,
        room,
        shared.nursery,
        NamespaceConfig(config.has_markers, config.rename_dir_limit, mover=mover),
    )
    names.interrupted = InterruptedCalls(shared.interrupted, trio.current_time)
    files = RepeatedFiles(shared.tree, drafts, written, policy, config.headers, names.removals.settle, names.changes)
    files.interrupted, files.names = names.interrupted, Names(shared.tree, policy, names.removals)
    left = LeftUploads(records, writer, time.time)
    statistics: dict[str, Callable[[], object]] = {
        "writes": guarded.statistics,
        "uploads": lambda: counts,
        "large bodies": large.statistics,
        "recorded uploads": records.statistics,
        "files being written": drafts.statistics,
        "names": names.statistics,
        "write memory": room.statistics,
        "local names": shared.tree.cache.local.statistics,
    }
    shared.nursery.start_soon(large.rest)
    shared.nursery.start_soon(partial(left.at_start, is_aborting=config.aborts_uploads))
    return Writing(files, names, drafts, guarded.attempts, records, left, shared.tree.handles, statistics)
