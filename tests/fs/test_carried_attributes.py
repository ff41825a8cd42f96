"""Metadata and headers that another client gave an object, when a program changes the file."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from s3mount.core.uploads import PARALLEL_COPY
from s3mount.store.writing import STORAGE_CLASS, Attributes
from tests.fs.names_harness import namespace
from tests.fs.writable import APPEND, RDWR, W, Writable, writable
from tests.fs.write_harness import PART, Writing, ramp, writing
from tests.support.fake_store import FakeStore
from tests.support.fake_writer import FakeWriter

THEIRS = Attributes(
    {"content-type": "text/csv", "cache-control": "no-store", "expires": "0", STORAGE_CLASS: "STANDARD_IA"},
    {"owner": "ann", "mode": "33188"},
)
#: What is about the content, too.
MORE = Attributes(THEIRS.headers, {**THEIRS.metadata, "mtime": "1.5", "md5chksum": "x==", "s3mount-spool": "0"})


async def append(each: Writable) -> None:
    handle = await each.open("a", APPEND)
    await each.files.write(handle, 0, b" tail")
    await each.files.fsync(handle)
    await each.close(handle)


async def patch(each: Writable) -> None:
    handle = await each.open("a", RDWR)
    await each.files.write(handle, 1, b"E")
    await each.files.fsync(handle)
    await each.files.write(handle, 2, b"A")  # it is asked for once
    await each.close(handle)


async def cut_off(each: Writable) -> None:
    await each.files.truncate((await each.mounted.walk("a")).ino, 2)


@pytest.mark.parametrize(
    ("change", "content", "n_puts"), [(append, b"head tail", 1), (patch, b"hEAd", 2), (cut_off, b"he", 1)]
)
async def test_a_change_keeps_metadata(
    tmp_path: Path, change: Callable[[Writable], Awaitable[None]], content: bytes, n_puts: int
) -> None:
    """Who appends to an object, patches it or cuts it off keeps its metadata and headers, at one HEAD for a file."""
    async with writable(tmp_path) as each:
        await each.writer.put("a", [b"head"], attributes=MORE)
        each.writer.counts.clear()
        await change(each)
        assert each.content("a") == content
        assert each.writer.counts == {"puts": n_puts, "calls": 1}
        assert (await each.writer.describe("a")).attributes == THEIRS


async def test_new_content_has_none_of_the_old(tmp_path: Path) -> None:
    """A file that is cut off to nothing as it is opened is a new object: no metadata of the old, and no HEAD."""
    async with writable(tmp_path) as each:
        await each.writer.put("a", [b"head"], attributes=THEIRS)
        handle = await each.open("a", W)
        await each.files.write(handle, 0, b"new")
        await each.close(handle)
        assert each.writer.counts == {"puts": 2}
        assert (await each.writer.describe("a")).attributes == Attributes()


async def test_a_change_in_parts_keeps_metadata(tmp_path: Path) -> None:
    """A large object that is patched has its metadata after it, though it is made of parts."""
    async with writing(tmp_path) as each:
        await each.made.writer.put("a", [ramp(0, 3 * PART)], attributes=MORE)
        draft = await each.open("a", is_random=True)
        await draft.write(PART + 1, b"x")
        await each.drafts.flush(draft)
        await each.drafts.release(draft)
        assert each.made.content()[PART + 1 : PART + 2] == b"x"
        assert (await each.made.writer.describe("a")).attributes == THEIRS


async def test_metadata_after_a_kill(tmp_path: Path) -> None:
    """What a dead daemon had acknowledged of an append is uploaded with the metadata of the object."""
    async with writing(tmp_path) as each:
        await each.made.writer.put("a", [b"head"], attributes=THEIRS)
        draft = await each.open("a", is_append=True)
        await draft.append(b" tail")
        await draft.flush()
        draft._content.spooled.abandon()
        each.drafts._drafts.clear()
        async with trio.open_nursery() as nursery:
            after = Writing(each.made, nursery, each.spool.directory)
            assert await after.drafts.recover() == 1
        assert each.made.content() == b"head tail"
        kept = (await each.made.writer.describe("a")).attributes
        assert kept.headers == THEIRS.headers
        assert {**kept.metadata, "s3mount-spool": "0"} == {**THEIRS.metadata, "s3mount-spool": "0"}


async def test_a_changed_file_that_is_renamed(tmp_path: Path) -> None:
    """A file that was changed and then renamed, in one mount, has what its object had at first, its class too."""
    store = FakeStore()
    writer = FakeWriter(store)
    await writer.put("a", [b"head"], attributes=THEIRS)
    async with namespace(store, tmp_path, writer=writer) as each:
        await each.files.truncate((await each.mounted.walk("a")).ino, 2)
        await each.rename("a", "b")
        assert store.objects["b"][1] == b"he"
        assert (await writer.describe("b")).attributes == THEIRS


async def test_renames_and_links_keep_metadata(tmp_path: Path) -> None:
    """A rename and a link have the metadata of what they were made of, also where S3 copies in parts."""
    store = FakeStore()
    writer = FakeWriter(store)
    await writer.put("a", [b"small"], attributes=MORE)
    await writer.put("large", [bytes(PARALLEL_COPY + 1)], attributes=MORE)
    async with namespace(store, tmp_path, writer=writer) as each:
        for name in "a", "large":
            await each.link(name, f"{name}-link")
            await each.rename(name, f"{name}-moved")
            await each.rename(f"{name}-moved", f"{name}-again")
            for made in f"{name}-link", f"{name}-again":
                assert (await writer.describe(made)).attributes == MORE
    assert writer.counts["copies"] > 4
