"""pyfuse3's handlers: thin by an AST test, and right in what they convert and answer."""

import ast
import errno
import inspect
import logging
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

import pyfuse3
import pytest
import trio
from trio.testing import MockClock

from s3mount import errors
from s3mount.cache.ages import MetadataConfig
from s3mount.core.attrs import ObjectId
from s3mount.core.ranges import ByteRange
from s3mount.core.ttl import INDEFINITE
from s3mount.core.waits import Arrival
from s3mount.fuse import operations, writing
from s3mount.fuse.boundary import Boundary
from s3mount.fuse.operations import Operations
from tests.fs.harness import OWNER, ROOT, file_system
from tests.support.fake_store import FakeStore, FaultyStore

#: What a mount that only reads needs.  The rest answers ENOSYS by pyfuse3 itself.
HANDLERS = {
    "lookup", "forget", "getattr", "opendir", "readdir", "releasedir", "access", "open", "read", "release", "statfs",
}  # fmt: skip
#: What a mount that may be written to has beside them.
WRITERS = {
    "create", "write", "flush", "fsync", "setattr", "mknod", "mkdir", "rmdir", "unlink", "rename", "link", "symlink",
    "readlink", "fsyncdir",
}  # fmt: skip
#: Not there on purpose: the kernel hears ENOSYS once and never asks again.
NOT_IMPLEMENTED = {"flush", "getxattr", "setxattr", "listxattr", "removexattr", "fsync", "fsyncdir"}
MAX_STATEMENTS = 6


def handlers(module: ModuleType = operations) -> list[ast.AsyncFunctionDef]:
    """The syntax trees of the handlers."""
    tree = ast.parse(inspect.getsource(module))
    (cls,) = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return [node for node in cls.body if isinstance(node, ast.AsyncFunctionDef) and not node.name.startswith("_")]


ALL_HANDLERS = [*handlers(), *handlers(writing)]


def statements_of(function: ast.AsyncFunctionDef) -> list[ast.stmt]:
    """All statements inside, nested ones too; a docstring is none."""
    found = [node for node in ast.walk(function) if isinstance(node, ast.stmt) and node is not function]
    return [node for node in found if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]


@asynccontextmanager
async def serving(
    store: FakeStore | FaultyStore, deadline_s: float = 60.0, metadata: MetadataConfig | None = None
) -> AsyncIterator[Any]:
    """Handlers on a store in memory; typed loosely, because the kernel passes plain numbers."""
    async with file_system(store, metadata=metadata) as mounted:
        boundary = Boundary(deadline_s)
        yield Operations(mounted.fs, boundary)
        boundary.check_invariants()


async def errno_of(call: Any) -> int:
    """The errno a handler answers with."""
    with pytest.raises(pyfuse3.FUSEError) as raised:
        await call
    return raised.value.errno


# -- the shape --------------------------------------------------------------------------------


@pytest.mark.parametrize("handler", ALL_HANDLERS, ids=lambda handler: handler.name)
def test_a_handler_is_short(handler: ast.AsyncFunctionDef) -> None:
    """Unpack, await one call, convert: at most six statements, and no decision beyond one `if`."""
    assert len(statements_of(handler)) <= MAX_STATEMENTS
    assert sum(isinstance(node, ast.If | ast.IfExp) for node in ast.walk(handler)) <= 1
    assert not any(isinstance(node, ast.Try | ast.For | ast.While) for node in ast.walk(handler))


@pytest.mark.parametrize("handler", ALL_HANDLERS, ids=lambda handler: handler.name)
def test_a_handler_is_guarded_under_its_own_name(handler: ast.AsyncFunctionDef) -> None:
    """Everything that a handler does is inside the boundary, which logs the handler's name and marks the call."""
    expected = f"self._boundary.guard('{handler.name}'"
    guards = [node for node in handler.body if isinstance(node, ast.With)]
    assert len(guards) == 1
    assert any(ast.unparse(item.context_expr).startswith(expected) for item in guards[0].items)
    outside = [node for node in handler.body if node is not guards[0]]
    assert all(isinstance(node, ast.FunctionDef) for node in outside)


def test_which_handlers_exist() -> None:
    """A handler more or fewer is a decision: an implemented flush costs 15 % of warm opens, an xattr a round trip."""
    implemented = {name for name in dir(pyfuse3.Operations) if not name.startswith("_")} & set(vars(Operations))
    assert implemented - {"enable_writeback_cache", "supports_dot_lookup", "init"} == HANDLERS
    assert implemented.isdisjoint(NOT_IMPLEMENTED)
    assert {handler.name for handler in handlers()} == HANDLERS
    assert {handler.name for handler in handlers(writing)} == WRITERS | {"open", "release"}


# -- conversions ------------------------------------------------------------------------------


