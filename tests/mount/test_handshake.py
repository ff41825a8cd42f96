"""Our INIT exchange on real mounts: the limits hold, libfuse takes over where it fails, nothing is left behind."""

import contextlib
import os
import shutil
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pyfuse3
import pytest
import trio

from s3mount.cache.metadata import MetadataConfig
from s3mount.core.ttl import INDEFINITE
from s3mount.fuse import session
from s3mount.fuse.boundary import Boundary
from s3mount.fuse.notify import ThreadNotifier
from s3mount.fuse.operations import Operations
from s3mount.fuse.options import FuseConfig
from s3mount.units import MIB
from tests.fs.harness import file_system
from tests.mount import readers
from tests.mount.scripted import ScriptedBucket
from tests.support.fake_store import FakeStore
from tests.support.mounts import COMMAND, aws_environment, clean_up, is_mounted, mounted
from tests.support.namespaces import NOBODY, PUBLIC_FUSE_DEV, as_nobody, in_namespace
from tests.support.processes import wait_until
from tests.support.proxy import Fault, Request, proxy
from tests.support.refusals import kill_processes_of, processes_of
from tests.support.servers import Server

pytestmark = [pytest.mark.mount]

#: The kernel's own numbers of a mount; its directory is named by the minor number of the mount's device.
LIMITS = """
device=$(grep -F ' {path} ' /proc/self/mountinfo | cut -d' ' -f3)
mount -t fusectl fusectl /sys/fs/fuse/connections
cd /sys/fs/fuse/connections/${{device#*:}}
cat max_background congestion_threshold
cd /
"""


@pytest.fixture
def mnt(work: Path) -> Iterator[Path]:
    """An empty directory to mount on; unmounted with the test."""
    path = work / "mnt"
    path.mkdir()
    yield path
    clean_up(path)


# -- the limits -------------------------------------------------------------------------------


@pytest.mark.server
def test_limits_as_root(weed: Server, work: Path) -> None:
    """The kernel keeps 256 requests in the background, and calls 192 congestion."""
    with mounted(weed.make_bucket(), work, url=weed.url) as mount:
        result = in_namespace(LIMITS.format(path=mount.path))
        assert (result.stdout.split(), result.stderr) == (["256", "192"], "")
        assert mount.warnings() == []


@pytest.mark.server
def test_limits_as_an_ordinary_user(weed: Server) -> None:
    """The same without any right: fusermount3 mounts, and the exchange is ours."""
    public = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="s3mount-test-"))
    os.chown(public, NOBODY, NOBODY)
    command = [COMMAND, weed.make_bucket(), str(public), "--endpoint-url", weed.url, "--force-path-style"]
    try:
        script = (
            PUBLIC_FUSE_DEV
            + as_nobody(*command)
            + LIMITS.format(path=public)
            + as_nobody("fusermount3", "-u", str(public))
        )
        result = in_namespace(script)
        assert (result.returncode, result.stdout.split(), result.stderr) == (0, ["256", "192"], "")
        wait_until(lambda: not processes_of(public), 60, "the daemon ending after the unmount")
    finally:
        kill_processes_of(public)
        shutil.rmtree(public)


class _Crowd:
    """A proxy's `decide` that holds GETs behind the first part of a file until so many are there."""

    def __init__(self, bucket: ScriptedBucket, size: int) -> None:
        self._bucket = bucket
        self._size = size
        self._waiting = 0
        self._lock = threading.Lock()
        self.is_complete = threading.Event()

    def __call__(self, request: Request) -> Fault | None:
        if int(request.headers.get("range", "bytes=0-").removeprefix("bytes=").partition("-")[0]) > 0:
            with self._lock:
                self._waiting += 1
                if self._waiting == self._size:
                    self.is_complete.set()
            self.is_complete.wait(120)
        return self._bucket.decide(request)


