"""Records of multipart uploads on a real disk, of daemons that live and that died, over a bucket in memory."""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from s3mount.core.backoff import Patience
from s3mount.errors import AccessDenied, UploadNotFound
from s3mount.fs.left_uploads import LeftUploads
from s3mount.fs.spool import Spool
from s3mount.fs.upload_records import UploadRecords
from s3mount.store.recording_writer import RecordingWriter
from s3mount.store.retries import Retries
from s3mount.store.writing import Upload
from s3mount.units import MIB
from tests.fs.write_harness import Inline, no_fault
from tests.support.fake_store import FakeStore
from tests.support.fake_writer import FakeWriter, FaultyWriter, Loss

NOW = 1_800_000_000.0


class Told:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def progress(self, **facts: Any) -> None:
        raise AssertionError(facts)

    async def tell(self, event: str, **facts: Any) -> None:
        self.events.append((event, facts))


class Daemon:
    """What of a daemon makes uploads."""

    def __init__(
        self, directory: Path, bucket: FakeWriter, fault: Callable[[str, str, int], Loss | None] = no_fault
    ) -> None:
        self.now = NOW
        self.records = UploadRecords(Spool(directory, Inline(), min_free_share=0.0), lambda: self.now)
        patience = Retries(Patience(1.0, 0.0, 1), chance=lambda: 0.0)
        self.writer = RecordingWriter(FaultyWriter(bucket, fault), patience, log=self.records)
        self.left = LeftUploads(self.records, self.writer, lambda: self.now)

    def die(self) -> None:
        """As kill -9: the system closes what was open."""
        os.close(self.records._fd)

    async def report(self, *, is_aborting: bool = False) -> tuple[list[str], tuple[int, int, int]]:
        """Keys that were told of, those that failed with a mark; and the counts."""
        told = Told()
        counts = await self.left.report(told, is_aborting=is_aborting)
        words = [
            f"{facts['key']} {facts['age_s']}" if name == "upload" else "!" + facts["path"]
            for name, facts in told.events
        ]
        self.records.check_invariants()
        return words, (counts.uploads, counts.aborted, counts.failed)


def records_in(directory: Path) -> list[int]:
    """Bytes of each file."""
    return [path.stat().st_size for path in directory.iterdir()]


async def test_uploads_of_a_dead_daemon(tmp_path: Path) -> None:
    """What a dead daemon had under way is listed by another, oldest first, with its age, and aborted on demand."""
    bucket = FakeWriter(FakeStore())
    one, two = Daemon(tmp_path, bucket), Daemon(tmp_path, bucket)
    for number, key in enumerate(("a", "b/\x01ü", "c", "d")):
        one.now = NOW + number
        upload = await one.writer.create_upload(key)
        if key == "c":
            part = await one.writer.upload_part(upload, 1, [b"x"])
            await one.writer.complete(upload, [part])
        if key == "d":
            await one.writer.abort(upload)
    two.now = NOW + 100
    assert await two.report() == ([], (0, 0, 0))  # it lives
    one.die()
    other = await two.writer.create_upload("of the living")
    assert await two.report() == (["a 100", "b/\x01ü 99"], (2, 0, 0))
    assert len(bucket.uploads) == 3
    assert await two.report(is_aborting=True) == (["a 100", "b/\x01ü 99"], (2, 2, 0))
    assert list(bucket.uploads) == [other.upload_id]
    assert await two.report(is_aborting=True) == ([], (0, 0, 0))
    assert len(records_in(tmp_path)) == 1
    await two.writer.abort(other)
    await two.records.close()
    assert records_in(tmp_path) == []


async def test_other_uploads_are_not_touched(tmp_path: Path) -> None:
    """An upload that is not recorded here, of another host, is neither listed nor aborted, whatever its key."""
    bucket = FakeWriter(FakeStore())
    one, two = Daemon(tmp_path, bucket), Daemon(tmp_path, bucket)
    await one.writer.create_upload("a")
    theirs = await bucket.create_upload("a")
    one.die()
    assert (await two.report(is_aborting=True))[1] == (1, 1, 0)
    assert list(bucket.uploads) == [theirs.upload_id]
    assert bucket.counts["calls"] == 3  # two creations and one abort: S3's listing is not asked


