"""The spool on disk: what was acknowledged outlives the daemon, and small appends are uploaded together."""

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from s3mount.cache.threads import CallThreads
from s3mount.core.ranges import ByteRange
from s3mount.core.spool_record import SpoolRecord, decode
from s3mount.errors import AccessDenied, SpoolFailed, StoreFailure
from s3mount.fs.spool import Spool
from s3mount.fs.spooled import SpooledContent
from s3mount.units import MIB
from tests.fs.write_harness import Inline, Writing, ramp, writing
from tests.support.fake_writer import Loss


async def add(each: Writing, data: bytes, key: str = "a") -> None:
    """As a program that opens a file for each line."""
    draft = await each.open(key, is_append=True)
    await draft.append(data)
    await each.drafts.flush(draft)
    await each.drafts.release(draft)


def left_in(directory: Path) -> list[str]:
    return sorted(path.suffix for path in directory.iterdir())


@pytest.fixture
def quick_path() -> Iterator[Path]:
    """A directory in memory: a thousand closes wait three thousand times for a disk."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as path:
        yield Path(path)


async def test_a_thousand_appends(quick_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """1,000 appends of 200 bytes with reopen, in ten seconds, cost at most 20 PUTs, and nothing is lost."""
    async with writing(quick_path) as each:
        each.made.store.put("a", b"head")
        for number in range(1000):
            await add(each, ramp(number, 200))
            await trio.sleep(0.01)
        await trio.sleep(1.0)
        assert each.made.content() == b"head" + b"".join(ramp(number, 200) for number in range(1000))
        assert each.made.writer.counts["puts"] <= 20
        assert each.made.writer.counts["puts"] <= 20
        assert each.made.writer.counts == {kind: each.made.writer.counts["puts"] for kind in ("puts", "calls")}
        assert left_in(quick_path) == []


async def test_the_last_append_is_there_in_a_second(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """An append is in S3 one second after its close, and not before 0.7 s."""
    async with writing(tmp_path) as each:
        each.made.writer.latency_s = 0.1
        each.made.store.put("a", b"head")
        await add(each, b" tail")
        await trio.sleep(0.6)
        assert each.made.content() == b"head"
        assert left_in(tmp_path) == [".data", ".json"]
        await trio.sleep(0.4)
        assert each.made.content() == b"head tail"


@pytest.mark.parametrize("how", ["fsync", "open", "read", "truncate"])
async def test_what_brings_the_upload_at_once(tmp_path: Path, autojump_clock: trio.testing.MockClock, how: str) -> None:
    """An fsync, a rename, a reader, a writer that does not append: S3 has what was appended before they go on."""
    async with writing(tmp_path) as each:
        each.made.store.put("a", b"head")
        await add(each, b" tail")
        draft = None
        if how == "fsync":
            draft = await each.open(is_append=True)
            await draft.fsync()
        elif how == "read":
            draft = await each.drafts.open_to_read("a")
        else:
            draft = await each.open(is_random=how == "open", is_truncating=how == "truncate")
        assert each.made.content() == b"head tail"
        if draft is not None:
            await each.drafts.release(draft)
        await trio.sleep(2)


async def test_a_large_object_is_appended_to(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """Of a large object S3 copies what is there; a short one is sent again."""
    async with writing(tmp_path) as each:
        each.made.store.put("a", ramp(0, 12 * MIB))
        await add(each, b"tail")
        await trio.sleep(1)
        assert each.made.content() == ramp(0, 12 * MIB) + b"tail"
        assert (each.made.writer.counts["copies"], each.base_reads) == (1, [])


async def kill(each: Writing) -> None:
    """The daemon is gone, with all it had in memory; the files of the spool are as they are."""
    for draft in each.drafts.below(""):
        draft._content.spooled.abandon()
    each.drafts._drafts.clear()


def restarted(each: Writing, nursery: trio.Nursery) -> Writing:
    appends = each.tools.spool.appender is not None
    return Writing(each.made, nursery, each.spool.directory, appends=appends)


async def test_killed_after_a_close(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """What was appended and closed is uploaded by the next daemon; what was not closed goes."""
    async with writing(tmp_path) as each:
        each.made.store.put("a", b"head")
        await add(each, b" one")
        draft = await each.open(is_append=True)
        await draft.append(b" not closed")
        random = await each.open("b", is_append=True)
        await random.write(0, b"never closed")
        await kill(each)
        async with trio.open_nursery() as nursery:
            after = restarted(each, nursery)
            assert await after.drafts.recover() == 1
            found = after.drafts.find("a")
            assert found is not None
            assert await found.read(0, 100) == b"head one"
            await trio.sleep(0.1)
            assert each.made.content() == b"head one"
            assert left_in(tmp_path) == []
            after.drafts.check_invariants()


async def test_what_another_prefix_left(tmp_path: Path) -> None:
    """What a mount of another prefix left in the spool is not touched, nor kept from its own."""
    left = await Spool(tmp_path, Inline(), 0.0, prefix="logs/").create()
    await left.write(0, [b"one"])
    await left.keep(SpoolRecord("logs/a", "m", "", 0, 0, 3, ((0, 3),)))
    left.abandon()
    assert await Spool(tmp_path, Inline(), 0.0, prefix="data/").recover() == []
    assert left_in(tmp_path) == [".data", ".json"]
    for prefix in "logs/", "":
        [(file, record)] = await Spool(tmp_path, Inline(), 0.0, prefix=prefix).recover()
        assert (record.key, await file.read(ByteRange(0, 3))) == ("logs/a", b"one")
        file.abandon()


async def test_killed_after_the_upload(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """A journal that was not removed, because the daemon died when S3 had the object, is known by its mark."""
    async with writing(tmp_path) as each:
        each.made.store.put("a", b"head")
        await add(each, b" tail")
        draft = each.drafts.find("a")
        assert draft is not None
        attributes = await draft._attributes.publish(each.made.writer, "a", draft._mark)
        await draft._content.publish(draft._condition, attributes)
        await kill(each)
        async with trio.open_nursery() as nursery:
            after = restarted(each, nursery)
            assert await after.drafts.recover() == 1
            await trio.sleep(0.1)
            assert after.drafts.statistics().refused == 0
            assert left_in(tmp_path) == []
        assert each.made.content() == b"head tail"


async def test_an_append_that_cannot_be_uploaded(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """What S3 refuses, because another host changed the object, stays in the spool, and an ERROR names it."""
    async with writing(tmp_path) as each:
        each.made.store.put("a", b"head")
        await add(each, b" tail")
        each.made.store.put("a", b"theirs")
        await trio.sleep(1)
        assert each.made.content() == b"theirs"
        assert each.drafts.find("a") is None
        assert each.drafts.statistics().refused == 1
        assert left_in(tmp_path) == [".data", ".json"]
        [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert "'a'" in record.message
        assert next(tmp_path.glob("*.data")).name in record.message  # noqa: ASYNC240


async def test_an_outage_is_waited_out(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """While S3 is away what was appended waits, is appended to, and is there when S3 is."""
    is_away = True

    def fault(name: str, _key: str, _number: int) -> Loss | None:
        return ("request", StoreFailure("503")) if is_away and name == "put" else None

    async with writing(tmp_path, fault=fault) as each:
        each.made.store.put("a", b"head")
        await add(each, b" one")
        await trio.sleep(20)
        await add(each, b" two")
        is_away = False
        await trio.sleep(31)
        assert each.made.content() == b"head one two"
        assert left_in(tmp_path) == []


async def test_a_reader_of_what_cannot_be_uploaded(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """An open that needs S3 to have an append fails as S3 fails, and leaves no handle."""
    async with writing(
        tmp_path, fault=lambda name, *_: ("request", AccessDenied("no")) if name == "put" else None
    ) as each:
        each.made.store.put("a", b"head")
        await add(each, b" tail")
        with pytest.raises(AccessDenied):
            await each.drafts.open_to_read("a")
        await trio.sleep(1)
        assert each.drafts.find("a") is None
        assert left_in(tmp_path) == [".data", ".json"]


async def test_an_append_then_a_patch(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """What is acknowledged is in S3 before anything but an append happens to the file."""
    async with writing(tmp_path) as each:
        each.made.store.put("a", b"head")
        draft = await each.open(is_append=True)
        await draft.append(b" tail")
        await each.drafts.flush(draft)
        await draft.write(0, b"HEAD")
        assert each.made.content() == b"head tail"
        await each.drafts.release(draft)
        assert each.made.content() == b"HEAD tail"
        await trio.sleep(2)


async def test_a_file_in_use_is_not_recovered(tmp_path: Path) -> None:
    """Two daemons share a directory: neither takes, or removes, what the other uses."""
    one, two = Spool(tmp_path, Inline(), 0.0), Spool(tmp_path, Inline(), 0.0)
    record = SpoolRecord("a", "m", "", 0, 0, 3, ((0, 3),))
    kept, loose = await one.create(), await one.create()
    await kept.write(0, [b"one"])
    await kept.keep(record)
    assert await two.recover() == []
    kept.abandon()
    loose.abandon()
    [(file, found)] = await two.recover()
    assert found == record
    assert await file.read(ByteRange(0, 3)) == b"one"
    assert left_in(tmp_path) == [".data", ".json"]
    await file.discard()
    assert left_in(tmp_path) == []


async def test_a_journal_that_nobody_understands(tmp_path: Path) -> None:
    """A journal of another version is left with its bytes."""
    spool = Spool(tmp_path, Inline(), 0.0)
    file = await spool.create()
    spool.journal_of(file.name).write_text('{"version": 2}')
    file.abandon()
    assert await spool.recover() == []
    assert left_in(tmp_path) == [".data", ".json"]


async def test_a_file_that_was_cut_off(tmp_path: Path) -> None:
    """Bytes of the spool that somebody removed are an error, not zeros."""
    spool = Spool(tmp_path, Inline(), 0.0)
    file = await spool.create()
    await file.write(0, [b"content"])
    await file.truncate(3)
    with pytest.raises(SpoolFailed):
        await file.read(ByteRange(0, 7))
    await file.discard()


async def test_threads(tmp_path: Path) -> None:
    """With real threads, and bodies of more pieces than one system call takes, the bytes are the same."""
    threads = CallThreads(2, "spool")
    spool = Spool(tmp_path, threads, 0.0)
    file = await spool.create()
    body = [ramp(number, 3) for number in range(3000)]
    await file.write(5, body)
    assert await file.read(ByteRange(5, 9005)) == b"".join(body)
    await file.discard()
    threads.close()


spans = st.tuples(st.integers(0, 99), st.integers(0, 99))
records = st.builds(
    SpoolRecord, st.text(), st.text(), st.text(), *[st.integers(0, 99)] * 3, st.lists(spans, max_size=3).map(tuple)
)


@given(records, st.integers(0, 400))
def test_records_come_back(record: SpoolRecord, cut: int) -> None:
    """A record is read as it was written; one that is cut off is none."""
    content = record.encode()
    assert decode(content) == record
    assert cut >= len(content) or decode(content[:cut]) is None


async def test_parts_that_are_kept_beside_each_other(tmp_path: Path) -> None:
    """Parts of a stream that S3 has at the same time are all in the spool, also when they make its file."""
    async with writing(tmp_path) as each:
        content = SpooledContent(each.tools.spool)
        async with trio.open_nursery() as nursery:
            for start in range(8):
                nursery.start_soon(content.write, start * 100, [ramp(start * 100, 100)])
        assert await content.read(ByteRange(0, 800)) == ramp(0, 800)
        await content.discard()
