"""Renames and appends where the bucket can do them itself (S3 Express One Zone), over a bucket in memory."""

from pathlib import Path

import pytest
import trio

from s3mount.core.attrs import ObjectStat
from s3mount.core.backoff import Patience
from s3mount.errors import AlreadyExists, NotSupported, ObjectChanged, StoreFailure
from s3mount.fs.namespace import NamespaceConfig
from s3mount.store.retries import Retries
from s3mount.units import MIB
from tests.fs.names_harness import GOOD, namespace
from tests.fs.test_names import bucket, cost
from tests.fs.test_spool import add, kill, left_in, restarted
from tests.fs.write_harness import ramp, writing
from tests.support.fake_writer import FakeWriter, Loss


def moving(writer: FakeWriter) -> NamespaceConfig:
    return NamespaceConfig(conditions=GOOD, mover=writer)


# -- renames ----------------------------------------------------------------------------------


async def test_a_file_is_renamed_by_one_request(tmp_path: Path) -> None:
    """One request, whatever has the new name; the inode keeps its number, and who reads it reads on."""
    store, writer = bucket("a", "b", "d/")
    async with namespace(store, tmp_path, writer=writer, config=moving(writer)) as here:
        await here.known("b", "d", "d/c")
        attrs = await here.mounted.walk("a")
        handle = await here.mounted.fs.open(attrs.ino)
        cost(store, writer)
        await here.rename("a", "b")
        await here.rename("b", "d/c")
        assert cost(store, writer) == {"renames": 2}
        assert bytes(await here.mounted.read(handle, 0, 9)) == b"a"
        here.mounted.fs.release(handle)
        assert (await here.mounted.walk("d/c")).ino == attrs.ino
        await here.write("e", b"e")
        with pytest.raises(AlreadyExists):
            await here.rename("e", "d/c", may_replace=False)
        await here.known("f")
        store.put("f", b"theirs")
        with pytest.raises(AlreadyExists):
            await here.rename("e", "f", may_replace=False)
        assert await here.tree() == {"d": None, "d/c": b"a", "e": b"e", "f": b"theirs"}


async def test_what_is_written_or_a_link_is_renamed(tmp_path: Path) -> None:
    """A file that is being written is made durable, then moved, and written on; a link takes the place of a file."""
    store, writer = bucket("b")
    async with namespace(store, tmp_path, writer=writer, config=moving(writer)) as here:
        handle = await here.create("a", b"12")
        await here.rename("a", "c")
        await here.files.write(handle, 2, b"3")
        await here.close(handle)
        await here.symlink("l", "c")
        await here.rename("l", "b")
        assert await here.readlink("b") == "c"
        assert (await here.read("c"), writer.counts["copies"]) == (b"123", 0)
        assert await here.listed() == ["b", "c"]


