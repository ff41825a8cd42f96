"""The spool's directory: names that come from nobody, and links that are not followed."""

import fcntl
import re
from pathlib import Path

import pytest

from s3mount.core.ranges import ByteRange
from s3mount.core.spool_record import SpoolRecord
from s3mount.errors import SpoolFailed
from s3mount.fs.spool import Spool
from tests.fs.test_spool import Inline
from tests.support.hostile import HOSTILE_KEYS

RECORD = SpoolRecord("a", "m", "", 0, 0, 3, ((0, 3),))


def modes_below(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode for path in directory.iterdir()}


@pytest.mark.parametrize("key", HOSTILE_KEYS)
async def test_no_name_comes_from_a_key(tmp_path: Path, key: str) -> None:
    """Whatever the key, its files have names of random digits in the directory, and the key is inside the journal."""
    directory = tmp_path / "spool"
    spool = Spool(directory, Inline(), 0.0)
    file = await spool.create()
    await file.write(0, [b"one"])
    await file.keep(SpoolRecord(key, "m", "", 0, 0, 3, ((0, 3),)))
    assert modes_below(tmp_path).keys() == {"spool"}
    found = modes_below(directory)
    assert all(re.fullmatch(r"[0-9a-f]{16}\.(data|json)", name) for name in found)
    assert all(mode & 0o077 == 0 for mode in found.values())
    file.abandon()
    [(again, record)] = await Spool(directory, Inline(), 0.0).recover()
    assert record.key == key
    await again.discard()


async def test_a_journal_does_not_follow_a_link(tmp_path: Path) -> None:
    """A link in the place of a journal that is being written is an error, and what it leads to stays as it is."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    spool = Spool(tmp_path / "spool", Inline(), 0.0)
    file = await spool.create()
    (spool.directory / f"{file.name}.new").symlink_to(victim)
    with pytest.raises(SpoolFailed):
        await file.keep(RECORD)
    assert victim.read_bytes() == b"precious"
    await file.discard()
    assert victim.read_bytes() == b"precious"


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
async def test_a_directory_that_others_may_write_to(tmp_path: Path, mode: int) -> None:
    """A spool directory that others may write to is refused, before anything is in it."""
    directory = tmp_path / "spool"
    directory.mkdir()
    directory.chmod(mode)
    with pytest.raises(SpoolFailed, match="nobody else may write"):
        await Spool(directory, Inline(), 0.0).create()
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize("when", ["before", "while"])
async def test_a_file_is_not_taken_before_it_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """A mount that recovers between the moments a file is made and locked does not take it: what is kept is found."""
    other = Spool(tmp_path, Inline(), 0.0)
    flock, opened = fcntl.flock, []

    def late(fd: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        if when == "before":
            assert other._recover() == []
        else:
            (path,) = tmp_path.glob("*.data")
            opened.append(path.open("rb"))
            flock(opened[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
        flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    file = await Spool(tmp_path, Inline(), 0.0).create()
    for each in opened:
        each.close()
    assert await other.recover() == []
    await file.write(0, [b"one"])
    await file.keep(RECORD)
    file.abandon()
    [(again, _)] = await other.recover()
    assert await again.read(ByteRange(0, 3)) == b"one"
    await again.discard()
