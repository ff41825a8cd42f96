"""kill -9 at any moment, several processes at once, and files that are not what they were."""

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from s3mount.cache.directory import BlockDirectory
from s3mount.cache.verification import is_right_file
from s3mount.core.blockfile import GRANULE, HEADER_BYTES
from s3mount.core.ranges import ByteRange
from s3mount.units import MIB
from tests.cache.disk_harness import Source, block_files, content_of, counted, fill, running, whole
from tests.cache.disk_worker import N_OBJECTS, SOURCE
from tests.support.processes import end

#: tests/soak has the whole proof.
KILLS = 15
ROOT = Path(__file__).parents[2]


@contextmanager
def worker(
    directory: Path, mode: str, seed: int, max_bytes: float, operations: int = 0
) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.cache.disk_worker", str(directory), mode]
    process = subprocess.Popen(
        [*command, str(seed), str(max_bytes), str(operations)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        end(process)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def killed_at_random(parent: subprocess.Popen[bytes], seed: int) -> list[int]:
    """The numbers of the objects that were on disk when a process was killed while it wrote others."""
    draw = random.Random(seed)
    assert parent.stdin is not None
    assert parent.stdout is not None
    parent.stdin.write(b"%d\n" % seed)
    parent.stdin.flush()
    child = int(parent.stdout.readline())
    complete = [int(parent.stdout.readline()) for _ in range(draw.randrange(1, 40))]
    time.sleep(draw.random() * 0.01)  # noqa: TID251  the moment is what is drawn
    os.kill(child, signal.SIGKILL)
    while (line := parent.stdout.readline()) != b"dead\n":
        complete.append(int(line))
    return complete


def wrong_files(directory: Path) -> list[str]:
    blocks = BlockDirectory(directory)
    return [path.name for path in block_files(directory) if not is_right_file(blocks, bytes.fromhex(path.name))]


async def kill_while_writing(directory: Path, kills: int) -> None:
    complete = []
    with worker(directory, "fill", 0, float("inf")) as parent:
        for seed in range(kills):
            complete += killed_at_random(parent, seed)
            assert wrong_files(directory) == []
    assert len(complete) >= kills
    async with running(directory, min_free_percent=0) as cache:
        for number in complete:
            content = content_of(cache, SOURCE, number)
            assert await cache.get(content, whole(content)) == SOURCE.bytes(0)
        assert counted(cache).blocks >= len(complete)
        assert (await cache.verify())[directory].removed == []


async def kill_while_evicting(directory: Path, kills: int) -> None:
    limit = 4 * MIB
    with worker(directory, "fill", 0, limit) as parent:
        for seed in range(kills):
            killed_at_random(parent, seed)
            assert wrong_files(directory) == []
            assert sum(path.stat().st_size for path in block_files(directory)) <= limit
    async with running(directory, min_free_percent=0) as cache:
        assert counted(cache).blocks == len(block_files(directory)) > 10


async def test_kill_at_any_moment(work: Path) -> None:
    """A process killed at any moment leaves whole verified blocks only, and all that were complete are served."""
    await kill_while_writing(work / "c", KILLS)


async def test_kill_while_evicting(work: Path) -> None:
    """A process killed at any moment of writing into a full cache leaves whole verified blocks, within the limit."""
    await kill_while_evicting(work / "c", KILLS)


def shared(directory: Path, mode: str, max_bytes: float, operations: int, n: int = 4) -> list[dict[str, Any]]:
    """The counters of several processes that used one directory at once; none found a wrong byte."""
    with ExitStack() as stack:
        workers = [stack.enter_context(worker(directory, mode, seed, max_bytes, operations)) for seed in range(n)]
        outputs = [process.communicate()[0] for process in workers]
        assert [process.returncode for process in workers] == [0] * n
    counts = [json.loads(output) for output in outputs]
    assert all(count["corrupt"] == 0 and count["errors"] == {} for count in counts)
    assert wrong_files(directory) == []
    return counts


def test_processes_that_share_a_directory(work: Path) -> None:
    """Four processes that read, write and evict in one directory at once never get a wrong byte."""
    counts = shared(work / "c", "mixed", 40 * SOURCE.size, 1000)
    assert sum(count["hits"] for count in counts) > 400
    evicted = sum(count["evicted"] for count in counts)
    assert 100 < evicted <= sum(count["written"] for count in counts) - len(block_files(work / "c"))


def test_nothing_is_lost_below_the_limit(work: Path) -> None:
    """Four processes that fill one directory at once, below its limit, lose no block: what was there once is a hit."""
    counts = shared(work / "c", "keep", 10 * N_OBJECTS * SOURCE.size, 500)
    assert all(count["evicted"] == count["dropped"] == count["refused"] == 0 for count in counts)


async def test_the_limit_holds_when_one_is_left(work: Path) -> None:
    """What several processes wrote beyond the limit is gone when one of them has seen all of it."""
    limit = 10 * SOURCE.size
    async with running(work / "c", min_free_percent=0) as cache:
        await fill(cache, SOURCE, range(30))
    async with running(work / "c", max_bytes=limit, min_free_percent=0) as cache:
        await cache.evict(1)  # after the scan
        for each in cache._in_order:
            await each._upkeep.give_way()
        assert sum(path.stat().st_size for path in block_files(work / "c")) <= limit
        assert counted(cache).blocks >= 8


def flip(path: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def truncate(path: Path, draw: random.Random) -> None:
    os.truncate(path, draw.randrange(path.stat().st_size))


def zero(path: Path, draw: random.Random) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(draw.randrange(size // 4096) * 4096)
        file.write(bytes(4096))


def swap(path: Path, draw: random.Random) -> None:
    other = draw.choice([each for each in path.parent.parent.glob("??/*") if each != path])
    content = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(content)


@pytest.mark.parametrize("damage", [flip, truncate, zero, swap])
async def test_damaged_files(work: Path, damage: object) -> None:
    """Of 250 blocks damaged on disk every read is right or a miss; what was found wrong is removed and counted."""
    source = Source(70_000)
    n = 300
    draw = random.Random(damage.__name__)  # type: ignore[attr-defined]
    async with running(work / "c") as cache:
        await fill(cache, source, range(n))
        before = {path: path.stat().st_ino for path in block_files(work / "c")}
        for path in draw.sample(list(before), 250):
            damage(path, draw)  # type: ignore[operator]
        found = 0
        for number in range(n):
            content, data = content_of(cache, source, number), source.bytes(number)
            for start in range(0, source.size, 16_384):
                span = ByteRange(start, min(start + 16_384, source.size))
                view = await cache.get(content, span)
                assert view is None or view == data[span.start : span.stop]
                found += view is not None
        corrupt = counted(cache).corrupt
        assert 200 < corrupt <= 300
        assert len(block_files(work / "c")) == n - corrupt
        assert found > 50
        for number in range(n):
            cache.put(content_of(cache, source, number), 0, source.bytes(number))
            await cache.drained()
        assert len(block_files(work / "c")) == n


@pytest.mark.parametrize("length", [0, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + GRANULE])
async def test_a_file_that_ends_early(work: Path, length: int) -> None:
    """A block that ends between two granules, or before its content, is a miss and not a short read."""
    source = Source(3 * GRANULE)
    async with running(work / "c") as cache:
        for number, is_open in enumerate((True, False)):
            await fill(cache, source, range(number, number + 1))
            content = content_of(cache, source, number)
            if is_open:
                assert await cache.get(content, whole(content)) is not None
            (path,) = block_files(work / "c")
            os.truncate(path, length)
            assert cache.get_nowait(content, whole(content)) is None
            assert await cache.get(content, whole(content)) is None
            assert block_files(work / "c") == []


async def test_a_check_of_every_block(work: Path) -> None:
    """`verify` reads every block, removes the wrong ones and leaves the right ones."""
    source = Source(70_000)
    draw = random.Random(5)
    async with running(work / "c") as cache:
        await fill(cache, source, range(60))
        files = block_files(work / "c")
        for path, damage in zip(files, itertools.cycle([flip, truncate, zero, None]), strict=False):
            if damage is not None:
                damage(path, draw)
        counts = (await cache.verify())[work / "c"]
        assert (counts.right, len(counts.removed), counts.unread) == (15, 45, 0)
        assert counted(cache).corrupt == 45
        assert block_files(work / "c") == files[3::4]
        assert counted(cache).blocks == 15
