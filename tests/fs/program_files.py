"""The steps of programs that are about files, on a mount in memory and on a model; see `program_run`."""

import stat
from collections.abc import Awaitable, Callable
from typing import Any

from s3mount.cache.shown import Shown
from s3mount.core.posix import Posix
from s3mount.errors import AlreadyExists, IsADirectory, NameNotFound, ObjectChanged, S3MountError, StaleInode
from s3mount.fs.drafts import Opening
from s3mount.units import MIB
from tests.fs.names_harness import MountedNames
from tests.fs.program_model import FILE_MODE, File, Model, nodes_in
from tests.support.content import make_content
from tests.support.fake_store import FakeStore

#: Of a larger file not all is here when it is opened to be read.
_SMALL = 1 * MIB
#: What a program may be told of bytes that nobody has any more.
_GONE = (StaleInode, ObjectChanged)
_CONTENT = make_content("programs", 6 * MIB + 256)
ON_HANDLES = frozenset({"read", "write", "ftruncate", "fstat", "fsync", "flush", "close"})


def data(seed: int, length: int) -> bytes:
    """Bytes that differ with the seed."""
    return _CONTENT[seed : seed + length]


async def error_of(call: Awaitable[object]) -> S3MountError | None:
    """What a call raises."""
    try:
        await call
    except S3MountError as error:
        return error
    return None


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


class FileSteps:
    """Does each on both; raises AssertionError at a difference."""

    _here: MountedNames

    def __init__(self, store: FakeStore) -> None:
        self._store = store
        self._model = Model()
        self._handles: list[_Handle] = []

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

        outcome = await error_of(opened())
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
        return await error_of(_done(lambda: self._model.parent(path))) is None

    async def _opened(self, path: str, how: str, opening: Opening, *, is_creating: bool) -> int:
        """As the kernel does it, which looks up once more what is stale."""
        here = self._here
        try:
            attrs = await here.mounted.walk(path)
        except NameNotFound:
            if not is_creating:
                raise
            opening = opening._replace(is_truncating=True) if how != "a" else opening
            return (await here.files.create(*await here.at(path), opening, Posix(mode=FILE_MODE), 0))[0]
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
            assert type(await error_of(self._here.mounted.walk(path))) is type(node), ("stat", path, node)
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
            is_known = handle.how == "r"  # it was read before: the kernel has it, and here is nothing of it
            assert handle.is_large or is_known, f"{len(handle.file.content)} bytes are gone"
            assert not handle.file.has_name
        else:
            assert found == wanted, ("read", handle.how, offset, length, len(found), len(wanted))

    async def _write(self, handle: _Handle, offset: int, seed: int, length: int) -> None:
        if not handle.may_write or not length:
            return
        file, content = handle.file, data(seed, length)
        if handle.how == "a":
            offset, file.is_late = len(file.content), True
        if not self._here.files.append_nowait(handle.number, offset, content):
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


async def _done(call: Callable[[], object]) -> None:
    call()
