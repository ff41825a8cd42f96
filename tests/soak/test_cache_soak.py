"""The disk cache for minutes: two daemons on one directory, and processes that are killed at any moment.

SOAK_SECONDS sets how long the whole soak takes (default 1200); the daemons get a quarter of it.
"""

import json
import re
import shutil
from pathlib import Path

import pytest

from s3mount.units import MIB
from tests.cache.disk_harness import block_files
from tests.cache.disk_worker import N_OBJECTS, SOURCE
from tests.cache.test_disk_crash import kill_while_evicting, kill_while_writing, shared, wrong_files
from tests.soak.test_soak import SECONDS, originals, readers
from tests.support.mounts import Mount, mounted
from tests.support.servers import Server

pytestmark = [pytest.mark.soak, pytest.mark.timeout(0)]

_KILLS = 100
_READERS = 8
#: Of 300 MiB of content.
_LIMIT = 96 * MIB
#: What each daemon may have removed for blocks that it has not written yet: a batch, and one block more.
_IN_EXCHANGE = 2 * (8 + 8) * MIB

__all__ = ["originals"]


def counts_of(mount: Mount) -> dict[str, int]:
    """The line at the unmount."""
    (line,) = re.findall(r"disk cache .*", mount.log)
    return {name: int(count) for count, name in re.findall(r"(\d+) ([a-z]+)", line)}


@pytest.mark.mount
@pytest.mark.server
def test_two_daemons_share_a_directory(weed: Server, work: Path, originals: Path) -> None:
    """16 programs on two mounts with one cache directory, which both fill and evict all the time, get no wrong byte;
    the directory stays full and its blocks right.
    """
    bucket, cache = weed.make_bucket(), work / "cache"
    for path in originals.iterdir():
        weed.client.upload_file(str(path), bucket, path.name)
    flags = ("--cache", str(cache), "--max-cache-size", str(_LIMIT // MIB), "--cache-policy", "lru")
    with (
        mounted(bucket, work / "one", *flags, url=weed.url) as one,
        mounted(bucket, work / "two", *flags, url=weed.url) as two,
        readers(one, originals, _READERS, SECONDS / 4) as of_one,
        readers(two, originals, _READERS, SECONDS / 4) as of_two,
    ):
        reports = [json.loads(each.communicate()[0] or "{}") for each in (*of_one, *of_two)]
        assert [failure for each in reports for failure in each["failures"]] == []
        assert [one.stop(), two.stop()] == [0, 0]
        assert one.warnings() == two.warnings() == []
        counts = [counts_of(mount) for mount in (one, two)]
    on_disk = sum(path.stat().st_size for path in block_files(cache))
    print(json.dumps({"counts": counts, "MiB on disk": on_disk / MIB, "bytes": sum(each["bytes"] for each in reports)}))
    assert all(each["corrupt"] == 0 and each["hits"] > 100 and each["evicted"] > 100 for each in counts)
    assert wrong_files(cache) == []
    assert sum(each["evicted"] - each["written"] for each in counts) <= -len(block_files(cache))
    assert on_disk >= _LIMIT - 2 * _IN_EXCHANGE


async def test_a_hundred_kills(work: Path) -> None:
    """Processes killed 100 times while they write and 100 times while they evict leave right blocks only, and every
    block that was complete is served.
    """
    await kill_while_writing(work / "written", _KILLS)
    shutil.rmtree(work / "written")
    await kill_while_evicting(work / "evicted", _KILLS)


def test_processes_that_share_for_minutes(work: Path) -> None:
    """Four processes that read, write and evict in one directory for minutes get no wrong byte; below the limit they
    lose no block.
    """
    counts = shared(work / "evicting", "mixed", 40 * SOURCE.size, 20_000)
    print(json.dumps(counts))
    counts = shared(work / "keeping", "keep", 10 * N_OBJECTS * SOURCE.size, 20_000)
    assert all(count["evicted"] == count["dropped"] == count["refused"] == 0 for count in counts)
