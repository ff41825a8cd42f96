"""A bucket that remembers its past, and what the Linux kernel does between a program and the file system.

`Bucket` is a store whose requests take time, and which another client changes: at once, or just before or
just after the next request is answered.  It keeps every state it had, so that whatever was shown can be
judged afterwards.  The judgement is by single keys, because a listing is not one moment: while it reads its
pages, `a` may go where it has not been and `a/x` come where it has.  So only a key that was there
all the time must show, and only what no moment had must not.  No two events are at the same time.

`Kernel` is path walking and caching as fs/fuse/dir.c of Linux does it: names and attributes until their time is
over, a name that proves wrong is looked up twice, ESTALE starts anew with nothing believed, the pages
of what was read stay until the inode is forgotten.
"""

import itertools
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import trio
from trio.testing import MockClock

from s3mount.core.attrs import FileAttrs, ObjectId, ObjectStat
from s3mount.core.inode import inode_number
from s3mount.core.inodes import ROOT
from s3mount.core.listing import ListPage
from s3mount.core.ranges import ByteRange
from s3mount.core.waits import Arrival
from s3mount.errors import NameNotFound, ObjectChanged, StaleInode, StoreError, StoreFailure, StoreThrottled
from s3mount.fs.filesystem import S3FileSystem
from s3mount.store.base import MAX_PAGE
from tests.support.fake_store import FakeStore

T = TypeVar("T")
State = Mapping[str, ObjectStat]
#: Seconds that every change takes, so that it is before or after everything else.
TICK_S = 2.0**-12


def is_legal(name: str) -> bool:
    return name not in ("", ".", "..") and "\0" not in name


class Bucket:
    """A `FakeStore` with a past.

    Args:
        before_s, after_s: how long a request takes until it is answered, and the answer until it is here.
    """

    def __init__(self, store: FakeStore, clock: MockClock, before_s: float = 0.0, after_s: float = 0.0) -> None:
        self._store = store
        self._clock = clock
        self._before_s = before_s
        self.after_s = after_s
        self._states: list[tuple[float, State]] = [(0.0, {})]
        self._versions = 0
        self.contents: dict[int, bytes] = {}
        self.changes_before: deque[Callable[[], None]] = deque()
        self.changes_after: deque[Callable[[], None]] = deque()
        self.failing = 0
        self.failures: list[tuple[float, StoreError]] = []
        self.in_flight = 0

    # -- another client -------------------------------------------------------------------------

    def put(self, key: str) -> None:
        """A new version; every fourth is empty, and no other two have the same content."""
        self._versions += 1
        content = b"" if self._versions % 4 == 0 else f"{self._versions}:{key}".encode()
        found = self._store.put(key, content)
        self.contents[inode_number(key, found.etag)] = content
        self._note()

    def delete(self, key: str) -> None:
        self._store.delete(key)
        self._note()

    def _note(self) -> None:
        self._clock.jump(TICK_S)
        self._states.append((self.now(), {key: found for key, (found, _) in self._store.objects.items()}))
        self._clock.jump(TICK_S)

    # -- its past -------------------------------------------------------------------------------

    def now(self) -> float:
        return self._clock.current_time()

    @property
    def keys(self) -> list[str]:
        return sorted(self._store.objects)

    @property
    def paths(self) -> list[str]:
        """What the keys of this moment make, in order."""
        parts = [list(itertools.takewhile(is_legal, key.split("/"))) for key in self._store.objects]
        return sorted({"/".join(each[:depth]) for each in parts for depth in range(1, len(each) + 1)})

    def states(self, since: float) -> list[State]:
        """Every state that there was between a time and now."""
        ends = [at for at, _ in self._states[1:]] + [float("inf")]
        return [state for (_, state), end in zip(self._states, ends, strict=True) if end >= since]

    def constant_keys(self, since: float) -> set[str]:
        states = self.states(since)
        return set(states[0]).intersection(*states[1:])

    def is_certain(self, path: str, since: float) -> bool:
        """Whether one key made something of a path all the time."""
        return any(key == path or key.startswith(path + "/") for key in self.constant_keys(since))

    def certain_names(self, directory: str, since: float) -> set[str]:
        below = (key[len(directory) :] for key in self.constant_keys(since) if key.startswith(directory))
        return {name for name in (rest.partition("/")[0] for rest in below) if is_legal(name)}

    def had_version(self, path: str, ino: int, since: float) -> ObjectStat | None:
        """The version of a file that has an inode number, if there was a moment with it."""
        versions = (state[path] for state in self.states(since) if path in state)
        return next((found for found in versions if inode_number(path, found.etag) == ino), None)

    def had_directory(self, path: str, since: float) -> bool:
        return any(key.startswith(path + "/") for state in self.states(since) for key in state)

    def had_file(self, path: str, since: float) -> bool:
        return any(path in state for state in self.states(since)) and not self.is_hidden(path, since)

    def is_hidden(self, path: str, since: float) -> bool:
        """Whether one key made a directory of a path all the time.

        Nobody can know on a store without order, where HEAD answers for the file although the LIST failed.
        """
        is_known = self.is_ordered or not self.failures
        return is_known and any(key.startswith(path + "/") for key in self.constant_keys(since))

    # -- a store --------------------------------------------------------------------------------

    @property
    def is_ordered(self) -> bool:
        return self._store.is_ordered

    async def _request(self, ask: Callable[[], Awaitable[T]]) -> T:
        self.in_flight += 1
        try:
            await trio.sleep(self._before_s)
            self._pop(self.changes_before)
            answer = await ask()
            self._pop(self.changes_after)
            await trio.sleep(self.after_s)
            if self.failing:
                self.failing -= 1
                self._fail()
            return answer
        finally:
            self.in_flight -= 1

    def _pop(self, changes: deque[Callable[[], None]]) -> None:
        if changes:
            changes.popleft()()

    def _fail(self) -> None:
        error = StoreThrottled("slow down") if self.failing % 2 else StoreFailure("no")
        self.failures.append((self.now(), error))
        raise error

    async def list_page(
        self,
        prefix: str,
        *,
        delimiter: str = "/",
        token: str | None = None,
        max_keys: int = MAX_PAGE,
        start_after: str = "",
    ) -> ListPage:
        return await self._request(
            lambda: self._store.list_page(
                prefix, delimiter=delimiter, token=token, max_keys=max_keys, start_after=start_after
            )
        )

    async def head(self, key: str) -> ObjectStat:
        return await self._request(lambda: self._store.head(key))

    async def confirm(self, wanted: ObjectId) -> None:
        await self._request(lambda: self._store.confirm(wanted))

    async def get_range(self, wanted: ObjectId, span: ByteRange, arrival: Arrival | None = None) -> bytes:
        return await self._request(lambda: self._store.get_range(wanted, span, arrival))


