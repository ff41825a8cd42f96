"""Directories, removals, renames and links over a bucket in memory: what they cost, and what is there afterwards."""

import stat
from pathlib import Path

import pytest
import trio

from s3mount.core.symlinks import link_key
from s3mount.errors import (
    AccessDenied,
    AlreadyExists,
    DirectoryNotEmpty,
    IsADirectory,
    KeyTooLong,
    NameNotFound,
    NotADirectory,
    NotAllowed,
    ReadOnlyMount,
    StoreFailure,
)
from s3mount.fs.namespace import NamespaceConfig
from s3mount.fs.write_policy import WritePolicy
from tests.fs.names_harness import GOOD, namespace
from tests.support.fake_store import FakeStore
from tests.support.fake_writer import FakeWriter, Loss


def bucket(*keys: str) -> tuple[FakeStore, FakeWriter]:
    """Objects whose content is their key."""
    store = FakeStore()
    for key in keys:
        store.put(key, b"" if key.endswith("/") else key.encode())
    return store, FakeWriter(store)


def cost(store: FakeStore, writer: FakeWriter) -> dict[str, int]:
    """Requests since the last call."""
    spent = {kind: n for kind, n in (store.counts + writer.counts).items() if n and kind != "bytes"}
    store.counts.clear()
    writer.counts.clear()
    return spent


async def test_a_directory_is_made(tmp_path: Path) -> None:
    """A new directory is an empty object whose key ends in a slash, by one PUT, and other mounts see it at once."""
    store, writer = bucket()
    async with namespace(store, tmp_path, writer=writer) as here, namespace(store, tmp_path) as there:
        await here.known("d")
        cost(store, writer)
        attrs = await here.mkdir("d", 0o700)
        assert cost(store, writer) == {"puts": 1}
        assert stat.S_ISDIR(attrs.mode)
        assert stat.S_IMODE(attrs.mode) == 0o700
        assert store.objects["d/"][1] == b""
        assert await there.listed() == ["d"]
        with pytest.raises(AlreadyExists):
            await there.mkdir("d")


async def test_two_hosts_make_one_directory(tmp_path: Path) -> None:
    """Of two hosts that make a directory at once one is told that it exists."""
    store, writer = bucket()
    async with namespace(store, tmp_path, writer=writer) as here, namespace(store, tmp_path) as there:
        await here.known("d")
        await there.known("d")
        await here.mkdir("d")
        with pytest.raises(AlreadyExists):
            await there.mkdir("d")


async def test_directories_without_markers(tmp_path: Path) -> None:
    """With --no-dir-markers a new directory is known in its mount alone, at no request, until something is in it."""
    store, writer = bucket()
    config = NamespaceConfig(has_markers=False, conditions=GOOD)
    async with namespace(store, tmp_path, writer=writer, config=config) as here:
        await here.known("d")
        cost(store, writer)
        await here.mkdir("d")
        assert cost(store, writer) == {}
        assert await here.listed() == ["d"]
        await here.write("d/f", b"1")
        assert await here.tree() == {"d": None, "d/f": b"1"}
        await here.unlink("d/f")
        await here.rmdir("d")
        assert await here.tree() == {}


async def test_an_empty_directory_goes(tmp_path: Path) -> None:
    """A directory with nothing but its marker is removed by one LIST, and its marker with the next DELETEs."""
    store, writer = bucket("d/", "e/f")
    async with namespace(store, tmp_path, writer=writer) as here:
        await here.known("d", "e")
        cost(store, writer)
        await here.rmdir("d")
        assert cost(store, writer) == {"lists": 1}
        assert await here.listed() == ["e"]
        await here.names.sync()
        assert cost(store, writer)["deletes"] == 1
        assert list(store.objects) == ["e/f"]
        with pytest.raises(DirectoryNotEmpty):
            await here.rmdir("e")
        with pytest.raises(NotADirectory):
            await here.rmdir("e/f")
        with pytest.raises(NameNotFound):
            await here.rmdir("d")


