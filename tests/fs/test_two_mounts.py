"""Two hosts change the same names: what each is told, and what is there afterwards."""

from pathlib import Path

import pytest
import trio

from s3mount.errors import NotSupported, ObjectChanged
from s3mount.fs.drafts import Opening
from tests.fs.names_harness import MountedNames, namespace
from tests.fs.test_names import bucket
from tests.support.fake_writer import Loss


def contents(here: MountedNames) -> dict[str, bytes]:
    return {key: content for key, (_, content) in here.store.objects.items()}


async def test_the_last_rename_wins(tmp_path: Path) -> None:
    """A rename over a file never fails because another host replaced that file first: the last one is what is there."""
    store, writer = bucket("latest")
    async with namespace(store, tmp_path, writer=writer) as here, namespace(store, tmp_path) as there:
        for mount in here, there:
            await mount.known("latest")
        await there.write("theirs", b"theirs")
        await there.rename("theirs", "latest")
        await here.write("ours", b"ours")
        await here.rename("ours", "latest")
        assert contents(here) == {"latest": b"ours"}
        await there.write("theirs", b"theirs again")
        await there.rename("theirs", "latest")
        assert contents(here) == {"latest": b"theirs again"}


async def test_hosts_that_rename_over_one_name_at_once(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """Of many renames over one name at once by two hosts all succeed, and one file is there, whole."""
    store, writer = bucket("latest")
    async with namespace(store, tmp_path, writer=writer) as here, namespace(store, tmp_path, writer=writer) as there:
        names = [f"{number:02}" for number in range(20)]
        for name in names:
            store.put(name, name.encode())
        writer.latency_s = 0.02
        async with trio.open_nursery() as nursery:
            for number, name in enumerate(names):
                nursery.start_soon((here, there)[number % 2].rename, name, "latest")
        assert list(store.objects) == ["latest"]
        assert contents(here)["latest"].decode() in names


async def test_who_opened_the_file_that_was_replaced(tmp_path: Path) -> None:
    """Who has a file open to change it is told that another host renamed a file over it: what that one has stays."""
    store, writer = bucket("state")
    async with namespace(store, tmp_path, writer=writer) as here, namespace(store, tmp_path) as there:
        ino = (await here.mounted.walk("state")).ino
        handle = await here.files.open(ino, Opening(is_random=True), 0)
        await here.files.write(handle, 0, b"changed here")
        await there.write("tmp", b"theirs")
        await there.rename("tmp", "state")
        with pytest.raises(ObjectChanged):
            await here.files.flush(handle)
        with pytest.raises(ObjectChanged):
            await here.files.release(handle)
        assert contents(here) == {"state": b"theirs"}


async def test_a_name_that_is_used_while_its_file_is_renamed(tmp_path: Path) -> None:
    """What another host writes under the old name after S3 has copied the file for a rename stays, and is seen."""
    store, writer = bucket("a")

    def fault(name: str, _key: str, _number: int) -> Loss | None:
        if name == "delete":
            store.put("a", b"theirs")
        return None

    async with namespace(store, tmp_path, writer=writer, fault=fault) as here:
        await here.rename("a", "b")
        assert contents(here) == {"a": b"theirs", "b": b"a"}
        assert await here.tree() == {"a": b"theirs", "b": b"a"}


async def test_a_name_that_is_used_while_its_removed_file_is_read(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """What another host writes under a removed name whose DELETE waits for a reader stays, and is seen after that."""
    store, writer = bucket("a", "b")
    async with namespace(store, tmp_path, writer=writer) as here:
        handles = [await here.mounted.fs.open((await here.mounted.walk(name)).ino) for name in "ab"]
        for name in "ab":
            await here.unlink(name)
        store.put("a", b"theirs")
        for handle in handles:
            here.mounted.fs.release(handle)
        await trio.sleep(2)
        assert contents(here) == {"a": b"theirs"}
        assert await here.tree() == {"a": b"theirs"}


async def test_what_is_removed_is_what_is_there(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """Who removes a name removes what another host wrote there, also if the version before is open here."""
    store, writer = bucket("a")
    async with namespace(store, tmp_path, writer=writer) as here:
        handle = await here.mounted.fs.open((await here.mounted.walk("a")).ino)
        await trio.sleep(0.5)
        store.put("a", b"theirs")
        await here.unlink("a")
        here.mounted.fs.release(handle)
        await trio.sleep(2)
        assert contents(here) == {}


async def test_a_server_that_refuses_conditions_of_deletes(tmp_path: Path) -> None:
    """Where a server does not delete by a condition, it is asked without: the old name is gone."""
    store, writer = bucket("a")
    refused: list[Loss] = [("request", NotSupported("501"))]

    def fault(name: str, _key: str, _number: int) -> Loss | None:
        return refused.pop() if name == "delete" and refused else None

    async with namespace(store, tmp_path, writer=writer, fault=fault) as here:
        await here.rename("a", "b")
        assert (contents(here), refused) == ({"b": b"a"}, [])