@pytest.mark.server
def test_buffered_readers_do_not_wait_for_each_other(weed: Server, work: Path) -> None:
    """The reads of 64 programs in 64 large files are all at S3 at the same time; libfuse's own limit is 12."""
    files = {f"{number:03}": 64 * MIB for number in range(64)}
    with proxy(weed.url) as front:
        crowd = _Crowd(ScriptedBucket(files), 64)
        front.decide = crowd
        with mounted(weed.make_bucket(), work, url=front.url) as mount:
            reader = readers.start("read_each_at", str(40 * MIB), *(mount.path / key for key in files))
            try:
                assert crowd.is_complete.wait(100)
            finally:
                crowd.is_complete.set()
            assert readers.answer(reader) == [4096] * 64


# -- pyfuse3 on the real device ---------------------------------------------------------------


class _Watched(Operations):
    """Counts look-ups, and can hold them until so many are there (or will never be)."""

    lookups = 0
    at_once = 0
    most_at_once = 0
    crowd = 0
    is_complete: trio.Event

    async def lookup(
        self, parent_inode: pyfuse3.InodeT, name: pyfuse3.FileNameT, ctx: pyfuse3.RequestContext | None = None
    ) -> pyfuse3.EntryAttributes:
        self.lookups += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        if self.at_once < self.crowd:
            with trio.move_on_after(60):
                await self.is_complete.wait()
        self.is_complete.set()
        self.at_once -= 1
        return await super().lookup(parent_inode, name, ctx)


@asynccontextmanager
async def served(path: Path, store: FakeStore) -> AsyncIterator[_Watched]:
    """A mount that this process serves; programs on it must be other processes."""
    async with file_system(store, metadata=MetadataConfig(INDEFINITE, INDEFINITE)) as parts:
        operations = _Watched(parts.fs, Boundary(60.0))
        operations.is_complete = trio.Event()
        with session.mounted(operations, FuseConfig(str(path), "bucket")):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.serve)
                yield operations
                nursery.cancel_scope.cancel()


async def output(*command: str | Path) -> str:
    """What a program says."""
    return (await trio.run_process([*map(str, command)], capture_stdout=True)).stdout.decode()


async def test_names_of_one_directory_are_looked_up_in_parallel(mnt: Path) -> None:
    """Eight programs that want eight names of one directory are all with the daemon at once; with libfuse one is."""
    store = FakeStore()
    for number in range(8):
        store.put(f"{number}", b"x")
    async with served(mnt, store) as operations:
        operations.crowd = 8
        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(output, "cat", mnt / str(number))
        assert operations.most_at_once == 8


def done(notifier: ThreadNotifier) -> tuple[int, int]:
    """Notes that the kernel took, and that were about what it did not know."""
    statistics = notifier.statistics()
    return statistics.sent, statistics.unknown


async def test_the_kernel_is_notified(mnt: Path) -> None:
    """A notification that a thread sends reaches the kernel: it forgets the name, and says when it knows none."""
    store = FakeStore()
    store.put("a", b"one")
    async with served(mnt, store) as operations:
        assert await output("cat", mnt / "a") == "one"
        assert await output("cat", mnt / "a") == "one"
        assert operations.lookups == 1
        notifier = ThreadNotifier()
        for name in (b"a", b"never heard of"):
            notifier.forget_name(pyfuse3.ROOT_INODE, name)
        await trio.to_thread.run_sync(wait_until, lambda: sum(done(notifier)) == 2, 60, "carried")
        assert done(notifier) == (1, 1)
        assert notifier.close()
        assert await output("cat", mnt / "a") == "one"
        assert operations.lookups == 2


async def test_listing_while_files_are_read(mnt: Path) -> None:
    """Directories come with attributes, and contents whole, through the same exchange."""
    store = FakeStore()
    for number in range(300):
        store.put(f"d/{number:03}", bytes([number % 256]) * number)
    async with served(mnt, store):
        listing = await output("stat", "-c", "%n %s", *[mnt / "d" / f"{number:03}" for number in range(300)])
        assert [line.split()[1] for line in listing.splitlines()] == [str(number) for number in range(300)]
        assert (await output("ls", mnt / "d")).split() == [f"{number:03}" for number in range(300)]


# -- the end ----------------------------------------------------------------------------------


def descriptors() -> list[str]:
    """What this process has open."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue  # the listing's own
    return sorted(found)


def children() -> set[int]:
    """Processes that this one started, zombies too."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that ended meanwhile
            found |= set(map(int, (task / "children").read_text(encoding="ascii").split()))
    return found