async def test_a_directory_is_renamed_without_a_copy(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """A directory of 1,000 files is renamed there by 1,000 requests in a second at 20 ms each; its marker is new."""
    store, writer = bucket("d/", *(f"d/{n:04}" for n in range(1000)))
    async with namespace(store, tmp_path, writer=writer, config=moving(writer)) as here:
        inos = [(await here.mounted.walk(path)).ino for path in ("d", "d/0000")]
        await here.known("n")
        cost(store, writer)
        store.latency_s = writer.latency_s = 0.02
        began = trio.current_time()
        await here.rename("d", "n")
        assert trio.current_time() - began < 1.0
        assert cost(store, writer) == {"lists": 2, "renames": 1000, "puts": 1, "deletes": 1}
        assert set(store.objects) == {"n/", *(f"n/{n:04}" for n in range(1000))}
        assert [(await here.mounted.walk(path)).ino for path in ("n", "n/0000")] == inos
        assert await here.listed() == ["n"]


async def test_half_a_rename_goes_on(tmp_path: Path) -> None:
    """A rename there that failed halfway has lost nothing: each file has one of both names; asked again it goes on."""
    store, writer = bucket(*(f"d/{n:02}" for n in range(50)))
    is_failing = [True]

    class Failing(FakeWriter):
        async def move(self, source: ObjectStat, key: str, *, is_new: bool = False) -> ObjectStat:
            if is_failing[0] and key == "n/40":
                raise StoreFailure("503")
            return await super().move(source, key, is_new=is_new)

    async with namespace(store, tmp_path, writer=writer, config=moving(Failing(store))) as here:
        inos = [(await here.mounted.walk(f"d/{n:02}")).ino for n in range(50)]
        reader = await here.mounted.fs.open(inos[0])
        with pytest.raises(StoreFailure):
            await here.rename("d", "n")
        assert bytes(await here.mounted.read(reader, 0, 9)) == b"d/00"
        here.mounted.fs.release(reader)
        found = await here.tree()
        moved = [key for key in store.objects if key.startswith("n/")]
        assert 0 < len(moved) < 50
        assert found.keys() == {"d", "n", *store.objects}
        is_failing[0] = False
        await here.rename("d", "n")
        assert await here.tree() == {"n": None, **{f"n/{n:02}": f"d/{n:02}".encode() for n in range(50)}}


async def test_a_bucket_that_renames_nothing(tmp_path: Path) -> None:
    """Where S3 knows no RenameObject, as in Local Zones, that is asked once, and files are copied."""
    store, writer = bucket("a", "d/b", "d/c")

    class Local(FakeWriter):
        async def move(self, source: ObjectStat, key: str, *, is_new: bool = False) -> ObjectStat:
            self.counts["refused"] += 1
            raise NotSupported("501")

    local = Local(store)
    async with namespace(store, tmp_path, writer=writer, config=moving(local)) as here:
        await here.rename("a", "e")
        await here.rename("d", "f")
        assert await here.tree() == {"e": b"a", "f": None, "f/b": b"d/b", "f/c": b"d/c"}
        assert (local.counts["refused"], writer.counts["copies"]) == (1, 3)


# -- appends ----------------------------------------------------------------------------------


async def test_only_what_is_new_is_sent(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """Appends that are closed one after the other are one request, of their bytes, whatever the object's size."""
    async with writing(tmp_path, appends=True) as each:
        each.made.store.put("a", ramp(0, 12 * MIB))
        for _ in range(20):
            await add(each, b"line\n")
        await trio.sleep(1)
        assert each.made.content() == ramp(0, 12 * MIB) + b"line\n" * 20
        assert each.made.writer.counts == {"appends": 1}
        assert each.base_reads == []


async def test_a_stream_that_is_saved_goes_on_by_appends(tmp_path: Path) -> None:
    """The first fsync makes the object, in parts if it is large; every later one appends; a patch rewrites."""
    async with writing(tmp_path, appends=True) as each:
        draft = await each.open(is_truncating=True)
        await draft.write(0, ramp(0, 11 * MIB))
        await draft.fsync()
        assert each.made.writer.counts["parts"] == 3
        for start in (11 * MIB, 11 * MIB + 100):
            await draft.write(start, ramp(start, 100))
            await draft.fsync()
        assert each.made.content() == ramp(0, 11 * MIB + 200)
        assert (each.made.writer.counts["appends"], each.made.writer.counts["parts"]) == (2, 3)
        await draft.write(5, b"patch")
        assert await draft.read(0, 12) == ramp(0, 5) + b"patch" + ramp(10, 2)
        await each.drafts.release(draft)
        assert each.made.content() == ramp(0, 5) + b"patch" + ramp(10, 11 * MIB + 190)
        assert each.made.writer.counts["appends"] == 2


async def test_an_object_that_was_appended_to_too_often(tmp_path: Path) -> None:
    """An object that S3 appends nothing more to, after 10,000 parts, is written anew, and appended to again."""
    async with writing(tmp_path, appends=True) as each:
        each.made.writer.max_parts = 3
        each.made.store.put("a", b"0")
        draft = await each.open(is_append=True)
        for number in range(1, 9):
            await draft.append(b"%d" % number)
            await draft.fsync()
        await each.drafts.release(draft)
        assert each.made.content() == b"012345678"
        assert (each.made.writer.counts["appends"], each.made.writer.counts["puts"]) == (8, 2)


async def test_an_append_whose_answer_was_lost(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """An append whose answer was lost is not done twice, and does not fail: the object's end shows that it was done."""
    seen: list[int] = []

    def fault(name: str, _key: str, number: int) -> Loss | None:
        seen.append(number)
        return ("answer", StoreFailure("broken")) if name == "append" and len(seen) == 1 else None

    async with writing(tmp_path, appends=True, fault=fault, retries=Retries(Patience())) as each:
        each.made.store.put("a", b"head")
        draft = await each.open(is_append=True)
        await draft.append(b" tail")
        await draft.fsync()
        await draft.append(b" more")
        await draft.fsync()
        await each.drafts.release(draft)
        assert each.made.content() == b"head tail more"


async def test_more_is_appended_while_an_answer_is_missing(tmp_path: Path) -> None:
    """What an append that looked failed had added is not added again, with what was written since."""
    lost: list[Loss] = [("answer", StoreFailure("broken"))]

    def fault(name: str, _key: str, _number: int) -> Loss | None:
        return lost.pop() if name == "append" and lost else None

    async with writing(tmp_path, appends=True, fault=fault) as each:
        each.made.store.put("a", b"head")
        draft = await each.open(is_append=True)
        await draft.append(b" tail")
        with pytest.raises(StoreFailure):
            await draft.fsync()
        await draft.append(b" more")
        await draft.fsync()
        await each.drafts.release(draft)
        assert each.made.content() == b"head tail more"


@pytest.mark.parametrize("theirs", [b" tail", b" mine", b" longer"])
async def test_another_host_appended(tmp_path: Path, autojump_clock: trio.testing.MockClock, theirs: bytes) -> None:
    """An append after another host's is refused, even of the same bytes; what was acknowledged stays in the spool."""
    async with writing(tmp_path, appends=True) as each:
        each.made.store.put("a", b"head")
        draft = await each.open(is_append=True)
        await draft.append(b" tail")
        each.made.store.put("a", b"head" + theirs)
        for _ in range(2):
            with pytest.raises(ObjectChanged):
                await draft.fsync()
        assert each.made.content() == b"head" + theirs
        await each.drafts.release(draft)
        await trio.sleep(1)
        assert each.drafts.statistics().refused == 1
        assert left_in(tmp_path) == [".data", ".json"]


async def test_a_daemon_that_died_had_appended(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """A journal of what S3 has already is known by the end of the object, and nothing is added again."""
    async with writing(tmp_path, appends=True) as each:
        each.made.store.put("a", b"head")
        await add(each, b" tail")
        draft = each.drafts.find("a")
        assert draft is not None
        assert await draft._content.publish_appended() is not None
        await kill(each)
        async with trio.open_nursery() as nursery:
            after = restarted(each, nursery)
            assert await after.drafts.recover() == 1
            await trio.sleep(0.1)
            assert after.drafts.statistics().refused == 0
            assert left_in(tmp_path) == []
        assert each.made.content() == b"head tail"