async def test_attributes() -> None:
    """Mode, owner, size, times and timeouts arrive at the kernel as the file system says them."""
    store = FakeStore()
    store.put("dir/a.bin", b"x" * 1000, mtime_s=1_600_000_000)
    async with serving(store) as ops:
        directory = await ops.lookup(ROOT, b"dir")
        assert stat.S_ISDIR(directory.st_mode)
        entry = await ops.lookup(directory.st_ino, b"a.bin")
        assert entry.st_mode == stat.S_IFREG | OWNER.file_mode
        assert (entry.st_uid, entry.st_gid, entry.st_size) == (OWNER.uid, OWNER.gid, 1000)
        assert entry.st_mtime_ns == entry.st_ctime_ns == 1_600_000_000 * 10**9
        assert entry.st_blocks == 2
        assert 0 < entry.attr_timeout <= 1.0
        assert entry.entry_timeout == 0  # the look-up asked S3 and vouches for an open: the next one asks again
        again = await ops.getattr(entry.st_ino)
        assert (again.st_ino, again.st_size) == (entry.st_ino, 1000)


async def test_open_read_release() -> None:
    """An open file keeps the page cache and never bypasses it; bytes come as asked, short only at the end."""
    store = FakeStore()
    store.put("a", bytes(range(100)))
    async with serving(store) as ops:
        entry = await ops.lookup(ROOT, b"a")
        info = await ops.open(entry.st_ino, os.O_RDONLY, None)
        assert info.keep_cache
        assert not info.direct_io
        assert bytes(await ops.read(info.fh, 10, 20)) == bytes(range(10, 30))
        assert bytes(await ops.read(info.fh, 90, 4096)) == bytes(range(90, 100))
        assert bytes(await ops.read(info.fh, 100, 4096)) == b""
        await ops.release(info.fh)
        await ops.forget([(entry.st_ino, 1)])


async def test_statfs() -> None:
    """df shows a file system with room, whose names may have 1,024 bytes."""
    async with serving(FakeStore()) as ops:
        found = await ops.statfs(None)
    assert found.f_bavail * found.f_frsize > 2**50
    assert found.f_favail > 10**9
    assert found.f_namemax == 1024


# -- answers ----------------------------------------------------------------------------------


async def test_names_and_kinds() -> None:
    """Missing, impossible and misused names have the errno of a local file system."""
    store = FakeStore()
    store.put("file", b"x")
    store.put("dir/file", b"x")
    async with serving(store) as ops:
        file, directory = await ops.lookup(ROOT, b"file"), await ops.lookup(ROOT, b"dir")
        assert await errno_of(ops.lookup(ROOT, b"missing")) == errno.ENOENT
        assert await errno_of(ops.lookup(ROOT, b"\xff")) in (errno.EINVAL, errno.ENOENT)
        assert await errno_of(ops.lookup(file.st_ino, b"x")) == errno.ENOTDIR
        assert await errno_of(ops.opendir(file.st_ino, None)) == errno.ENOTDIR
        assert await errno_of(ops.open(directory.st_ino, os.O_RDONLY, None)) == errno.EISDIR


async def test_unknown_handles() -> None:
    """A handle this daemon did not give out is EBADF in every handler that takes one."""
    async with serving(FakeStore()) as ops:
        assert await errno_of(ops.read(4711, 0, 10)) == errno.EBADF
        assert await errno_of(ops.release(4711)) == errno.EBADF
        assert await errno_of(ops.readdir(4711, 0, None)) == errno.EBADF
        assert await errno_of(ops.releasedir(4711)) == errno.EBADF


async def test_unknown_inodes() -> None:
    """An inode number this daemon does not know is ESTALE in every handler that takes one."""
    async with serving(FakeStore()) as ops:
        assert await errno_of(ops.lookup(4711, b"x")) == errno.ESTALE
        assert await errno_of(ops.getattr(4711)) == errno.ESTALE
        assert await errno_of(ops.opendir(4711, None)) == errno.ESTALE
        assert await errno_of(ops.open(4711, os.O_RDONLY, None)) == errno.ESTALE


async def test_forget_never_fails(caplog: pytest.LogCaptureFixture) -> None:
    """pyfuse3 has no answer for a failed forget and would end the mount: it is only logged."""
    async with serving(FakeStore()) as ops:
        await ops.forget([(4711, 3)])
    assert all(record.levelno <= logging.ERROR for record in caplog.records)


