"""Random programs on a mount whose bucket another client changes at any moment, in every mode.

Programs list with any buffer, tell, seek, rewind, walk, stat, open and read, several at a time; they are
interrupted, requests fail, the kernel forgets, `refresh` is called, time passes.  Whatever they see is
judged by what the bucket had within the age that is allowed (docs/semantics.md):

    what is seen          minimal                        TTL
    --------------------  -----------------------------  ------------------------------------
    a stat                1 s                            TTL
    a missing name        since it was asked for         negative TTL
    an open               since it was asked for         TTL
    a listing             since it began; 1 s in a walk  TTL

and nothing is older than the last `refresh` of it.  What another caller is waiting for at that moment may be
as much older as an answer takes.
"""

import itertools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import trio
from trio.testing import MockClock

from s3mount.cache.metadata import MetadataConfig
from s3mount.core.attrs import FileAttrs
from s3mount.core.inode import inode_number
from s3mount.errors import (
    IsADirectory,
    NameNotFound,
    NotADirectory,
    ObjectChanged,
    StaleInode,
    StoreError,
)
from tests.fs.harness import Mounted, file_system
from tests.fs.listing_model import Bucket, Kernel
from tests.support.fake_store import FakeStore

NEVER_S = float("inf")
#: What the documents promise of a mount without a TTL.
MINIMAL_S = 1.0
#: Longer than any request, idle listing or record in these tests.
LONG_S = 100.0


@dataclass(frozen=True)
class World:
    """What a program runs in."""

    keys: tuple[str, ...]
    config: MetadataConfig = MetadataConfig()
    page: int = 1000
    is_ordered: bool = True
    before_s: float = 0.0
    after_s: float = 0.0

    @property
    def absence_s(self) -> float:
        """For how long nothing may be taken for there."""
        return 0.0 if self.config.negative_ttl.is_minimal else self.config.negative_ttl.seconds


@dataclass
class OpenDirectory:
    """A handle on a directory, and what its present listing has shown.  `since`: the oldest it may be of."""

    path: str
    handle: int
    ino: int
    lock: trio.Lock = field(default_factory=trio.Lock)
    position: int = 0
    began_at: float = NEVER_S
    shown: dict[int, tuple[bytes, int]] = field(default_factory=dict)
    told: list[int] = field(default_factory=lambda: [0])