class Kernel:
    """Names, attributes and pages that the kernel keeps, and the references it counts."""

    def __init__(self, fs: S3FileSystem, now: Callable[[], float]) -> None:
        self.fs = fs
        self._now = now
        self._names: dict[tuple[int, bytes], tuple[int, float]] = {}  # → (inode, good until)
        self._attrs: dict[int, tuple[FileAttrs, float]] = {}
        self.pages: dict[int, bytes] = {}
        self.references: Counter[int] = Counter()
        self._pins: Counter[int] = Counter()

    # -- what it is told ------------------------------------------------------------------------

    def forget_name(self, parent_ino: int, name: bytes) -> None:
        """The notification; implements `fs.notifier.KernelNotifier`."""
        self._names.pop((parent_ino, name), None)

    def forget_inode(self, ino: int) -> None:
        """The notification; implements `fs.notifier.KernelNotifier`."""
        self._attrs.pop(ino, None)

    async def room(self) -> None:
        """There always is; implements `fs.notifier.KernelNotifier`."""

    async def let_go(self, names: Sequence[tuple[int, bytes]]) -> int:
        """The notification; implements `fs.notifier.KernelNotifier`."""
        for parent_ino, name in names:
            self.forget_name(parent_ino, name)
        return len(names)

    def take(self, parent_ino: int, name: bytes, attrs: FileAttrs) -> None:
        """A name and its attributes, of a look-up or a readdirplus: one more reference."""
        self.references[attrs.ino] += 1
        self._names[parent_ino, name] = (attrs.ino, self._now() + attrs.ttl_s * attrs.is_name_kept)
        self._attrs[attrs.ino] = (attrs, self._now() + attrs.ttl_s)

    # -- paths ----------------------------------------------------------------------------------

    async def _look_up(self, parent_ino: int, name: bytes, *, is_believing: bool) -> int:
        key = (parent_ino, name)
        known, good_until = self._names.get(key, (None, 0.0))
        if known is not None and good_until > self._now() and is_believing:
            ino = known
        else:
            ino = await self._ask(key, known)
        if ino == 0:
            raise NameNotFound(name)
        return ino

    async def _ask(self, key: tuple[int, bytes], known: int | None) -> int:
        if known:  # an inode that may be the right one still
            try:
                attrs = await self.fs.lookup(*key)
            except (StoreError, NameNotFound, StaleInode):
                attrs = None
            if attrs is not None and attrs.ino == known:
                self.take(*key, attrs)
                return known
            if attrs is not None and attrs.ino:
                self.fs.forget([(attrs.ino, 1)])
            self._names.pop(key, None)
        attrs = await self.fs.lookup(*key)
        if attrs.ino:
            self.take(*key, attrs)
        else:
            self._names[key] = (0, self._now() + attrs.ttl_s)
        return attrs.ino

    async def _walk(self, path: str, *, is_believing: bool) -> int:
        ino = ROOT
        for name in path.split("/") if path else []:
            with self.pinned(ino):
                ino = await self._look_up(ino, name.encode(), is_believing=is_believing)
        return ino

    async def on_path(self, path: str, step: Callable[[int], Awaitable[T]]) -> T:
        """What a step gives for the inode of a path; a second time, believing nothing, after ESTALE.

        Raises:
            FileSystemError, StoreError: that of the second time.
        """
        try:
            ino = await self._walk(path, is_believing=True)
            with self.pinned(ino):
                return await step(ino)
        except (StaleInode, ObjectChanged):
            ino = await self._walk(path, is_believing=False)
            with self.pinned(ino):
                return await step(ino)

    async def attributes(self, ino: int) -> FileAttrs:
        """Those that are known, while they are good."""
        attrs, good_until = self._attrs.get(ino, (None, 0.0))
        if attrs is None or good_until <= self._now():
            attrs = await self.fs.getattr(ino)
            self._attrs[ino] = (attrs, self._now() + attrs.ttl_s)
        return attrs

    async def content(self, ino: int, handle: int, step: int = 7) -> bytes:
        """All bytes of an open file, out of the page cache if they are there."""
        if ino not in self.pages:
            pieces: list[bytes] = []
            while piece := await self._read(handle, sum(map(len, pieces)), step):
                pieces.append(bytes(piece))
            self.pages[ino] = b"".join(pieces)
        return self.pages[ino]

    async def _read(self, handle: int, offset: int, length: int) -> memoryview:
        content = self.fs.read_nowait(handle, offset, length)
        return await self.fs.read(handle, offset, length) if content is None else content

    # -- memory ---------------------------------------------------------------------------------

    @contextmanager
    def pinned(self, ino: int) -> Iterator[None]:
        """Not to be forgotten meanwhile."""
        self.pin(ino)
        try:
            yield
        finally:
            self.unpin(ino)

    def pin(self, ino: int) -> None:
        self._pins[ino] += 1

    def unpin(self, ino: int) -> None:
        self._pins[ino] -= 1

    def forget(self, number: int) -> None:
        """Memory is short: an inode goes, with every name that is known below it, unless one is in use."""
        inos = sorted(ino for ino, count in self.references.items() if count)
        if inos:
            victims = self._below(inos[number % len(inos)])
            if not any(self._pins[ino] for ino in victims):
                self._drop(victims)

    def forget_all(self) -> None:
        self._drop(set(self.references))

    def _below(self, ino: int) -> set[int]:
        found, todo = {ino}, [ino]
        while todo:
            parent = todo.pop()
            fresh = {child for (above, _), (child, _) in self._names.items() if above == parent and child} - found
            found |= fresh
            todo += fresh
        return found

    def _drop(self, victims: set[int]) -> None:
        for key in [key for key, (ino, _) in self._names.items() if key[0] in victims or ino in victims]:
            del self._names[key]
        for ino in victims:
            self._attrs.pop(ino, None)
            self.pages.pop(ino, None)
            if count := self.references.pop(ino, 0):
                self.fs.forget([(ino, count)])