@pytest.mark.parametrize(
    ("failure", "number"),
    [
        (errors.AccessDenied, errno.EACCES),
        (errors.ExpiredCredentials, errno.EACCES),
        (errors.StoreThrottled, errno.EIO),
        (errors.StoreFailure, errno.EIO),
        (errors.StoreUnreachable, errno.EIO),
        (errors.StoreTimeout, errno.ETIMEDOUT),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_a_failing_store(failure: type[errors.StoreError], number: int, caplog: pytest.LogCaptureFixture) -> None:
    """What S3 refuses reaches the program as an errno and the log as one line, from lookup, listing and read alike."""
    inner = FakeStore()
    inner.put("big", bytes(5_000_000))
    is_broken = False
    store = FaultyStore(inner, lambda op, key, _: failure(f"no {op}", key=key, operation=op) if is_broken else None)
    async with serving(store) as ops:
        entry = await ops.lookup(ROOT, b"big")
        is_broken = True
        if failure is errors.AccessDenied:  # it may still be a directory that cannot be listed
            assert await errno_of(ops.readdir(await ops.opendir(ROOT, None), 0, None)) == number
        else:
            assert await errno_of(ops.lookup(ROOT, b"other")) == number
        info = await ops.open(entry.st_ino, os.O_RDONLY, None)
        assert await errno_of(ops.read(info.fh, 0, 4096)) == number
        await ops.release(info.fh)
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert [line.split(":")[0] for line in lines] in (["lookup", "read"], ["readdir", "read"])
    assert "key='big'" in lines[1]


async def test_replaced_while_open() -> None:
    """A version that is gone while it is open is ESTALE, never bytes of the next one."""
    store = FakeStore()
    store.put("big", b"1" * 5_000_000)
    async with serving(store) as ops:
        entry = await ops.lookup(ROOT, b"big")
        store.put("big", b"2" * 5_000_000)
        info = await ops.open(entry.st_ino, os.O_RDONLY, None)
        assert await errno_of(ops.read(info.fh, 0, 4096)) == errno.ESTALE
        await ops.release(info.fh)


async def test_archived(caplog: pytest.LogCaptureFixture) -> None:
    """An archived object is EACCES on open, and the log names its class and the way to restore it."""
    store = FakeStore()
    store.put("cold", b"x", storage_class="GLACIER")
    async with serving(store) as ops:
        entry = await ops.lookup(ROOT, b"cold")
        assert await errno_of(ops.open(entry.st_ino, os.O_RDONLY, None)) == errno.EACCES
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "GLACIER" in line
    assert "restore" in line


async def test_readers_of_one_request_log_its_failure_once(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Eight readers that wait for the same GET all get EIO, and the log gets one line."""

    class Breaking(FakeStore):
        async def get_range(self, wanted: ObjectId, span: ByteRange, arrival: Arrival | None = None) -> bytes:
            await trio.sleep(5.0)
            raise errors.StoreFailure("broke", key=wanted.key)

    store = Breaking()
    store.put("big", bytes(5_000_000))
    answers: list[int] = []
    async with serving(store) as ops:
        entry = await ops.lookup(ROOT, b"big")
        info = await ops.open(entry.st_ino, os.O_RDONLY, None)

        async def read() -> None:
            answers.append(await errno_of(ops.read(info.fh, 0, 4096)))

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(read)
        await ops.release(info.fh)
    assert answers == [errno.EIO] * 8
    assert sum("broke" in record.getMessage() for record in caplog.records) == 1


async def test_a_store_that_never_answers(autojump_clock: MockClock) -> None:
    """A handler that waits for S3 gives up at the deadline with ETIMEDOUT; what needs no request goes on."""
    store = FakeStore()
    store.put("big", bytes(5_000_000))
    async with serving(store, deadline_s=60.0) as ops:
        entry = await ops.lookup(ROOT, b"big")
        info = await ops.open(entry.st_ino, os.O_RDONLY, None)
        store.latency_s = 3600.0
        for call in (ops.read(info.fh, 0, 4096), ops.lookup(ROOT, b"other")):
            started = trio.current_time()
            assert await errno_of(call) == errno.ETIMEDOUT
            assert trio.current_time() - started == pytest.approx(60.0)
        assert (await ops.getattr(entry.st_ino)).st_size == 5_000_000  # of an open file: needs no request
        await ops.release(info.fh)


async def test_a_missing_name_with_a_negative_ttl_is_an_entry_without_inode(autojump_clock: object) -> None:
    """The kernel gets inode 0 and how long to keep that, 100 years for ever; without a TTL it gets ENOENT."""
    async with serving(FakeStore(), metadata=MetadataConfig(INDEFINITE, INDEFINITE)) as handlers:
        entry = await handlers.lookup(ROOT, b"missing")
        assert (entry.st_ino, entry.entry_timeout) == (0, 100 * 365 * 86400)
    async with serving(FakeStore()) as handlers:
        assert await errno_of(handlers.lookup(ROOT, b"missing")) == errno.ENOENT


@pytest.mark.parametrize("flags", [0, os.O_DIRECT], ids=["buffered", "direct"])
async def test_only_a_direct_open_asks_for_the_version(autojump_clock: object, flags: int) -> None:
    """O_DIRECT on a replaced file above 1 MiB is ESTALE in open; buffered, open cannot know it yet."""
    store = FakeStore()
    store.put("f", bytes(2 << 20))
    async with serving(store, metadata=MetadataConfig(INDEFINITE, INDEFINITE)) as handlers:
        entry = await handlers.lookup(ROOT, b"f")
        await trio.sleep(1)
        store.put("f", bytes(3 << 20))
        opening = handlers.open(entry.st_ino, os.O_RDONLY | flags, None)
        if flags:
            assert await errno_of(opening) == errno.ESTALE
        else:
            await handlers.release((await opening).fh)