class Programs:
    """Runs steps, and judges what they see."""

    def __init__(self, world: World, bucket: Bucket, mounted: Mounted) -> None:
        self.world = world
        self.bucket = bucket
        self.mounted = mounted
        self.fs = mounted.fs
        self.kernel = Kernel(mounted.fs, bucket.now)
        mounted.fs._kernel._notifier = self.kernel
        self.directories: list[OpenDirectory] = []
        self.files: list[tuple[int, int]] = []
        self.stale_at: dict[str, float] = {}
        self.refreshed: list[tuple[str, float]] = []

    # -- judgement ------------------------------------------------------------------------------

    @property
    def ttl_s(self) -> float:
        return MINIMAL_S if self.is_minimal else self.world.config.ttl.seconds

    @property
    def is_minimal(self) -> bool:
        return self.world.config.ttl.is_minimal

    def since(self, path: str, began_at: float, age_s: float) -> float:
        """The oldest moment that may be shown of a path by what began at a time."""
        refreshed = [at for above, at in self.refreshed if not above or path == above or path.startswith(above + "/")]
        return max([began_at - age_s, *(at for at in refreshed if at <= began_at)]) - self.bucket.after_s

    def judge_attrs(self, path: str, attrs: FileAttrs, since: float) -> None:
        if attrs.ino == inode_number(path + "/", ""):
            assert self.bucket.had_directory(path, since), f"{path!r} is shown as a directory"
        else:
            found = self.bucket.had_version(path, attrs.ino, since)
            assert found is not None, f"an old version of {path!r} is shown"
            assert (attrs.size, attrs.mtime_s) == (found.size, found.mtime_s)
            assert not self.bucket.is_hidden(path, since), f"{path!r} is shown as a file"

    @contextmanager
    def judging(self, path: str) -> Iterator[None]:
        """Errors that what began now, on a path, may end in."""
        began_at = self.bucket.now()
        stat_since = self.since(path, began_at, self.ttl_s)
        try:
            yield
        except NameNotFound:
            since = self.since(path, began_at, self.world.absence_s)
            assert not self.bucket.is_certain(path, since), f"{path!r} is missing"
        except NotADirectory:
            above = itertools.accumulate(path.split("/"), lambda one, other: f"{one}/{other}")
            assert any(self.bucket.had_file(each, stat_since) for each in above), f"{path!r} is below a file"
        except IsADirectory:
            assert self.bucket.had_directory(path, stat_since), f"{path!r} is a directory"
        except (StaleInode, ObjectChanged):
            self.must_have_changed(path, began_at)
        except StoreError as error:
            self.must_have_failed(error, began_at)

    def must_have_changed(self, path: str, began_at: float) -> None:
        """With a TTL two versions may be behind: the second attempt finds one, but S3 has a third."""
        since = max(began_at - (0.0 if self.is_minimal else self.ttl_s), self.stale_at.get(path, 0.0))
        self.stale_at[path] = began_at
        seen = {self.version_of(path, state) for state in self.bucket.states(since - self.bucket.after_s)}
        assert len(seen) > 1, f"{path!r} is stale, but did not change"

    @staticmethod
    def version_of(path: str, state: object) -> tuple[object, bool]:
        return state.get(path), any(key.startswith(path + "/") for key in state)  # type: ignore[attr-defined]

    def must_have_failed(self, error: StoreError, began_at: float) -> None:
        assert any(error is each and at >= began_at - self.bucket.after_s for at, each in self.bucket.failures), (
            "a failure was kept"
        )

    # -- steps ----------------------------------------------------------------------------------

    async def step(self, verb: str, *args: object) -> None:
        await getattr(self, f"do_{verb}")(*args)
        self.fs.check_invariants()
        assert self.fs.statistics().inodes.lookups == self.kernel.references.total()

    def change(self, verb: str, which: str | int) -> None:
        """Another client puts a key, or of the keys there are replaces or deletes one."""
        keys = self.bucket.keys
        if verb == "put":
            self.bucket.put(str(which))
        elif keys:
            key = keys[int(which) % len(keys)]
            self.bucket.put(key) if verb == "replace" else self.bucket.delete(key)

    async def do_change(self, verb: str, which: str | int, when: str) -> None:
        if when == "now":
            self.change(verb, which)
        else:
            changes = self.bucket.changes_before if when == "before" else self.bucket.changes_after
            changes.append(lambda: self.change(verb, which))

    async def do_fail(self, count: int) -> None:
        self.bucket.failing = count

    async def do_refresh(self, path: str) -> None:
        self.bucket._clock.jump(2.0**-12)
        await self.fs.refresh(path)
        self.refreshed.append((path, self.bucket.now()))
        self.bucket._clock.jump(2.0**-12)

    async def do_forget(self, number: int) -> None:
        self.kernel.forget(number)

    async def do_run(self, actions: list[tuple[str, str | int, int]], pause_s: float, patience_s: float) -> None:
        """After a pause, programs that run at the same time, until they are interrupted."""
        await trio.sleep(pause_s)
        with trio.move_on_after(patience_s):
            async with trio.open_nursery() as nursery:
                for verb, which, number in actions:
                    nursery.start_soon(getattr(self, f"run_{verb}"), self.path(which), number)

    def path(self, which: str | int) -> str:
        """A path, or one of those that there are."""
        paths = self.bucket.paths or ["a"]
        return paths[which % len(paths)] if isinstance(which, int) else which

    # -- what programs do -----------------------------------------------------------------------

    async def on_path(self, path: str, step: Callable[[int], Awaitable[None]]) -> None:
        """A step on a path; once more when a file is in the way, which may be a directory by now."""
        with self.judging(path):
            try:
                await self.kernel.on_path(path, step)
            except NotADirectory:
                await self.kernel.on_path(path, step)

    async def run_stat(self, path: str, _number: int) -> None:
        since = self.since(path, self.bucket.now(), self.ttl_s)

        async def stat(ino: int) -> None:
            self.judge_attrs(path, await self.kernel.attributes(ino), since)

        await self.on_path(path, stat)

    async def run_probe(self, path: str, number: int) -> None:
        for at in range(number + 1):
            await self.run_stat(f"{path}/{at:02}", 0)

    async def run_read(self, path: str, number: int) -> None:
        """Open and read; every other time the file stays open."""
        began_at = self.bucket.now()
        since = self.since(path, began_at, 0.0 if self.is_minimal else self.ttl_s)

        async def read(ino: int) -> None:
            if ino not in self.bucket.contents:
                self.fs.releasedir(await self.fs.opendir(ino))
                raise IsADirectory(path)
            handle = await self.fs.open(ino)
            self.kernel.pin(ino)
            self.files.append((handle, ino))
            assert self.bucket.had_version(path, ino, since), f"an old version of {path!r} was opened"
            try:
                assert await self.kernel.content(ino, handle) == self.bucket.contents[ino]
            finally:
                if number % 2:
                    self.close_file(self.files.index((handle, ino)))

        await self.on_path(path, read)

    async def run_close(self, _path: str, number: int) -> None:
        if self.files:
            self.close_file(number % len(self.files))

    def close_file(self, at: int) -> None:
        handle, ino = self.files.pop(at)
        self.fs.release(handle)
        self.kernel.unpin(ino)

    async def run_opendir(self, path: str, _number: int) -> None:
        if (directory := await self.open_directory(path)) is not None:
            self.directories.append(directory)

    async def open_directory(self, path: str) -> OpenDirectory | None:
        since = self.since(path, self.bucket.now(), self.ttl_s)
        opened: list[OpenDirectory] = []

        async def opendir(ino: int) -> None:
            handle = await self.fs.opendir(ino)
            self.kernel.pin(ino)
            opened.append(OpenDirectory(path, handle, ino))
            assert not path or self.bucket.had_directory(path, since), f"{path!r} was opened as a directory"

        await self.on_path(path, opendir)
        return opened[0] if opened else None

    async def run_next(self, _path: str, number: int) -> None:
        """One reply of a directory that is open, of a random size."""
        if self.directories:
            await self.read_some(self.directories[number % len(self.directories)], 1 + number % 7)

    async def run_seek(self, _path: str, number: int) -> None:
        """To somewhere that telldir told, or to the start."""
        if self.directories:
            directory = self.directories[number % len(self.directories)]
            directory.position = directory.told[number % len(directory.told)]

    async def run_rewind(self, _path: str, number: int) -> None:
        if self.directories:
            self.directories[number % len(self.directories)].position = 0

    async def run_closedir(self, _path: str, number: int) -> None:
        if self.directories:
            directory = self.directories[number % len(self.directories)]
            if not directory.lock.statistics().locked:
                self.directories.remove(directory)
                self.close_directory(directory)

    def close_directory(self, directory: OpenDirectory) -> None:
        self.fs.releasedir(directory.handle)
        self.kernel.unpin(directory.ino)

    async def run_ls(self, path: str, number: int) -> None:
        await self.ls(path, 1 + number)

    async def run_walk(self, path: str, number: int) -> None:
        """As os.walk: the names of a directory, then each directory among them, in their order."""
        todo = [path]
        while todo:
            above = todo.pop(0)
            names = await self.ls(above, 1 + number)
            todo[:0] = [f"{above}/{name}" if above else name for name in names]

    async def ls(self, path: str, room: int) -> list[str]:
        """Opens, lists whole and closes a directory; the directories in it."""
        directory = await self.open_directory(path)
        if directory is None:
            return []
        try:
            for _ in range(3):  # of which two may fail
                while await self.read_some(directory, room):
                    pass
        finally:
            self.close_directory(directory)
        shown = sorted(directory.shown.values())
        return [name.decode() for name, ino in shown if ino not in self.bucket.contents]

    async def read_some(self, directory: OpenDirectory, room: int) -> bool:
        """One reply; whether there was anything."""
        async with directory.lock:
            offset = directory.position
            if offset == 0:
                directory.shown = {}
            if offset == 0 or directory.began_at == NEVER_S:
                directory.began_at = self.bucket.now()
            reply: list[tuple[bytes, FileAttrs, int]] = []

            def emit(name: bytes, attrs: FileAttrs, next_offset: int) -> bool:
                if len(reply) == room:
                    return False
                reply.append((name, attrs, next_offset))
                self.kernel.take(directory.ino, name, attrs)
                return True

            try:
                await self.fs.readdir(directory.handle, offset, emit)
            except StoreError as error:
                self.must_have_failed(error, directory.began_at)
                return False
            self.judge_reply(directory, offset, reply)
            directory.position += len(reply)
            directory.told.append(directory.position)
            return bool(reply)

    def judge_reply(self, directory: OpenDirectory, offset: int, reply: list[tuple[bytes, FileAttrs, int]]) -> None:
        key = directory.path + "/" if directory.path else ""
        is_walk = bool(key) and self.fs.statistics().directories.walks > 0
        age_s = MINIMAL_S * is_walk if self.is_minimal else self.ttl_s
        since = self.since(directory.path, directory.began_at, age_s)
        for at, (name, attrs, next_offset) in enumerate(reply, offset):
            self.judge_attrs(key + name.decode(), attrs, since)
            assert next_offset == at + 1
            assert directory.shown.setdefault(at, (name, attrs.ino)) == (name, attrs.ino), "an offset has moved"
        names = [name.decode() for name, _ in directory.shown.values()]
        assert len(names) == len(set(names)), "a name is there twice"
        if not reply and directory.shown.keys() == set(range(offset)):
            lost = self.bucket.certain_names(key, since) - set(names)
            assert not lost, f"{lost} is not in the listing of {directory.path!r}"

    # -- the end --------------------------------------------------------------------------------

    async def end(self) -> None:
        """Everything is closed and forgotten, and nothing is left."""
        while self.files:
            self.close_file(0)
        while self.directories:
            self.close_directory(self.directories.pop())
        self.kernel.forget_all()
        await trio.sleep(LONG_S)
        statistics = self.fs.statistics()
        assert (statistics.inodes.inodes, statistics.inodes.lookups, statistics.inodes.handles) == (1, 0, 0)
        assert (statistics.directories.open, statistics.open_files, statistics.blocks.objects) == (0, 0, 0)
        assert self.bucket.in_flight == 0
        self.fs.check_invariants()


def run(world: World, *steps: tuple[object, ...]) -> None:
    """Run a program to its end."""
    clock = MockClock(autojump_threshold=0)

    async def main() -> None:
        store = FakeStore(is_ordered=world.is_ordered)
        store.max_page = world.page
        bucket = Bucket(store, clock, world.before_s, world.after_s)
        for key in world.keys:
            bucket.put(key)
        async with file_system(bucket, metadata=world.config) as mounted:
            programs = Programs(world, bucket, mounted)
            for verb, *args in steps:
                await programs.step(str(verb), *args)
            await programs.end()

    trio.run(main, clock=clock)