async def test_an_abort_that_fails(tmp_path: Path) -> None:
    """What S3 does not let go of is told, and stays recorded: with a dead daemon's, and with this one's own."""
    bucket = FakeWriter(FakeStore())
    refused: Loss = ("request", AccessDenied("no"))
    dead = Daemon(tmp_path, bucket)
    await dead.writer.create_upload("theirs")
    dead.die()
    is_refusing = True
    one = Daemon(tmp_path, bucket, lambda name, _key, _number: refused if name == "abort" and is_refusing else None)
    own = await one.writer.create_upload("own")
    with pytest.raises(AccessDenied):
        await one.writer.abort(own)
    for _ in range(2):
        assert await one.report(is_aborting=True) == (["!theirs", "!own"], (2, 0, 2))
    assert one.records.statistics().given_up == 1
    is_refusing = False
    assert await one.report(is_aborting=True) == (["theirs 0", "own 0"], (2, 2, 0))
    assert bucket.uploads == {}
    assert one.records.statistics().under_way == 0


async def test_an_upload_that_is_gone(tmp_path: Path) -> None:
    """An upload that was completed in the moment of death, or that somebody aborted, is forgotten without an error."""
    bucket = FakeWriter(FakeStore())
    dead, one = Daemon(tmp_path, bucket), Daemon(tmp_path, bucket)
    await bucket.abort(await dead.writer.create_upload("a"))
    dead.die()
    assert (await one.report(is_aborting=True))[1] == (1, 1, 0)
    upload = await one.writer.create_upload("b")
    await bucket.abort(upload)
    with pytest.raises(UploadNotFound):
        await one.writer.complete(upload, [])
    assert one.records.statistics().under_way == 0


async def test_a_cancelled_writer(tmp_path: Path) -> None:
    """Cancelled while it is recorded, an upload is recorded all the same, before its caller hears of it."""
    bucket = FakeWriter(FakeStore())
    one, two = Daemon(tmp_path, bucket), Daemon(tmp_path, bucket)
    with trio.CancelScope() as scope:
        upload = await bucket.create_upload("a")
        scope.cancel()
        await one.records.began(upload)
    one.die()
    assert (await two.report())[0] == ["a 0"]


async def test_a_disk_that_fails(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Where nothing can be recorded uploads go on with one warning; when the disk is back all of them are recorded."""
    bucket = FakeWriter(FakeStore())
    directory = tmp_path / "spool"
    directory.write_bytes(b"in the way")
    one = Daemon(directory, bucket)
    with caplog.at_level(logging.WARNING):
        await one.writer.abort(await one.writer.create_upload("a"))
        await one.writer.create_upload("b")
    assert len(caplog.records) == 1
    assert "is not recorded" in caplog.text
    directory.unlink()
    await one.writer.create_upload("c")
    one.die()
    assert (await Daemon(directory, bucket).report())[0] == ["b 0", "c 0"]


async def test_a_long_record_is_made_anew(tmp_path: Path) -> None:
    """The record of a daemon that uploads for ever stays short, and knows what is under way."""
    bucket = FakeWriter(FakeStore())
    one = Daemon(tmp_path, bucket)
    await one.writer.create_upload("first")
    for number in range(400):
        upload = Upload("k" * 3000, f"id-{number}")
        await one.records.began(upload)
        await one.records.ended(upload)
    (size,) = records_in(tmp_path)
    assert size <= MIB + 4000
    one.die()
    assert (await Daemon(tmp_path, bucket).report())[0] == ["first 0"]


async def test_at_the_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A start says how many uploads are left and touches none; with the switch it aborts them and says so."""
    bucket = FakeWriter(FakeStore())
    dead, one = Daemon(tmp_path, bucket), Daemon(tmp_path, bucket)
    for key in ("a", "b"):
        await dead.writer.create_upload(key)
    dead.die()
    with caplog.at_level(logging.INFO, "s3mount.fs.left_uploads"):
        await one.left.at_start(is_aborting=False)
        assert len(bucket.uploads) == 2
        await one.left.at_start(is_aborting=True)
        assert bucket.uploads == {}
        await one.left.at_start(is_aborting=True)
    assert [record.getMessage().partition(" uploads")[0] for record in caplog.records] == ["2", "aborted 2"]