async def test_a_removed_directory_still_answers(tmp_path: Path) -> None:
    """fstat and listdir of a directory that was removed while it is open answer: it is empty."""
    store, writer = bucket("d/")
    async with namespace(store, tmp_path, writer=writer) as here:
        attrs = await here.mounted.walk("d")
        handle = await here.mounted.fs.opendir(attrs.ino)
        await here.rmdir("d")
        assert (await here.mounted.fs.getattr(attrs.ino)).nlink == 0
        assert await here.mounted.names(attrs.ino) == []
        here.mounted.fs.releasedir(handle)
        await here.mkdir("d")
        assert (await here.mounted.walk("d")).ino != attrs.ino


async def test_a_tree_goes(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """rm -rf of a directory of 2,000 files costs two DELETEs and one LIST, and takes less than 0.1 s at 20 ms each."""
    store, writer = bucket(*(f"d/{n:04}" for n in range(2000)))
    async with namespace(store, tmp_path, writer=writer) as here:
        names = await here.listed("d")
        cost(store, writer)
        store.latency_s = writer.latency_s = 0.02
        began = trio.current_time()
        for name in names:
            await here.unlink(f"d/{name}")
        await here.rmdir("d")
        took = trio.current_time() - began
        assert cost(store, writer) == {"deletes": 2, "lists": 1}
        assert took < 0.1
        assert store.objects == {}
        assert await here.listed() == []


async def test_removals_go_together(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """A removed name is gone in its mount at once and in S3 within 0.2 s; names removed together cost one request."""
    store, writer = bucket("a", "b", "c")
    async with namespace(store, tmp_path, writer=writer) as here:
        await here.unlink("a")
        await here.unlink("b")
        assert not await here.exists("a")
        assert await here.listed() == ["c"]
        assert sorted(store.objects) == ["a", "b", "c"]
        await trio.sleep(0.2)
        assert sorted(store.objects) == ["c"]
        assert writer.counts["deletes"] == 1
        assert here.names.statistics().removals.removed == 2


async def test_a_refused_removal(tmp_path: Path) -> None:
    """What S3 does not let go is there again, and the next fsync of a directory or rmdir says why."""
    store, writer = bucket("d/a", "d/b")
    denied = AccessDenied("no DeleteObject")
    async with namespace(
        store, tmp_path, writer=writer, fault=lambda name, *_: ("request", denied) if name == "delete" else None
    ) as here:
        await here.unlink("d/a")
        with pytest.raises(AccessDenied):
            await here.names.sync()
        assert await here.listed("d") == ["a", "b"]
        assert await here.read("d/a") == b"d/a"
        await here.unlink("d/a")
        with pytest.raises(AccessDenied):
            await here.rmdir("d")
        await here.names.sync()


async def test_something_new_under_a_removed_name(tmp_path: Path) -> None:
    """A file, a directory, a link or a renamed file under a name whose DELETE is on its way is not taken by it."""
    store, writer = bucket("a", "b", "c", "e", "x")
    async with namespace(store, tmp_path, writer=writer) as here:
        for name in "abce":
            await here.unlink(name)
        await here.write("a", b"new")
        await here.mkdir("b")
        await here.symlink("c", "x")
        await here.rename("x", "e")
        await here.names.sync()
        assert await here.tree() == {"a": b"new", "b": None, "c": "x", "e": b"x"}


async def test_the_last_file_leaves_its_directory(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """A directory whose last file is removed stays in its mount until it is removed; on S3 it is gone."""
    store, writer = bucket("d/e/f", "g/h", "g/i")
    async with namespace(store, tmp_path, writer=writer) as here, namespace(store, tmp_path) as there:
        await here.unlink("d/e/f")
        await here.unlink("g/h")
        await trio.sleep(10)
        assert await here.tree() == {"d": None, "d/e": None, "g": None, "g/i": b"g/i"}
        assert await there.tree() == {"g": None, "g/i": b"g/i"}
        store.delete("g/i")
        await trio.sleep(10)
        assert await here.listed() == ["d"]
        await here.rmdir("d/e")
        await here.rmdir("d")
        assert await here.tree() == {}


async def test_a_removed_file_is_read_on(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """A removed file that is open is read on: its DELETE waits for the last close, for a minute at most."""
    store, writer = bucket("a", "b")
    async with namespace(store, tmp_path, writer=writer) as here:
        attrs = await here.mounted.walk("a")
        handle = await here.mounted.fs.open(attrs.ino)
        await here.unlink("a")
        await trio.sleep(30)
        assert not await here.exists("a")
        assert bytes(await here.mounted.read(handle, 0, 1)) == b"a"
        assert (await here.mounted.fs.getattr(attrs.ino)).nlink == 0
        assert here.names.statistics().removals.held == 1
        here.mounted.fs.release(handle)
        await trio.sleep(2)
        assert list(store.objects) == ["b"]
        attrs = await here.mounted.walk("b")
        handle = await here.mounted.fs.open(attrs.ino)
        await here.unlink("b")
        await trio.sleep(62)
        assert store.objects == {}
        here.mounted.fs.release(handle)


async def test_a_file_that_is_written_is_removed(tmp_path: Path) -> None:
    """A file that is being written is removed without a request if S3 never had it; its writer reads it to the end."""
    store, writer = bucket()
    async with namespace(store, tmp_path, writer=writer) as here:
        await here.known("a")
        handle = await here.create("a", b"12")
        cost(store, writer)
        await here.unlink("a")
        assert not await here.exists("a")
        await here.files.write(handle, 2, b"3")
        assert bytes(await here.mounted.fs.read(handle, 0, 9)) == b"123"
        await here.close(handle)
        await here.names.sync()
        assert store.objects == {}
        assert cost(store, writer) == {}


@pytest.mark.parametrize(
    ("policy", "refused"),
    [
        (WritePolicy(), {"mkdir", "rmdir", "unlink", "rename", "link", "symlink"}),
        (WritePolicy(is_read_only=False), {"rmdir", "unlink", "rename"}),
        (WritePolicy(is_read_only=False, may_delete=True), {"rename"}),
    ],
)
async def test_switches(tmp_path: Path, policy: WritePolicy, refused: set[str]) -> None:
    """What the switches do not allow fails at once, without a request, and with the switch in the message."""
    store, writer = bucket("a", "b", "d/")
    async with namespace(store, tmp_path, writer=writer, policy=policy) as here:
        calls = {
            "mkdir": lambda: here.mkdir("new"),
            "rmdir": lambda: here.rmdir("d"),
            "unlink": lambda: here.unlink("b"),
            "rename": lambda: here.rename("a", "c"),
            "link": lambda: here.link("a", "l"),
            "symlink": lambda: here.symlink("s", "a"),
        }
        await here.known("a", "b", "d", "new", "c", "l", "s")
        for name, call in calls.items():
            cost(store, writer)
            if name in refused:
                with pytest.raises((NotAllowed, ReadOnlyMount), match="--"):
                    await call()
                assert cost(store, writer) == {}
            else:
                await call()


async def test_a_symbolic_link(tmp_path: Path) -> None:
    """A symbolic link is one PUT; another mount sees it by a listing alone, and where it points to by one GET."""
    store, writer = bucket("a")
    async with namespace(store, tmp_path, writer=writer) as here, namespace(store, tmp_path) as there:
        await here.known("l")
        cost(store, writer)
        attrs = await here.symlink("l", "../a b")
        assert cost(store, writer) == {"puts": 1}
        assert stat.S_ISLNK(attrs.mode)
        assert attrs.size == len("../a b")
        assert store.objects[link_key("l")][1] == b"../a b"
        assert await here.readlink("l") == "../a b"
        assert cost(store, writer) == {}
        assert await there.listed() == ["a", "l"]
        assert stat.S_ISLNK((await there.mounted.walk("l")).mode)
        assert cost(store, writer) == {"lists": 1}
        assert [await there.readlink("l") for _ in range(2)] == ["../a b", "../a b"]
        assert cost(store, writer) == {"gets": 1}
        with pytest.raises(AlreadyExists):
            await there.symlink("l", "b")


async def test_links_are_files_of_their_own_kind(tmp_path: Path) -> None:
    """A symbolic link is looked up by one LIST, is renamed and removed as a link, and a file of its name hides it."""
    store, writer = bucket("a")
    async with namespace(store, tmp_path, writer=writer) as here:
        await here.symlink("l", "a")
        async with namespace(store, tmp_path) as there:
            cost(store, writer)
            assert stat.S_ISLNK((await there.mounted.walk("l")).mode)
            assert cost(store, writer) == {"lists": 1}
        await here.rename("l", "m")
        assert sorted(store.objects) == ["a", link_key("m")]
        await here.rename("m", "a")
        assert await here.tree() == {"a": "a"}
        await here.write("b", b"1")
        await here.rename("b", "a")
        assert await here.tree() == {"a": b"1"}
        assert sorted(store.objects) == ["a"]
        await here.symlink("l", "a")
        store.put("l", b"file")
        async with namespace(store, tmp_path) as there:
            assert await there.tree() == {"a": b"1", "l": b"file"}
        store.delete("l")
        await here.unlink("l")
        await here.names.sync()
        assert sorted(store.objects) == ["a"]


async def test_names_that_are_too_long(tmp_path: Path) -> None:
    """A name whose key would be too long is refused without a request, and a link needs room for its suffix."""
    store, writer = bucket("a")
    async with namespace(store, tmp_path, writer=writer) as here:
        await here.known("a")
        cost(store, writer)
        for call in (
            here.mkdir("x" * 1024),
            here.symlink("x" * 1010, "a"),
            here.link("a", "x" * 1025),
            here.rename("a", "x" * 1025),
        ):
            with pytest.raises(KeyTooLong):
                await call
        assert cost(store, writer) == {}


@pytest.mark.parametrize(
    ("request_name", "verbs"), [("put", {"mkdir", "symlink"}), ("copy", {"rename", "rename of a directory", "link"})]
)
async def test_a_failure_leaves_things_as_they_were(tmp_path: Path, request_name: str, verbs: set[str]) -> None:
    """A verb whose request fails leaves what was there, here and in S3."""
    store, writer = bucket("a", "b", "d/f")
    loss: Loss = ("request", StoreFailure("503"))
    async with namespace(
        store, tmp_path, writer=writer, fault=lambda called, *_: loss if called == request_name else None
    ) as here:
        calls = {
            "mkdir": lambda: here.mkdir("n"),
            "symlink": lambda: here.symlink("n", "a"),
            "rename": lambda: here.rename("a", "n"),
            "link": lambda: here.link("a", "n"),
            "rename of a directory": lambda: here.rename("d", "n"),
        }
        for verb in verbs:
            with pytest.raises(StoreFailure):
                await calls[verb]()
        assert sorted(store.objects) == ["a", "b", "d/f"]
        assert await here.tree() == {"a": b"a", "b": b"b", "d": None, "d/f": b"d/f"}


async def test_kinds_that_do_not_fit(tmp_path: Path) -> None:
    """unlink of a directory and renames of one kind over the other say which kind is in the way."""
    store, writer = bucket("a", "d/f", "e/g")
    async with namespace(store, tmp_path, writer=writer) as here:
        with pytest.raises(IsADirectory):
            await here.unlink("d")
        with pytest.raises(IsADirectory):
            await here.rename("a", "d")
        with pytest.raises(NotADirectory):
            await here.rename("d", "a")
        with pytest.raises(DirectoryNotEmpty):
            await here.rename("d", "e")
        with pytest.raises(NameNotFound):
            await here.rename("x", "y")
        assert sorted(store.objects) == ["a", "d/f", "e/g"]
