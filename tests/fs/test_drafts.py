"""Files being written, over a bucket in memory: what is durable when, and what errors say."""

from pathlib import Path

import pytest
import trio
import trio.testing

from s3mount.core.attrs import ObjectStat
from s3mount.errors import (
    AccessDenied,
    AlreadyExists,
    NotKept,
    ObjectChanged,
    SpoolFull,
    StoreError,
    StoreFailure,
)
from s3mount.fs.draft import Draft
from s3mount.units import KIB, MIB
from tests.fs.write_harness import PART, Writing, failing, ramp, writing


async def fill(draft: Draft, length: int, step: int = 1 * MIB) -> None:
    for start in range(0, length, step):
        data = ramp(start, min(step, length - start))
        if not draft.append_nowait(start, data):
            await draft.write(start, data)


def left_in(directory: Path) -> list[Path]:
    return list(directory.iterdir())


async def fill_slowly(draft: Draft) -> None:
    for _ in range(4):
        await draft.append(bytes(PART))
        await trio.testing.wait_all_tasks_blocked()


async def close(each: Writing, draft: Draft) -> None:
    await each.drafts.flush(draft)
    await each.drafts.release(draft)


async def test_a_new_file(tmp_path: Path) -> None:
    """A file written in order is in S3 whole when it is closed, without a byte on disk, and not before."""
    async with writing(tmp_path / "spool", keeps_streamed=False) as each:
        draft = await each.open()
        await fill(draft, 2 * PART + 7)
        assert each.found() is None
        await each.drafts.flush(draft)
        assert each.made.content() == ramp(0, 2 * PART + 7)
        await each.drafts.release(draft)
        assert each.drafts.find("a") is None
        assert not (tmp_path / "spool").exists()


async def test_an_empty_file(tmp_path: Path) -> None:
    """A file that is created and closed is an empty object, by one PUT."""
    async with writing(tmp_path) as each:
        await close(each, await each.open())
        assert each.made.content() == b""
        assert each.made.writer.counts == {"puts": 1}


async def test_opened_and_not_written(tmp_path: Path) -> None:
    """A file that is opened to be changed, and is not, costs no request; O_TRUNC alone empties it."""
    async with writing(tmp_path) as each:
        each.made.store.put("a", b"old")
        for flags in ({"is_random": True}, {"is_append": True}, {}):
            await close(each, await each.open(**flags))
        assert each.made.writer.counts == {}
        assert each.made.content() == b"old"
        await close(each, await each.open(is_truncating=True))
        assert each.made.content() == b""


async def test_zip_members_are_patched(tmp_path: Path) -> None:
    """A writer that seeks back (np.savez, O_RDWR) gets what it wrote, by one upload at its close."""
    async with writing(tmp_path) as each:
        draft = await each.open(is_random=True)
        await draft.write(0, b"header??data")
        await draft.write(6, b"12")
        assert await draft.read(0, 100) == b"header12data"
        await draft.write(20, b"!")
        assert await draft.read(12, 100) == bytes(8) + b"!"
        await close(each, draft)
        assert each.made.content() == b"header12data" + bytes(8) + b"!"
        assert each.made.writer.counts == {"puts": 1}


async def test_a_stream_that_seeks_far_back(tmp_path: Path) -> None:
    """A patch beyond what is in memory, a read and a truncation work on what the spool kept of a stream."""
    wanted = bytearray(ramp(0, 5 * PART))
    async with writing(tmp_path, budget_bytes=8 * PART) as each:
        draft = await each.open()
        await fill(draft, 5 * PART)
        await trio.testing.wait_all_tasks_blocked()
        assert await draft.read(PART + 5, 2 * PART) == wanted[PART + 5 : 3 * PART + 5]
        assert draft.is_stream
        await draft.write(2 * PART - 3, b"patched")
        assert not draft.is_stream
        await draft.truncate(4 * PART + 1)
        await close(each, draft)
        wanted[2 * PART - 3 : 2 * PART + 4] = b"patched"
        assert each.made.content() == wanted[: 4 * PART + 1]
        assert each.base_reads == []


