"""What a stream keeps of the parts that it sent."""

from pathlib import Path

from s3mount.units import MIB
from tests.fs.writable import writable
from tests.fs.write_harness import ramp


async def test_parts_that_are_kept_at_the_same_time(tmp_path: Path) -> None:
    """A stream whose parts are kept in the spool beside each other reads them, and is cut off, as it was written."""
    content = ramp(1, 6 * MIB)
    for number in range(10):
        async with writable(tmp_path) as files:
            ino, handle = await files.create(f"{number}")
            await files.files.write(handle, 0, content)
            await files.files.fsync(handle)
            assert bytes(await files.mounted.read(handle, 0, len(content))) == content
            await files.files.truncate(ino, 70_000)
            await files.close(handle)
            assert files.content(f"{number}") == content[:70_000]
