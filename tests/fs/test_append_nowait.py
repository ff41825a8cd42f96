"""Writes in order that need not wait, as the kernel's WRITE comes first: all of them or nothing."""

from pathlib import Path

import pytest
import trio
import trio.testing

from s3mount.errors import StoreFailure
from s3mount.fs.streaming import StreamingWriter
from tests.fs.writable import APPEND, writable
from tests.fs.write_harness import PART, failing, ramp, streams, writing


async def test_an_append_that_would_wait_does_nothing() -> None:
    """Without memory, before the first part, or of more than a part: False, and nothing is held or written; a
    failure is raised as ever."""
    async with streams(budget_bytes=8 * PART, fault=failing("upload_part")) as made:
        stream, other = StreamingWriter(made.tools, "a"), StreamingWriter(made.tools, "b")
        assert not stream.append_nowait(b"x")
        await stream.append(b"x")
        assert not stream.append_nowait(bytes(PART + 1))
        assert stream.append_nowait(bytes(PART - 2))
        await other.append(bytes(made.room.share - made.room.statistics().used))
        before = made.budget.used
        assert not stream.append_nowait(b"xx")
        stream.check_invariants()
        assert (stream.size, made.budget.used) == (PART - 1, before)
        await other.abort()
        assert stream.append_nowait(b"xx")
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(StoreFailure):
            stream.append_nowait(b"x")
        await stream.abort()


async def test_what_is_not_in_order_waits(tmp_path: Path) -> None:
    """Not at the end, after an fsync, of a file that is spooled or that another call changes: False, and it is as it
    was; what was taken is in the object."""
    async with writing(tmp_path) as each:
        draft = await each.open()
        await draft.write(0, ramp(0, 100))
        for offset in (0, 99, 101):
            assert not draft.append_nowait(offset, b"x")
        assert draft.append_nowait(100, ramp(100, 50))
        async with draft._lock:
            assert not draft.append_nowait(150, b"x")
        assert draft.size == 150
        await draft.fsync()
        assert each.made.content() == ramp(0, 150)
        assert not draft.append_nowait(150, b"x")
        await draft.write(150, ramp(150, 50))
        assert draft.is_unsaved
        await each.drafts.flush(draft)
        assert each.made.content() == ramp(0, 200)
        await each.drafts.release(draft)
        spooled = await each.open("b", is_random=True)
        assert not spooled.append_nowait(0, b"x")
        await each.drafts.release(spooled)


async def test_a_write_that_did_not_wait_is_shown(tmp_path: Path) -> None:
    """The file has its size at once, its bytes when it is closed; a handle with O_APPEND finds the end by itself."""
    async with writable(tmp_path) as each:
        ino, handle = await each.create("a")
        await each.files.write(handle, 0, b"12")
        assert each.files.append_nowait(handle, 2, b"34")
        assert (await each.fs.getattr(ino)).size == 4
        other = await each.open("a", APPEND)
        assert not each.files.append_nowait(other, 4, b"5")
        assert not each.files.append_nowait(12345, 4, b"5")
        await each.close(other)
        await each.close(handle)
        assert each.content("a") == b"1234"
