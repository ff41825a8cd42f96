"""Runs programs on a mount in memory and on a model of a local file system: the same results, the same tree.

A daemon may be killed between two steps, and in the middle of one: then the next daemon gets that call again, as from
the kernel, and it ends as if nothing had been.
"""

import stat
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

import trio

from s3mount.cache.shown import Shown
from s3mount.core.backoff import Patience
from s3mount.errors import (
    AlreadyExists,
    IsADirectory,
    NameNotFound,
    ObjectChanged,
    S3MountError,
    StaleInode,
    StoreFailure,
)
from s3mount.fs.drafts import Opening
from s3mount.fs.interrupted import InterruptedCall, InterruptedCalls
from s3mount.store.patient_writer import PatientWriter
from s3mount.store.retries import Retries
from s3mount.units import MIB
from tests.fs.names_harness import MountedNames, namespace
from tests.fs.program_model import FILE_MODE, File, Model, nodes_in
from tests.support.content import make_content
from tests.support.fake_store import FakeStore
from tests.support.fake_writer import FakeWriter, FaultyWriter

T = TypeVar("T")
Step = tuple[Any, ...]

#: Without any, what is asked and answered at one time has no order.
LATENCY_S = 0.001
#: Of a larger file not all is here when it is opened to be read.
_SMALL = 1 * MIB
#: What a program may be told of bytes that nobody has any more.
_GONE = (StaleInode, ObjectChanged)
_CONTENT = make_content("programs", 6 * MIB + 256)
#: The name of the kernel's call for each verb that may be sent again.
_CALLS = {"rename new": "rename"}


def data(seed: int, length: int) -> bytes:
    """Bytes that differ with the seed."""
    return _CONTENT[seed : seed + length]


class MortalWriter(FaultyWriter):
    """A daemon's way to S3, until it is killed."""

    def __init__(self, writer: FakeWriter) -> None:
        super().__init__(writer, lambda *_: None)
        self._calls_left = -1
        self._lost: Literal["request", "answer"] = "request"
        self.died = trio.Event()

    def kill_at(self, n_calls: int, lost: Literal["request", "answer"]) -> None:
        """The daemon dies at one of its next calls: before it is done, or after it and before it is answered."""
        self._calls_left, self._lost = n_calls, lost

    def survived(self) -> None:
        """It made fewer."""
        self._calls_left = -1

    async def _pass(self, name: str, key: str, call: Callable[[], Awaitable[T]]) -> T:
        if self.died.is_set():
            raise StoreFailure("who asks is dead")
        self._calls_left -= 1
        if self._calls_left == 0:
            if self._lost == "answer":
                await call()
            self.died.set()
            await trio.sleep_forever()
        return await call()


class _Handle:
    """An open descriptor."""

    def __init__(self, number: int, how: str, file: File) -> None:
        self.number = number
        self.how = how
        self.file = file
        self.is_large = len(file.content) > _SMALL
        file.n_writers += self.may_write

    @property
    def may_write(self) -> bool:
        return self.how != "r"

    @property
    def may_read(self) -> bool:
        return self.how in ("r", "rw")


