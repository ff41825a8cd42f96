"""Renames and hard links over a bucket in memory: what they cost, and what is there afterwards."""

import stat
from pathlib import Path

import pytest
import trio

from s3mount.cache.shown import Shown
from s3mount.errors import (
    AccessDenied,
    AlreadyExists,
    DirectoryNotEmpty,
    InvalidName,
    NameNotFound,
    NotAllowed,
    StoreFailure,
)
from s3mount.fs.drafts import Opening
from s3mount.fs.namespace import NamespaceConfig
from s3mount.store.conditions import Conditions
from tests.fs.names_harness import GOOD, MountedNames, namespace
from tests.fs.test_names import bucket, cost
from tests.support.fake_store import FakeStore
from tests.support.fake_writer import FakeWriter, Loss


async def test_a_file_is_renamed(tmp_path: Path) -> None:
    """A rename of a file is one copy by S3 and one DELETE; its inode keeps its number, and who reads it reads on."""
    store, writer = bucket("a", "d/")
    async with namespace(store, tmp_path, writer=writer) as here:
        attrs = await here.mounted.walk("a")
        await here.known("d", "d/b")
        handle = await here.mounted.fs.open(attrs.ino)
        cost(store, writer)
        await here.rename("a", "d/b")
        assert cost(store, writer) == {"copies": 1, "deletes": 1}
        assert sorted(store.objects) == ["d/", "d/b"]
        assert (await here.mounted.walk("d/b")).ino == attrs.ino
        assert bytes(await here.mounted.read(handle, 0, 9)) == b"a"
        here.mounted.fs.release(handle)
        assert await here.tree() == {"d": None, "d/b": b"a"}


async def test_a_file_replaces_another(tmp_path: Path) -> None:
    """A rename over a file replaces it in one step; who has the old file open has its inode, with no name."""
    store, writer = bucket("a", "b")
    async with namespace(store, tmp_path, writer=writer) as here:
        replaced = await here.mounted.walk("b")
        handle = await here.mounted.fs.open(replaced.ino)
        await here.known("a", "b")
        cost(store, writer)
        await here.rename("a", "b")
        assert cost(store, writer) == {"copies": 1, "deletes": 1, "gets": 1}  # for who has it open
        assert await here.tree() == {"b": b"a"}
        assert (await here.mounted.fs.getattr(replaced.ino)).nlink == 0
        here.mounted.fs.release(handle)


async def test_a_rename_that_may_not_replace(tmp_path: Path) -> None:
    """With RENAME_NOREPLACE a name that is taken, by another host too, is EEXIST, and nothing is changed."""
    store, writer = bucket("a", "b")
    async with namespace(store, tmp_path, writer=writer) as here:
        await here.known("a", "b", "c")
        with pytest.raises(AlreadyExists):
            await here.rename("a", "b", may_replace=False)
        store.put("c", b"theirs")
        with pytest.raises(AlreadyExists):
            await here.rename("a", "c", may_replace=False)
        assert {key: content for key, (_, content) in store.objects.items()} == {"a": b"a", "b": b"b", "c": b"theirs"}
        await here.rename("a", "e", may_replace=False)
        assert sorted(store.objects) == ["b", "c", "e"]


async def test_an_unsaved_file_is_renamed(tmp_path: Path) -> None:
    """A rename of a file that is being written makes it durable first, and what comes after goes to the new name."""
    store, writer = bucket("b")
    async with namespace(store, tmp_path, writer=writer) as here:
        handle = await here.create("a", b"12")
        ino = (await here.mounted.walk("a")).ino
        await here.rename("a", "b")
        assert store.objects["b"][1] == b"12"
        assert sorted(store.objects) == ["b"]
        await here.files.write(handle, 2, b"3")
        await here.close(handle)
        assert store.objects["b"][1] == b"123"
        assert (await here.mounted.walk("b")).ino == ino
        assert await here.tree() == {"b": b"123"}