async def test_a_stream_that_keeps_nothing(tmp_path: Path) -> None:
    """Without a spool for streams such a patch is an error, the stream goes on, and its header can be patched."""
    async with writing(tmp_path, keeps_streamed=False) as each:
        draft = await each.open()
        await fill(draft, 5 * PART)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(NotKept):
            await draft.write(2 * PART, b"patched")
        with pytest.raises(NotKept):
            await draft.read(2 * PART, 10)
        await draft.write(0, b"HEAD")
        await close(each, draft)
        assert each.made.content() == b"HEAD" + ramp(4, 5 * PART - 4)


async def test_the_size_first(tmp_path: Path) -> None:
    """ftruncate to the final size, then writes in order: streamed, and nothing on disk."""
    async with writing(tmp_path / "spool", keeps_streamed=False) as each:
        draft = await each.open()
        await draft.truncate(3 * PART)
        assert (draft.size, draft.is_stream) == (3 * PART, True)
        await fill(draft, 2 * PART)
        assert await draft.read(2 * PART - 1, 5) == ramp(2 * PART - 1, 1) + bytes(4)
        await close(each, draft)
        assert each.made.content() == ramp(0, 2 * PART) + bytes(PART)


async def test_a_large_object_is_patched(tmp_path: Path) -> None:
    """Of an object of 40 MiB with four bytes changed S3 copies all but some MiB; nothing is read but the edges."""
    old = ramp(0, 40 * MIB)
    async with writing(tmp_path) as each:
        each.made.store.put("a", old)
        draft = await each.open(is_random=True)
        await draft.write(20 * MIB, b"four")
        assert (
            await draft.read(20 * MIB - 2, 8)
            == old[20 * MIB - 2 : 20 * MIB] + b"four" + old[20 * MIB + 4 : 20 * MIB + 6]
        )
        each.base_reads.clear()
        await close(each, draft)
        assert each.made.content() == old[: 20 * MIB] + b"four" + old[20 * MIB + 4 :]
        assert sum(span.length for span in each.base_reads) <= PART
        assert each.made.writer.counts["parts"] == 1


async def test_every_fsync_changes_what_is_there(tmp_path: Path) -> None:
    """After an fsync the version it wrote is the base of the next: S3 copies from that, and only changes are sent."""
    async with writing(tmp_path) as each:
        each.made.store.put("a", ramp(0, 24 * MIB))
        draft = await each.open(is_random=True)
        for number in range(1, 4):
            await draft.write(number, b"x")
            await draft.fsync()
            assert each.made.content() == ramp(0, 1) + b"x" * number + ramp(number + 1, 24 * MIB - number - 1)
            assert (each.made.writer.counts["copies"], each.made.writer.counts["parts"]) == (number, number)
        await close(each, draft)


@pytest.mark.parametrize("is_kept", [False, True])
async def test_fsync_in_the_middle(tmp_path: Path, is_kept: bool) -> None:  # noqa: FBT001
    """After fsync S3 has what was written; writing goes on in order or back, streamed or spooled, to one object."""
    for first in (10, 2 * PART):
        async with writing(tmp_path, keeps_streamed=is_kept) as each:
            draft = await each.open()
            await fill(draft, first)
            await draft.fsync()
            assert each.made.content() == ramp(0, first)
            await draft.append(b"more")
            await draft.fsync()
            await draft.write(1, b"x")
            await close(each, draft)
            assert each.made.content() == ramp(0, 1) + b"x" + ramp(2, first - 2) + b"more"
            assert each.base_reads == [] or first > PART


