"""What a mount that may be written to has beside the rest: put together here, and brought to its end.

End: who writes gets time to close; what is not in S3 then is saved as it is, as a local file system keeps what a
program wrote before it was killed.  Both are bounded, and the log says what is waited for.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import trio

from s3mount.cache.disk import DiskCache
from s3mount.cache.threads import CallThreads
from s3mount.config import MountConfig
from s3mount.core.attrs import ObjectId
from s3mount.core.policies import PathPolicies
from s3mount.errors import StoreError
from s3mount.fs.budget import ByteBudget
from s3mount.fs.draft_content import DraftTools
from s3mount.fs.drafts import Drafts
from s3mount.fs.file_writes import FileWrites
from s3mount.fs.interrupted import InterruptedCall, InterruptedCalls
from s3mount.fs.left_uploads import LeftUploads
from s3mount.fs.namespace import Namespace, NamespaceConfig
from s3mount.fs.part_sender import StreamTools
from s3mount.fs.parts import StreamStatistics
from s3mount.fs.repeated_names import RepeatedNames
from s3mount.fs.spool import Spool
from s3mount.fs.spooled import SpoolTools
from s3mount.fs.tree import Tree
from s3mount.fs.upload_records import UploadRecords
from s3mount.fs.write_room import WriteRoom
from s3mount.fs.written import WrittenInodes
from s3mount.store.attempts import Attempts
from s3mount.store.connect import Connection
from s3mount.store.crt_writer import CrtWriter
from s3mount.store.guarded_writer import GuardedWriter, WriteGuardConfig
from s3mount.store.patient import PatientStore
from s3mount.store.recording_writer import RecordingWriter
from s3mount.store.retries import Retries
from s3mount.store.s3_writer import S3Writer
from s3mount.store.writing import Body, size_of

log = logging.getLogger(__name__)

#: Threads that wait for the spool's disk.
_SPOOL_THREADS = 4
#: Seconds that programs get to close what they write when the mount ends, and then uploads to end.
_CLOSE_S = 20.0
_SAVE_S = 60.0
#: What `finish` may take.
FINISH_S = _CLOSE_S + _SAVE_S
_SAID_EVERY_S = 5.0
#: Names in one line of the log.
_MANY = 5


class Writing:
    """Everything that writes.

    Attributes:
        attempts: its requests.
        statistics: what counts, by a name for the log.
        is_saved: all that was written is in S3, as far as `save` knows.
    """

    def __init__(
        self,
        files: FileWrites,
        names: Namespace,
        drafts: Drafts,
        attempts: Attempts,
        records: UploadRecords,
        left: LeftUploads,
        statistics: dict[str, Callable[[], object]],
    ) -> None:
        self.files = files
        self.names = names
        self._drafts = drafts
        self.attempts = attempts
        self._records = records
        self.left = left
        self.statistics = statistics
        self.is_saved = True
        self._has_ended = False

    @property
    def unsaved(self) -> list[str]:
        """Keys of the files that programs write."""
        return [draft.key for draft in self._drafts.below("") if draft.is_unsaved and draft.users]

    def obstacle(self) -> str:
        """Why no other daemon may take over now: it would not have the files that are open to be written."""
        keys = [draft.key for draft in self._drafts.below("") if draft.users]
        return f"programs have files open to write them, close them first: {_some(keys)}" if keys else ""

    async def finish(self) -> None:
        """Wait for who writes, and save what is not in S3."""
        until = trio.current_time() + _CLOSE_S
        while (keys := self.unsaved) and trio.current_time() < until:
            log.info("waiting for files that are being written: %s", _some(keys))
            with trio.move_on_after(_SAID_EVERY_S):
                await self._drafts.has_ended.wait()
        await self.save()

    async def save(self) -> None:
        """Save what is not in S3 as it is, once, unless it is cancelled: what was refused is not asked for again."""
        if self._has_ended:
            return
        with trio.move_on_after(_SAVE_S) as limit:
            try:
                await self.names.sync()
            except StoreError as error:
                log.warning("not all that was removed is gone in S3: %s", error)
                self.is_saved = False
            failed = await self._drafts.finish()
            if failed:
                log.error("not in S3: %s", _some(failed))
                self.is_saved = False
        if limit.cancelled_caught:
            log.error("uploads did not end within %g s: %s", _SAVE_S, _some(self.unsaved))
            self.is_saved = False
        self._has_ended = True

    async def close(self) -> None:
        """Let go of everything; uploads that go on are aborted."""
        await self._drafts.close()
        await self._records.close()


def _some(keys: list[str]) -> str:
    shown = ", ".join(repr(key) for key in keys[:_MANY])
    return shown if len(keys) <= _MANY else f"{shown} and {len(keys) - _MANY} more"


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


def _remember_on(disk: DiskCache | None) -> Callable[[ObjectId, Body], None]:
    """What was written is read from the disk cache, as if it had been read before."""

    def remember(version: ObjectId, body: Body) -> None:
        content = None if disk is None else disk.content(version, size_of(body))
        if disk is not None and content is not None:
            disk.put(content, 0, b"".join(body))

    return remember


def _writer(mount: MountConfig, shared: Shared, records: UploadRecords) -> tuple[GuardedWriter, RecordingWriter]:
    """The writer that counts, and the one that everything asks."""
    config, client, s3 = mount.writing, shared.connection.client, mount.s3
    by_crt = CrtWriter(shared.connection.reader.requests, client, s3, config.objects)
    limits = WriteGuardConfig(mount.guard.deadline_s, mount.guard.max_gets, mount.guard.max_gets)
    guarded = GuardedWriter(by_crt, limits, bucket=s3.location.bucket)
    last = guarded.through(S3Writer(client, s3, config.objects))
    return guarded, RecordingWriter(guarded, Retries(mount.patience), last, log=records)


def writing(mount: MountConfig, shared: Shared) -> Writing:
    """Put it together."""
    config = mount.writing
    policy = replace(config.policy, paths=shared.policies)
    spool = Spool(config.spool, CallThreads(_SPOOL_THREADS, "spool"))
    records = UploadRecords(spool, time.time)
    guarded, writer = _writer(mount, shared, records)
    room = WriteRoom(shared.budget)
    counts = StreamStatistics()
    streams = StreamTools(writer, room, shared.nursery, config.part_size, counts, _remember_on(shared.disk))
    written = WrittenInodes(shared.tree)
    tools = DraftTools(
        SpoolTools(spool, shared.store.get_range, streams),
        time.time,
        keeps_streamed=config.keeps_streamed,
        watch=written,
    )
    drafts = Drafts(tools, shared.nursery)
    names = RepeatedNames(
        shared.tree,
        drafts,
        policy,
        shared.store,
        writer,
        shared.nursery,
        NamespaceConfig(config.has_markers, config.rename_dir_limit),
    )
    names.interrupted = InterruptedCalls(shared.interrupted, trio.current_time)
    files = FileWrites(shared.tree, drafts, written, policy, config.headers, names.removals.settle)
    left = LeftUploads(records, writer, time.time)
    statistics: dict[str, Callable[[], object]] = {
        "writes": guarded.statistics,
        "uploads": lambda: counts,
        "recorded uploads": records.statistics,
        "files being written": drafts.statistics,
        "names": names.statistics,
        "write memory": room.statistics,
        "local names": shared.tree.cache.local.statistics,
    }
    shared.nursery.start_soon(partial(left.at_start, is_aborting=config.aborts_uploads))
    return Writing(files, names, drafts, guarded.attempts, records, left, statistics)