class Run:
    """One program, on one daemon after the other.

    Attributes:
        steps: that were done.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._store = FakeStore(latency_s=LATENCY_S)
        self._s3 = FakeWriter(self._store, latency_s=LATENCY_S)
        self._model = Model()
        self._handles: list[_Handle] = []
        self._here: MountedNames
        self._writer: MortalWriter
        self.steps = 0

    async def run(self, program: list[Step]) -> None:
        """Raises AssertionError at the first difference."""
        rest, is_killed = list(program), False
        again: Step | None = None
        while rest or is_killed:
            self._writer = MortalWriter(self._s3)
            writer = PatientWriter(self._writer, Retries(Patience(0.0, max_attempts=1)))
            async with namespace(self._store, self._directory, writer=writer) as self._here:
                await self._here.files.recover()
                if again is not None:
                    await self._repeat(*again)
                elif is_killed:
                    found = await self._here.tree()
                    self._model.check_left(found)
                    self._model.adopt(found)
                is_killed, again = False, None
                while rest and not is_killed:
                    step = rest.pop(0)
                    self.steps += 1
                    if step[0] == "remount":
                        break
                    is_killed = step[0] == "kill"
                    if step[0] == "killed":
                        again = await self._killed(*step[1:])
                        is_killed = again is not None
                    elif not is_killed:
                        await self._step(*step)
                await self._end(is_killed=is_killed)
        async with namespace(self._store, self._directory) as there:
            assert await there.tree() == self._model.tree(), "for the next mount"

    async def _end(self, *, is_killed: bool) -> None:
        """The daemon ends in order, or is killed."""
        if not is_killed:
            await self._close_all()
            wanted = self._model.tree()
            assert await self._here.tree() == wanted
            await self._here.names.sync()
            assert await self._here.drafts.finish() == []
            assert await self._here.tree() == wanted
            kept = {key: self._store.objects[key][1] for key in self._model.objects() if key in self._store.objects}
            assert kept == self._model.objects()
        self._here.is_killed = is_killed
        self._handles.clear()
        for _, node in nodes_in("", self._model.root):  # what a mount shows of its own accord
            if isinstance(node, File):
                node.mode, node.n_writers = FILE_MODE, 0

    async def _close_all(self) -> None:
        while self._handles:
            await self._step("close", 0)

    # -- killed in the middle of a call ---------------------------------------------------------

    async def _killed(self, n_calls: int, lost: Literal["request", "answer"], *step: Any) -> Step | None:
        """What the next daemon gets again, if this one died; before it all files are closed."""
        await self._close_all()
        await self._here.names.sync()
        await self._here.drafts.finish()
        self._model.removed.clear()
        self._writer.kill_at(n_calls, lost)
        verb, path, other = step
        try:
            self._on_model(verb, path, other)
            expected = None
        except S3MountError as error:
            expected = error
        outcome: list[S3MountError | None] = []

        async def call() -> None:
            outcome.append(await _error_of(self._on_mount(verb, path, other)))
            done.set()

        async def death() -> None:
            await self._writer.died.wait()
            done.set()

        done = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            nursery.start_soon(death)
            await done.wait()
            nursery.cancel_scope.cancel()
        if self._writer.died.is_set():
            return verb, path, other, expected
        self._writer.survived()
        assert type(outcome[0]) is type(expected), (*step, outcome, expected)
        return None

    async def _repeat(self, verb: str, path: str, other: str, expected: S3MountError | None) -> None:
        """The kernel sends the call again; all is as if nothing had been."""
        target = other if verb == "link" else path
        await self._here.known(target)
        parent, name = await self._here.at(target)
        call = InterruptedCall(_CALLS.get(verb, verb), parent, zlib.crc32(name))
        self._here.names.interrupted = InterruptedCalls([call], trio.current_time)
        outcome = await _error_of(self._on_mount(verb, path, other))
        assert type(outcome) is type(expected), ("again", verb, path, other, outcome, expected)
        await self._here.names.sync()
        self._model.removed.clear()
        assert await self._here.tree() == self._model.tree(), ("after", verb, path, other)

    # -- steps ----------------------------------------------------------------------------------

    async def _step(self, verb: str, *arguments: Any) -> None:
        if verb in _ON_HANDLES:
            if self._handles:
                await getattr(self, f"_{verb}")(self._handles[arguments[0] % len(self._handles)], *arguments[1:])
        elif verb == "wait":
            await trio.sleep(arguments[0])
        elif verb == "look":
            assert await self._here.tree() == self._model.tree()
        elif verb == "sync":
            await self._here.names.sync()
            self._model.removed.clear()
        elif verb in ("open", "save", "truncate", "chmod", "stat"):
            await getattr(self, f"_{verb}")(*arguments)
        else:
            await self._change_names(verb, *arguments)
        self._here.check_invariants()

    async def _change_names(self, verb: str, path: str, other: str) -> None:
        expected = outcome = None
        try:
            self._on_model(verb, path, other)
        except S3MountError as error:
            expected = error
        outcome = await _error_of(self._on_mount(verb, path, other))
        assert type(outcome) is type(expected), (verb, path, other, outcome, expected)

    def _on_model(self, verb: str, path: str, other: str) -> None:
        model = self._model
        match verb:
            case "mkdir":
                model.make(path, {})
            case "rmdir":
                model.rmdir(path)
            case "unlink":
                model.unlink(path)
            case "rename" | "rename new":
                model.rename(path, other, may_replace=verb == "rename")
            case "link":
                model.link(path, other)
            case "symlink":
                model.make(path, other)

    async def _on_mount(self, verb: str, path: str, other: str) -> None:
        mount = self._here
        match verb:
            case "mkdir":
                await mount.mkdir(path)
            case "rmdir":
                await mount.rmdir(path)
            case "unlink":
                await mount.unlink(path)
            case "rename" | "rename new":
                await mount.rename(path, other, may_replace=verb == "rename")
            case "link":
                await mount.link(path, other)
            case "symlink":
                await mount.symlink(path, other)

    # -- steps on files by their names ----------------------------------------------------------

    def _node(self, path: str) -> File | dict[str, Any] | str | S3MountError:
        try:
            return self._model.get(path)
        except S3MountError as error:
            return error

    async def _open(self, path: str, how: str, is_creating: bool, is_truncating: bool, is_exclusive: bool) -> None:  # noqa: FBT001  drawn values
        node = self._node(path)
        if isinstance(node, str):
            return  # the kernel follows it
        is_new = isinstance(node, NameNotFound) and is_creating and await self._has_parent(path)
        expected: S3MountError | None = None
        if isinstance(node, S3MountError) and not is_new:
            expected = node
        elif is_creating and is_exclusive and not is_new:
            expected = AlreadyExists(path)
        elif isinstance(node, dict):
            expected = IsADirectory(path)
        opening = Opening(how == "rw", how == "a", is_truncating and how != "r", is_creating and is_exclusive)
        handles: list[int] = []

        async def opened() -> None:
            handles.append(await self._opened(path, how, opening, is_creating=is_creating))

        outcome = await _error_of(opened())
        assert type(outcome) is type(expected), ("open", path, how, opening, outcome, expected)
        if expected is None:
            if is_new:
                node = File()
                self._model.make(path, node)
            assert isinstance(node, File)
            if opening.is_truncating:
                node.truncate(0)
            self._handles.append(_Handle(handles[0], how, node))

    async def _has_parent(self, path: str) -> bool:
        return await _error_of(_done(lambda: self._model.parent(path))) is None

    async def _opened(self, path: str, how: str, opening: Opening, *, is_creating: bool) -> int:
        """As the kernel does it, which looks up once more what is stale."""
        here = self._here
        try:
            attrs = await here.mounted.walk(path)
        except NameNotFound:
            if not is_creating:
                raise
            opening = opening._replace(is_truncating=True) if how != "a" else opening
            return (await here.files.create(*await here.at(path), opening, FILE_MODE, 0))[0]
        if is_creating and opening.is_exclusive:
            raise AlreadyExists(path)
        for attempt in range(2):
            try:
                return await self._opened_again(attrs.ino, how, opening)
            except StaleInode:
                if attempt:
                    raise
                attrs = await here.mounted.walk(path)
        raise AssertionError

    async def _opened_again(self, ino: int, how: str, opening: Opening) -> int:
        files, fs = self._here.files, self._here.mounted.fs
        if how != "r":
            return await files.open(ino, opening, 0)
        if not files.is_settled(ino):
            await files.settle(ino)
        handle = fs.open_nowait(ino)
        return await fs.open(ino) if handle is None else handle

    async def _save(self, path: str, seed: int, length: int) -> None:
        n_handles = len(self._handles)
        await self._open(path, "w", True, True, False)  # noqa: FBT003  as drawn
        if len(self._handles) > n_handles:
            await self._write(self._handles[-1], 0, seed, length)
            await self._close(self._handles[-1])

    async def _truncate(self, path: str, size: int) -> None:
        node = self._node(path)
        if not isinstance(node, File):
            return
        await self._here.files.truncate((await self._here.mounted.walk(path)).ino, size)
        node.truncate(size)
        if not node.n_writers:
            node.saved()

    async def _chmod(self, path: str, mode: int) -> None:
        node = self._node(path)
        if isinstance(node, File):
            self._here.files.show((await self._here.mounted.walk(path)).ino, Shown(mode=mode))
            node.mode = mode

    async def _stat(self, path: str) -> None:
        node = self._node(path)
        if isinstance(node, S3MountError):
            assert type(await _error_of(self._here.mounted.walk(path))) is type(node), ("stat", path, node)
            return
        found = await self._here.mounted.walk(path)
        is_file = isinstance(node, File)
        assert stat.S_ISDIR(found.mode) == isinstance(node, dict), ("stat", path)
        assert stat.S_ISREG(found.mode) == is_file, ("stat", path)
        if isinstance(node, File):
            assert (found.size, stat.S_IMODE(found.mode)) == (len(node.content), node.mode), ("stat", path)

    # -- steps on handles -----------------------------------------------------------------------

    def _ino(self, handle: _Handle) -> int:
        return self._here.mounted.fs.tree.handles.file(handle.number).inode.ino

    async def _read(self, handle: _Handle, offset: int, length: int) -> None:
        if not handle.may_read:
            return
        wanted = handle.file.content[offset : offset + length]
        try:
            found = bytes(await self._here.mounted.read(handle.number, offset, length))
        except _GONE:
            assert handle.is_large, f"{len(handle.file.content)} bytes are gone"
            assert not handle.file.has_name
        else:
            assert found == wanted, ("read", handle.how, offset, length, len(found), len(wanted))

    async def _write(self, handle: _Handle, offset: int, seed: int, length: int) -> None:
        if not handle.may_write or not length:
            return
        file, content = handle.file, data(seed, length)
        if handle.how == "a":
            offset, file.is_late = len(file.content), True
        await self._here.files.write(handle.number, offset, content)
        file.write(offset, content)

    async def _ftruncate(self, handle: _Handle, size: int) -> None:
        if handle.may_write:
            await self._here.files.truncate(self._ino(handle), size)
            handle.file.truncate(size)

    async def _fstat(self, handle: _Handle) -> None:
        found, file = await self._here.mounted.fs.getattr(self._ino(handle)), handle.file
        wanted = len(file.content), file.mode, int(file.has_name)
        assert (found.size, stat.S_IMODE(found.mode), found.nlink) == wanted, ("fstat", handle.how)

    async def _fsync(self, handle: _Handle) -> None:
        await self._here.files.fsync(handle.number)
        if handle.may_write:
            handle.file.is_late = False
            self._check_saved(handle.file)

    async def _flush(self, handle: _Handle) -> None:
        """As when a duplicate is closed."""
        if handle.may_write:
            await self._here.files.flush(handle.number)
            self._check_saved(handle.file)

    async def _close(self, handle: _Handle) -> None:
        self._handles.remove(handle)
        files = self._here.files
        if not files.is_flushed(handle.number):
            await files.flush(handle.number)
        if not files.release_nowait(handle.number):
            await files.release(handle.number)
        if handle.may_write:
            handle.file.n_writers -= 1
            self._check_saved(handle.file)

    def _check_saved(self, file: File) -> None:
        """What was acknowledged is in S3, or comes there soon."""
        file.saved()
        for path, node in nodes_in("", self._model.root):
            if node is file and not file.is_late:
                found = self._store.objects[path][1] if path in self._store.objects else None
                assert found == file.content, f"{path} was closed, and S3 has something else"


_ON_HANDLES = frozenset({"read", "write", "ftruncate", "fstat", "fsync", "flush", "close"})


async def _error_of(call: Awaitable[object]) -> S3MountError | None:
    try:
        await call
    except S3MountError as error:
        return error
    return None


async def _done(call: Callable[[], object]) -> None:
    call()