@pytest.mark.parametrize(("path", "new_path"), [("d/a", "b"), ("d", "b")])
async def test_a_last_close_in_the_middle_of_a_rename(tmp_path: Path, path: str, new_path: str) -> None:
    """A file whose last handle is closed while it, or its directory, is renamed is found under the new name at once."""
    store = FakeStore(latency_s=0.01)
    writer = FakeWriter(store, latency_s=0.01)
    store.put("d/", b"")
    async with namespace(store, tmp_path, writer=writer) as here:
        handle = await here.create("d/a", b"12")
        await here.known(path, new_path)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(here.files.release, handle)  # as after the end of a mapping
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(here.rename, path, new_path)
        new_file = new_path + path.replace("d/a", "").replace("d", "/a")
        assert await here.read(new_file) == b"12"
        assert {key for key in store.objects if key.endswith("a") or key == "b"} == {new_file}


async def test_a_renamed_file_is_there_after_other_renames(tmp_path: Path) -> None:
    """A file that is renamed while it is written is found after its close, though its old directory was renamed."""
    store, writer = bucket("a/", "c/")
    async with namespace(store, tmp_path, writer=writer) as here:
        handle = await here.create("a/b", b"12")
        await here.known("c/a")
        await here.rename("a/b", "c/a")
        await here.rename("a", "d")
        await here.close(handle)
        assert await here.read("c/a") == b"12"


async def test_who_has_a_replaced_file_open_goes_on(tmp_path: Path) -> None:
    """Who has a file open to change it, whose name another gets or that is removed, has its content and mode still."""
    store, writer = bucket("a", "b", "c")
    async with namespace(store, tmp_path, writer=writer) as here:
        handles, inos = [], []
        for name in "bc":
            attrs = await here.mounted.walk(name)
            inos.append(attrs.ino)
            handles.append(await here.files.open(attrs.ino, Opening(is_random=True), 0))
            here.files.show(attrs.ino, Shown(mode=0o600))
        await here.rename("a", "b")
        await here.unlink("c")
        await here.names.sync()
        here.files.show((await here.mounted.walk("b")).ino, Shown(mode=0o755))
        for handle, ino, content in zip(handles, inos, (b"b", b"c"), strict=True):
            assert bytes(await here.mounted.read(handle, 0, 9)) == content
            attrs = await here.mounted.fs.getattr(ino)
            assert (stat.S_IMODE(attrs.mode), attrs.nlink) == (0o600, 0)
            await here.close(handle)
        assert await here.tree() == {"b": b"a"}


async def test_a_refused_upload_fails_the_rename(tmp_path: Path) -> None:
    """When S3 refuses the content of a file that is renamed unsaved, the rename fails, and the target stays."""
    store, writer = bucket("b")
    loss: Loss = ("request", AccessDenied("no PutObject"))
    async with namespace(
        store, tmp_path, writer=writer, fault=lambda name, *_: loss if name == "put" else None
    ) as here:
        handle = await here.create("a", b"12")
        with pytest.raises(AccessDenied):
            await here.rename("a", "b")
        assert await here.read("b") == b"b"
        with pytest.raises(AccessDenied):
            await here.files.flush(handle)
        with pytest.raises(AccessDenied):
            await here.files.release(handle)


async def test_what_is_written_is_replaced(tmp_path: Path) -> None:
    """A rename over a file that is being written takes its name: its writer goes on without one."""
    store, writer = bucket("a")
    async with namespace(store, tmp_path, writer=writer) as here:
        handle = await here.create("b", b"12")
        await here.rename("a", "b")
        await here.close(handle)
        assert await here.tree() == {"b": b"a"}


async def test_a_refused_deletion_leaves_both_names(tmp_path: Path) -> None:
    """When S3 does not delete the old name, the rename fails, and the file has both names."""
    store, writer = bucket("a")
    loss: Loss = ("request", AccessDenied("no DeleteObject"))
    async with namespace(
        store, tmp_path, writer=writer, fault=lambda name, *_: loss if name == "delete" else None
    ) as here:
        with pytest.raises(AccessDenied):
            await here.rename("a", "b")
        assert await here.tree() == {"a": b"a", "b": b"a"}


