"""The cache's directory: names that come from hashes, and links that are not followed."""

import re
from pathlib import Path

import pytest

from s3mount.core.attrs import ObjectId
from s3mount.core.ranges import ByteRange
from s3mount.errors import BadOption
from tests.cache.disk_harness import Source, block_files, content_of, fill, running, whole
from tests.support.hostile import HOSTILE_KEYS

SMALL = Source(100_000)


def below(directory: Path, pattern: str) -> list[str]:
    """Files there, and what is directly in it."""
    found = [path for path in directory.glob(pattern) if path.is_file() or "/" not in pattern]
    return [path.relative_to(directory).as_posix() for path in found]


@pytest.mark.parametrize("key", HOSTILE_KEYS)
async def test_no_name_comes_from_a_key(work: Path, key: str) -> None:
    """Whatever the key and the ETag, content is in files named by digits below the directory, and comes back."""
    data = SMALL.bytes(0)
    async with running(work / "c") as cache:
        content = cache.content(ObjectId(key, key), SMALL.size)
        assert content is not None
        cache.put(content, 0, data)
        await cache.drained()
        found = await cache.get(content, ByteRange(0, 10))
        assert found is not None
        assert bytes(found) == data[:10]
    assert below(work, "*") == ["c"]
    files = below(work / "c", "**/*")
    blocks = [name for name in files if re.fullmatch(r"v[0-9]+/([0-9a-f]{2})/\1[0-9a-f]+", name)]
    assert blocks
    assert {Path(name).name for name in set(files) - set(blocks)} <= {"lock"}


async def test_a_block_is_not_read_through_a_link(work: Path) -> None:
    """A link in the place of a block, to a block that would be right, is a miss, and what it leads to stays."""
    async with running(work / "c") as cache:
        await fill(cache, SMALL, range(1))
        [block] = block_files(work / "c")
        target = work / "target"
        block.rename(target)
        block.symlink_to(target)
        before = target.read_bytes()
        assert await cache.get(content_of(cache, SMALL, 0), whole(content_of(cache, SMALL, 0))) is None
    assert target.read_bytes() == before


async def test_a_folder_that_leads_away(work: Path) -> None:
    """A link in the place of one of the cache's folders is refused at the start, and nothing is written beyond it."""
    async with running(work / "c"):
        pass
    away = work / "away"
    away.mkdir()
    folder = next(path for path in sorted((work / "c").glob("v*/3f")))
    folder.rmdir()
    folder.symlink_to(away)
    with pytest.raises(BadOption, match="is not a directory"):
        async with running(work / "c"):
            pass
    assert list(away.iterdir()) == []