async def _mount_once(path: Path, *, auto_unmount: bool = False, serve: bool = True) -> None:
    async with file_system(FakeStore()) as parts:
        config = FuseConfig(str(path), "bucket", auto_unmount=auto_unmount)
        with session.mounted(Operations(parts.fs, Boundary(60.0)), config):
            assert is_mounted(path)
            if serve:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(session.serve)
                    await output("stat", "-f", path)
                    nursery.cancel_scope.cancel()
        assert not is_mounted(path)


@pytest.mark.parametrize("auto_unmount", [False, True], ids=["by mount(2)", "by fusermount3"])
async def test_mounting_leaks_nothing(mnt: Path, *, auto_unmount: bool) -> None:
    """After 1,000 mounts, served and not served, no descriptor and no child is left."""
    await _mount_once(mnt, auto_unmount=auto_unmount)  # what is opened once stays: trio's, the event loop's
    before, had = Counter(descriptors()), children()
    for _ in range(20 if auto_unmount else 500):
        await _mount_once(mnt, auto_unmount=auto_unmount)
        await _mount_once(mnt, auto_unmount=auto_unmount, serve=False)
    assert Counter(descriptors()) - before == Counter()  # what others had open may have gone meanwhile
    assert children() <= had


async def test_an_error_unmounts(mnt: Path) -> None:
    """An exception inside the block leaves nothing mounted, whether anything was served or not."""
    async with file_system(FakeStore()) as parts:
        with (
            pytest.raises(ZeroDivisionError),
            session.mounted(Operations(parts.fs, Boundary(60.0)), FuseConfig(str(mnt), "bucket")),
        ):
            raise ZeroDivisionError
    assert not is_mounted(mnt)


async def test_what_is_mounted_in_its_place_stays(mnt: Path) -> None:
    """After an unmount from outside, something else that was mounted on the directory is left alone."""
    async with file_system(FakeStore()) as parts, trio.open_nursery() as nursery:
        with session.mounted(Operations(parts.fs, Boundary(60.0)), FuseConfig(str(mnt), "bucket")):
            nursery.start_soon(session.serve)
            await output("stat", "-f", mnt)
            await output("umount", mnt)
            await output("mount", "-t", "tmpfs", "tmpfs", mnt)
        nursery.cancel_scope.cancel()
    assert is_mounted(mnt)


# -- libfuse instead ---------------------------------------------------------------------------

#: Found on PATH before the real one; libfuse knows the real one's place.
_REFUSING = "#!/bin/sh\nexit 1\n"
_CONFUSED = f"""#!{sys.executable}
import os, socket
with socket.socket(fileno=int(os.environ["_FUSE_COMMFD"])) as there:
    socket.send_fds(there, [b"x"], [os.open(os.devnull, os.O_RDWR)])
"""


@pytest.mark.server
@pytest.mark.parametrize(
    ("helper", "reason"),
    [(_REFUSING, "fusermount3 ended with 1"), (_CONFUSED, "an INIT message of 0 bytes is too short")],
    ids=["no descriptor", "not a FUSE device"],
)
def test_libfuse_mounts_where_this_program_cannot(weed: Server, work: Path, helper: str, reason: str) -> None:
    """Without a descriptor that opens with INIT the mount is libfuse's, works, and one line of the log says why."""
    bucket = weed.make_bucket()
    weed.client.put_object(Bucket=bucket, Key="a", Body=b"hello")
    program = work / "bin" / "fusermount3"
    program.parent.mkdir()
    program.write_text(helper)
    program.chmod(0o755)
    env = aws_environment(PATH=f"{program.parent}:{os.environ['PATH']}")
    with mounted(bucket, work, "--auto-unmount", url=weed.url, env=env) as mount:
        assert (mount.path / "a").read_bytes() == b"hello"
        (line,) = [each for each in mount.log.splitlines() if "libfuse mounts" in each]
        assert " INFO " in line
        assert reason in line
        assert in_namespace(LIMITS.format(path=mount.path)).stdout.split() == ["12", "9"]
        assert mount.stop() == 0
        assert not is_mounted(mount.path)
        assert mount.warnings() == []