async def test_a_file_that_another_host_replaced(tmp_path: Path) -> None:
    """A rename takes the version that S3 has, though an older one was looked up."""
    store, writer = bucket("a")
    async with namespace(store, tmp_path, writer=writer) as here:
        await here.known("a", "b")
        store.put("a", b"newer")
        await here.rename("a", "b")
        assert await here.tree() == {"b": b"newer"}


async def test_a_directory_is_renamed(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """A directory of 1,001 files is renamed by two LISTs, 1,001 copies and two DELETEs, in a second at 20 ms each."""
    store, writer = bucket(*(f"d/{n:04}" for n in range(1000)), "d/s/f")
    async with namespace(store, tmp_path, writer=writer) as here:
        inos = [(await here.mounted.walk(path)).ino for path in ("d", "d/s", "d/s/f", "d/0000")]
        await here.known("n")
        cost(store, writer)
        store.latency_s = writer.latency_s = 0.02
        began = trio.current_time()
        await here.rename("d", "n")
        took = trio.current_time() - began
        assert cost(store, writer) == {"lists": 2, "copies": 1001, "deletes": 2}
        assert took < 1.0
        assert set(store.objects) == {"n/s/f", *(f"n/{n:04}" for n in range(1000))}
        assert [(await here.mounted.walk(path)).ino for path in ("n", "n/s", "n/s/f", "n/0000")] == inos
        assert await here.listed() == ["n"]


async def test_what_is_open_in_a_renamed_directory(tmp_path: Path) -> None:
    """What is written or read in a directory, and modes of what is in it, move with the directory."""
    store, writer = bucket("d/r", "d/e/")
    config = NamespaceConfig(has_markers=False, conditions=GOOD)
    async with namespace(store, tmp_path, writer=writer, config=config) as here:
        handle = await here.create("d/w", b"12")
        reader = await here.mounted.fs.open((await here.mounted.walk("d/r")).ino)
        directory = await here.mounted.fs.opendir((await here.mounted.walk("d")).ino)
        await here.mkdir("d/local", 0o700)
        await here.rename("d", "n")
        await here.files.write(handle, 2, b"3")
        await here.close(handle)
        assert bytes(await here.mounted.read(reader, 0, 9)) == b"d/r"
        here.mounted.fs.release(reader)
        assert await here.read_directory(directory) == ["e", "local", "r", "w"]
        here.mounted.fs.releasedir(directory)
        assert (await here.mounted.walk("n/local")).mode & 0o777 == 0o700
        assert await here.tree() == {"n": None, "n/e": None, "n/local": None, "n/r": b"d/r", "n/w": b"123"}
        assert sorted(store.objects) == ["n/e/", "n/r", "n/w"]


async def test_a_directory_replaces_an_empty_one(tmp_path: Path) -> None:
    """A directory takes the place of an empty one, and of no other."""
    store, writer = bucket("d/f", "e/", "g/h")
    async with namespace(store, tmp_path, writer=writer) as here:
        await here.rename("d", "e")
        with pytest.raises(DirectoryNotEmpty):
            await here.rename("e", "g")
        with pytest.raises(InvalidName):
            await here.rename("e", "e/e")
        assert await here.tree() == {"e": None, "e/f": b"d/f", "g": None, "g/h": b"g/h"}


async def test_directories_that_are_too_large(tmp_path: Path) -> None:
    """A directory with more keys than --rename-dir-limit is not renamed; the message names the switch."""
    store, writer = bucket("d/1", "d/2", "d/3")
    config = NamespaceConfig(rename_dir_limit=2, conditions=GOOD)
    async with namespace(store, tmp_path, writer=writer, config=config) as here:
        with pytest.raises(NotAllowed, match="--rename-dir-limit"):
            await here.rename("d", "n")
        assert sorted(store.objects) == ["d/1", "d/2", "d/3"]


@pytest.mark.parametrize("request_name", ["copy", "delete_many"])
async def test_a_rename_that_failed_goes_on(tmp_path: Path, request_name: str) -> None:
    """A rename of a directory that failed halfway has lost nothing, and asked again it does what is left."""
    store, writer = bucket(*(f"d/{n:02}" for n in range(50)))
    failing = [True]

    def fault(name: str, key: str, _number: int) -> Loss | None:
        is_failing = failing[0] and name == request_name and (key == "n/40" or name != "copy")
        return ("request", StoreFailure("503")) if is_failing else None

    async with namespace(store, tmp_path, writer=writer, fault=fault) as here:
        with pytest.raises(StoreFailure):
            await here.rename("d", "n")
        assert {key for key in store.objects if key.startswith("d/")} == {f"d/{n:02}" for n in range(50)}
        failing[0] = False
        done = writer.counts["copies"]
        await here.rename("d", "n")
        assert writer.counts["copies"] - done == 50 - done
        assert set(store.objects) == {f"n/{n:02}" for n in range(50)}
        assert await here.tree() == {"n": None, **{f"n/{n:02}": f"d/{n:02}".encode() for n in range(50)}}


async def test_a_link_is_a_copy_that_is_new(tmp_path: Path) -> None:
    """link(2) is one copy by S3 under a name that nothing has; what is written to one is not in the other."""
    store, writer = bucket("a", "b")
    async with namespace(store, tmp_path, writer=writer) as here:
        await here.known("a", "b", "l")
        cost(store, writer)
        attrs = await here.link("a", "l")
        assert cost(store, writer) == {"copies": 1}
        assert (attrs.nlink, attrs.size) == (1, 1)
        with pytest.raises(AlreadyExists):
            await here.link("a", "b")
        handle = await here.create("c", b"unsaved")
        await here.link("c", "d")
        await here.close(handle)
        assert await here.tree() == {"a": b"a", "b": b"b", "c": b"unsaved", "d": b"unsaved", "l": b"a"}
        await here.symlink("s", "a")
        await here.link("s", "t")
        assert await here.readlink("t") == "a"


@pytest.mark.parametrize("conditions", [GOOD, Conditions(of_puts=True, of_copies=False)])
async def test_links_race(tmp_path: Path, conditions: Conditions) -> None:
    """Of two hosts that link one name at once exactly one wins, also where the server's copies know no condition."""
    store, writer = bucket("a", "b")
    config = NamespaceConfig(conditions=conditions)
    outcomes = []

    async def link(mount: MountedNames, source: str) -> None:
        try:
            await mount.link(source, "won")
            outcomes.append(source)
        except AlreadyExists:
            outcomes.append("")

    async with (
        namespace(store, tmp_path, writer=writer, config=config) as here,
        namespace(store, tmp_path, config=config) as there,
    ):
        await here.known("a", "won")
        await there.known("b", "won")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(link, here, "a")
            nursery.start_soon(link, there, "b")
        (winner,) = [outcome for outcome in outcomes if outcome]
        assert store.objects["won"][1] == winner.encode()


async def test_a_server_without_conditions(tmp_path: Path) -> None:
    """What a server does with conditions is found out once; where it has none, a HEAD comes before the copy."""

    class Careless(FakeWriter):
        def _write(self, key, content, condition, *args):  # type: ignore[no-untyped-def]
            return super()._write(key, content, condition._replace(is_new=False), *args)

    store = FakeStore()
    store.put("a", b"a")
    writer = Careless(store)
    async with namespace(store, tmp_path, writer=writer, config=NamespaceConfig()) as here:
        await here.known("a", "x", "y")
        await here.link("a", "x")
        cost(store, writer)
        await here.link("a", "y")
        assert cost(store, writer) == {"heads": 1, "copies": 1}
        await here.known("z")
        store.put("z", b"theirs")
        with pytest.raises(AlreadyExists):
            await here.link("a", "z")
        assert store.objects["z"][1] == b"theirs"


async def test_a_file_that_is_gone_cannot_be_renamed(tmp_path: Path) -> None:
    """A rename of a file that another host removed since it was looked up says that it is not there."""
    store, writer = bucket("a")
    async with namespace(store, tmp_path, writer=writer) as here:
        await here.known("a", "b")
        store.delete("a")
        with pytest.raises(NameNotFound):
            await here.rename("a", "b")
