"""What a name costs that the kernel remembers, and that nothing is left of one that it forgot.

The kernel keeps names for as long as it has memory, also of files that another client removed.  So bytes are counted
that the file system allocated in one round of work and still has after it, for each name of the round.  What is bounded
by a number of names is made small, so that it is full before.
"""

import gc
import tracemalloc
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from statistics import mean

import pytest
import trio
from trio.testing import MockClock

from s3mount.cache import ghosts, metadata, shown
from s3mount.cache.metadata import MetadataConfig
from s3mount.core import siblings
from s3mount.core.ttl import TimeToLive
from s3mount.fs import directories, kernel_view, misses, objects, symlinks
from s3mount.units import KIB, MIB
from tests.fs.names_harness import FRESH, MountedNames, namespace
from tests.fs.test_names import bucket

#: Names of a round.  With the rounds before they fill each table that has a bound.
_NAMES = 40
_ROOM = 20
_BOUNDS = (
    (metadata, "MAX_ENTRIES"), (metadata, "MAX_ANSWERS"), (metadata, "MAX_MINIMAL_ENTRIES"),
    (metadata, "MAX_MINIMAL_ANSWERS"), (shown, "MAX_SHOWN"), (ghosts, "_MAX_GHOSTS"), (siblings, "MAX_FAMILIES"),
    (kernel_view, "_MAX_ABSENT"), (misses, "_MAX_COUNTED"), (directories, "_MAX_NOTED"), (objects, "MAX_REMEMBERED"),
    (symlinks, "MAX_TARGETS"),
)  # fmt: skip
_ROUNDS = 5
#: Bytes of a name in the table of inodes, of which the ETag is the test's, and of the table's room to grow.
_REMEMBERED = 600
#: Less than any object; tables with a bound are replaced by others of almost the same size.
_NOTHING = 16
#: What the file system made itself, and what NamedTuple makes for it.
_OURS = [tracemalloc.Filter(inclusive=True, filename_pattern=each) for each in ("*/s3mount/*", "<string>")]

Round = Callable[[MountedNames, list[str]], Awaitable[None]]


def names_of(number: int) -> list[str]:
    return [f"a directory/{number}-{each:05}.jpg" for each in range(_NAMES)]


def ours() -> int:
    """Bytes that the file system allocated and has."""
    gc.collect()
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(_OURS).traces)


def forget(here: MountedNames) -> None:
    """The kernel is short of memory: it lets go of all that is not open."""
    inodes = here.mounted.fs.tree.inodes
    known = [inode for inode in inodes.below("") if inode is not inodes.root and not inode.handles]
    here.mounted.fs.forget([(inode.ino, inode.lookups) for inode in known])


def others_make(here: MountedNames, names: list[str], size: int = 9000) -> None:
    content = bytes(size)
    for name in names:
        here.store.put(name, content)


def others_remove(here: MountedNames, names: list[str]) -> None:
    for name in names:
        here.store.delete(name)


async def read_whole(here: MountedNames, names: list[str]) -> None:
    """Listed, read, removed by another client."""
    others_make(here, names)
    await trio.sleep(2)
    await here.listed("a directory")
    for name in names:
        await here.mounted.read_file(name, 4 * KIB)
    others_remove(here, names)
    await trio.sleep(2)
    await here.listed("a directory")


async def read_here_and_there(here: MountedNames, names: list[str]) -> None:
    """Every fourth page, within the first MiB and beyond."""
    others_make(here, names, 2 * MIB)
    await trio.sleep(2)
    for name in names:
        handle = await here.mounted.fs.open((await here.mounted.walk(name)).ino)
        for offset in range(0, 2 * MIB, 16 * KIB):
            await here.mounted.read(handle, offset, 4 * KIB)
        await here.files.release(handle)
    others_remove(here, names)


async def replaced(here: MountedNames, names: list[str]) -> None:
    """Another client writes the same names again; the kernel may keep the versions that it had."""
    names = names_of(0)
    others_make(here, names)
    await trio.sleep(2)
    for name in names:
        await here.mounted.read_file(name)


async def of_directories(here: MountedNames, names: list[str]) -> None:
    """Each with a file that nobody looks up."""
    others_make(here, [f"{name}/file" for name in names], 1)
    for name in names:
        await here.mounted.walk(name)
    others_remove(here, [f"{name}/file" for name in names])