async def test_a_patch_of_what_is_on_disk_and_fsync(tmp_path: Path) -> None:
    """Parts that the disk has and that are patched in memory are read as they were patched, also after an fsync."""
    async with writing(tmp_path, budget_bytes=8 * PART) as each:
        draft, other = await each.open(), await each.open("other")
        await fill(draft, 2 * PART)
        await trio.testing.wait_all_tasks_blocked()
        await fill(other, 2 * PART)  # needs memory, so the older parts go to the disk
        await trio.testing.wait_all_tasks_blocked()
        await close(each, other)
        for start in (0, PART):
            await draft.write(start, b"patched")
        assert draft.is_stream
        await draft.fsync()
        wanted = bytearray(ramp(0, 2 * PART))
        wanted[:7] = wanted[PART : PART + 7] = b"patched"
        assert await draft.read(0, 2 * PART) == wanted
        await close(each, draft)
        assert each.made.content() == wanted


async def test_memory_that_does_not_come(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """Nine files of 3 MiB that are kept open, in memory for six of them at most, are all written; some on disk."""
    async with writing(tmp_path, budget_bytes=24 * MIB) as each:
        drafts = [await each.open(f"k{number}") for number in range(9)]
        for draft in drafts:
            await fill(draft, 3 * MIB)
        assert each.made.budget.used <= each.made.room.share + each.made.room.largest_part
        for draft in drafts:
            await close(each, draft)
        assert all(each.made.content(f"k{number}") == ramp(0, 3 * MIB) for number in range(9))


async def test_two_handles(tmp_path: Path) -> None:
    """Two handles write one file: the object has both, and the last close is what makes it whole."""
    async with writing(tmp_path) as each:
        one = await each.open()
        await one.append(b"one")
        two = await each.open(is_append=True)
        reader = await each.drafts.open_to_read("a")
        assert one is two is reader
        assert await two.append(b"two") == 3
        assert await one.read(0, 10) == b"onetwo"
        for _ in range(3):
            await each.drafts.release(one)
        assert each.made.content() == b"onetwo"
        assert each.drafts.find("a") is None


async def test_somebody_else_was_there(tmp_path: Path) -> None:
    """A version that another host wrote is not overwritten: ESTALE, for O_EXCL EEXIST; theirs stays, ours is gone."""
    for before, flags, error in (
        (b"old", {"is_truncating": True}, ObjectChanged),
        (b"old", {"is_random": True}, ObjectChanged),
        (None, {}, ObjectChanged),
        (None, {"is_exclusive": True}, AlreadyExists),
    ):
        async with writing(tmp_path) as each:
            if before:
                each.made.store.put("a", before)
            draft = await each.open(**flags)
            await draft.write(0, b"ours")
            each.made.store.put("a", b"theirs")
            with pytest.raises(error):
                await each.drafts.flush(draft)
            with pytest.raises(StoreError):
                await each.drafts.release(draft)
            assert each.made.content() == b"theirs"
            assert each.drafts.find("a") is None
            assert left_in(tmp_path) == []


async def test_an_exclusive_open(tmp_path: Path) -> None:
    """O_EXCL fails at once where there is an object, or a file that is not in S3 yet."""
    async with writing(tmp_path) as each:
        draft = await each.open("new", is_exclusive=True)
        each.made.store.put("a", b"old")
        for key in ("a", "new"):
            with pytest.raises(AlreadyExists):
                await each.open(key, is_exclusive=True)
        await close(each, draft)


async def test_a_spooled_file_is_kept_for_the_next_try(tmp_path: Path) -> None:
    """An fsync that fails says so and loses nothing: the next one makes it durable."""
    faults = [("request", StoreFailure("503"))]
    async with writing(tmp_path, fault=lambda name, *_: faults.pop() if faults and name == "put" else None) as each:
        draft = await each.open(is_append=True)
        await draft.write(0, b"content")
        with pytest.raises(StoreFailure):
            await draft.fsync()
        assert each.found() is None
        await draft.fsync()
        assert each.made.content() == b"content"
        await close(each, draft)


async def test_a_stream_that_failed_is_over(tmp_path: Path) -> None:
    """After a part could not be sent every call says so, and the last close leaves nothing in S3, memory or spool."""
    async with writing(tmp_path, fault=failing("upload_part", AccessDenied("no"))) as each:
        draft = await each.open()
        with pytest.raises(AccessDenied):
            await fill_slowly(draft)
        with pytest.raises(AccessDenied):
            await each.drafts.flush(draft)
        with pytest.raises(AccessDenied):
            await each.drafts.release(draft)
        assert each.made.store.objects == {}
        assert left_in(tmp_path) == []


async def test_a_full_disk(tmp_path: Path) -> None:
    """A spool without room is ENOSPC to who writes; what was written before is kept; a stream goes on without it."""
    async with writing(tmp_path) as each:
        spooled, stream = await each.open("spooled", is_append=True), await each.open("stream")
        await spooled.write(0, b"before")
        each.spool._min_free_share = 1.0
        with pytest.raises(SpoolFull):
            await spooled.write(6, b"after")
        await fill(stream, 4 * PART)
        each.spool._min_free_share = 0.0
        await close(each, spooled)
        await close(each, stream)
        assert each.made.content("spooled") == b"before"
        assert each.made.content("stream") == ramp(0, 4 * PART)


async def test_an_unlinked_file_stays_readable(tmp_path: Path) -> None:
    """A file that is removed while it is open is read and written by its handles, and never gets to S3."""
    async with writing(tmp_path) as each:
        draft = await each.open(is_random=True)
        await draft.write(0, b"scratch")
        await each.drafts.unlink("a")
        new = await each.open()
        await draft.append(b" more")
        await draft.fsync()
        assert each.found() is None
        assert await draft.read(0, 100) == b"scratch more"
        await close(each, draft)
        await new.append(b"new")
        await close(each, new)
        assert each.made.content() == b"new"
        assert each.made.writer.counts == {"puts": 1}


@pytest.mark.parametrize("size", [10, 2 * PART])
@pytest.mark.parametrize("is_random", [False, True])
async def test_rename_of_an_open_file(tmp_path: Path, size: int, is_random: bool) -> None:  # noqa: FBT001
    """A rename makes the content durable first; what is written afterwards goes to the new name."""
    async with writing(tmp_path) as each:

        async def copy(found: ObjectStat) -> ObjectStat:
            written = await each.made.writer.copy(found, "b")
            await each.made.writer.delete("a")
            return found._replace(key="b", etag=written.id.etag)

        draft = await each.open(is_random=is_random)
        await fill(draft, size)
        await each.drafts.rename("a", copy)
        assert each.made.content("b") == ramp(0, size)
        await draft.write(size, b"more")
        await close(each, draft)
        assert {key: content for key, (_, content) in each.made.store.objects.items()} == {"b": ramp(0, size) + b"more"}


async def test_a_rename_that_is_refused(tmp_path: Path) -> None:
    """A file that S3 does not take fails its rename, and keeps its name."""

    async def copy(found: ObjectStat) -> ObjectStat:
        raise AssertionError(found)

    async with writing(tmp_path, fault=failing("put", AccessDenied("no"))) as each:
        draft = await each.open()
        await draft.append(b"content")
        with pytest.raises(AccessDenied):
            await each.drafts.rename("a", copy)
        assert each.drafts.find("a") is draft
        with pytest.raises(StoreError):
            await each.drafts.release(draft)


async def test_many_small_writes_of_a_spooled_file(tmp_path: Path) -> None:
    """Page-sized writes in any order (a shared mapping) make the file."""
    async with writing(tmp_path) as each:
        draft = await each.open(is_random=True)
        await draft.truncate(64 * KIB)
        for page in (9, 3, 15, 0, 4):
            await draft.write(page * 4 * KIB, ramp(page * 4 * KIB, 4 * KIB))
        await close(each, draft)
        wanted = bytearray(64 * KIB)
        for page in (9, 3, 15, 0, 4):
            wanted[page * 4 * KIB : (page + 1) * 4 * KIB] = ramp(page * 4 * KIB, 4 * KIB)
        assert each.made.content() == wanted