async def written(here: MountedNames, names: list[str]) -> None:
    """Written here, renamed, and removed by another client."""
    for name in names:
        await here.write(name + "~", b"content")
        await here.rename(name + "~", name)
    await trio.sleep(60)
    others_remove(here, names)


async def linked(here: MountedNames, names: list[str]) -> None:
    """Symbolic links that were made and read here."""
    for name in names:
        await here.symlink(name, "target")
        await here.readlink(name)
    others_remove(here, list(here.store.objects))
    here.store.put("a directory/", b"")
    await trio.sleep(60)


async def missing(here: MountedNames, names: list[str]) -> None:
    """Names that nothing has."""
    for name in names:
        await here.exists(name)


async def removed_while_written(here: MountedNames, names: list[str]) -> None:
    """A temporary file without a name."""
    for name in names:
        handle = await here.create(name, b"a")
        await here.unlink(name)
        await here.files.write(handle, 1, b"b")
        await here.close(handle)


async def removed_while_read(here: MountedNames, names: list[str]) -> None:
    """Who has it open reads on."""
    others_make(here, names)
    await trio.sleep(2)
    for name in names:
        handle = await here.mounted.fs.open((await here.mounted.walk(name)).ino)
        await here.unlink(name)
        await here.mounted.read(handle, 0, 4 * KIB)
        await here.files.release(handle)


async def renamed_over(here: MountedNames, names: list[str]) -> None:
    """A file that is replaced by renames, as checkpoints are."""
    for name in names:
        await here.write(name, b"content")
        await here.rename(name, "latest")


async def made_and_removed(here: MountedNames, names: list[str]) -> None:
    """Directories with a file, renamed and removed."""
    for name in names:
        await here.mkdir(name)
        await here.write(f"{name}/file", b"content")
        await here.rename(name, name + "~")
        await here.unlink(f"{name}~/file")
        await here.rmdir(name + "~")


async def with_attributes(here: MountedNames, names: list[str]) -> None:
    """Written, listed and asked for."""
    for name in names:
        await here.write(name, b"content")
    await here.listed("a directory")
    for name in names:
        await here.mounted.walk(name)
        await here.unlink(name)


async def kept(tmp_path: Path, work: Round, *, is_forgotten: bool, metadata: MetadataConfig = FRESH) -> list[float]:
    """Bytes that a round leaves for each of its names, of some rounds when the tables with a bound are full."""
    store, writer = bucket("a directory/")
    async with namespace(store, tmp_path, writer=writer, metadata=metadata) as here:
        found = []
        tracemalloc.start()
        try:
            for number in range(_ROUNDS):
                await work(here, names_of(number))
                await here.names.sync()
                await trio.sleep(60)
                if is_forgotten:
                    forget(here)
                writer._attributes.clear()
                found.append(ours())
        finally:
            tracemalloc.stop()
        here.check_invariants()
        return [(after - before) / _NAMES for before, after in pairwise(found[1:])]


@pytest.fixture(autouse=True)
def small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in _BOUNDS:
        monkeypatch.setattr(module, name, _ROOM)


@pytest.mark.parametrize("ttl_s", [0.0, 1.0, 10.0])
@pytest.mark.parametrize("work", [read_whole, read_here_and_there, replaced, of_directories, written, linked])
async def test_a_name_that_the_kernel_remembers_costs_little(
    tmp_path: Path, autojump_clock: MockClock, work: Round, ttl_s: float
) -> None:
    """However it was used, and whoever removed it since."""
    times = MetadataConfig(TimeToLive(ttl_s), TimeToLive(ttl_s)) if ttl_s else MetadataConfig()
    assert mean(await kept(tmp_path, work, is_forgotten=False, metadata=times)) < _REMEMBERED


@pytest.mark.parametrize(
    "work",
    [
        read_whole, read_here_and_there, replaced, of_directories, written, linked, missing, removed_while_written,
        removed_while_read, renamed_over, made_and_removed, with_attributes,
    ],
)  # fmt: skip
async def test_nothing_is_left_of_a_name_that_the_kernel_forgot(
    tmp_path: Path, autojump_clock: MockClock, work: Round
) -> None:
    """Nor of what nothing had, of drafts, of renames, or of what readers had open."""
    assert min(await kept(tmp_path, work, is_forgotten=True)) < _NOTHING
