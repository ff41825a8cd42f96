"""A directory that this mount makes many files in is listed now and then, in place of a LIST before each file."""

import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from s3mount.cache.ages import MetadataConfig
from s3mount.core.listing import ListPage
from s3mount.errors import AlreadyExists, StoreFailure
from tests.fs.names_harness import MountedNames, namespace
from tests.support.fake_store import FakeStore

MINIMAL = MetadataConfig()
LATENCY_S = 0.02
#: Look-ups before a directory is known to be filled.
_FIRST = 5


async def make(tested: MountedNames, number: int, *, pause_s: float = LATENCY_S) -> None:
    """A file, as the kernel makes it: it looks the name up, and creates it when there is none."""
    path = f"d/{number:04d}"
    assert not await tested.exists(path)
    await tested.write(path, b"x")
    await trio.sleep(pause_s)


@pytest.mark.parametrize("old", [range(1), range(20_000), range(70_000, 90_000)], ids=["none", "before", "behind"])
async def test_names_in_order_cost_a_list_a_second(autojump_clock: object, tmp_path: Path, old: range) -> None:
    """Of a directory that a mount fills in order, be it large, the next names cost one LIST a second."""
    store = FakeStore(latency_s=LATENCY_S)
    for number in old:
        store.put(f"d/{number:05d}", b"1")
    async with namespace(store, tmp_path, metadata=MINIMAL) as tested:
        began = trio.current_time()
        for number in range(500):
            await make(tested, number + 50_000)
        assert 5 < store.counts["lists"] <= 2 * (trio.current_time() - began) + 2 * _FIRST
        assert store.counts["heads"] == 0


async def test_processes_that_make_names_in_turn(autojump_clock: object, tmp_path: Path) -> None:
    """Eight programs share the LIST of a second, whoever is ahead: 800 files for 80."""
    store = FakeStore(latency_s=LATENCY_S)
    store.put("d/first", b"1")
    async with namespace(store, tmp_path, metadata=MINIMAL) as tested:

        async def program(index: int) -> None:
            for number in range(index, 800, 8):
                await make(tested, number, pause_s=LATENCY_S * (1 + index % 3))

        async with trio.open_nursery() as nursery:
            for index in range(8):
                nursery.start_soon(program, index)
        assert store.counts["lists"] <= 80
        assert len(await tested.listed("d")) == 801


async def test_names_that_are_there(autojump_clock: object, tmp_path: Path) -> None:
    """There a look-up of another host's file costs a LIST, as elsewhere, also where the directory is large."""
    store = FakeStore(latency_s=LATENCY_S)
    for number in range(20_000):
        store.put(f"d/- {number:05d}", b"1")
    for number in range(50, 100):
        store.put(f"d/theirs {number}", b"1")
    async with namespace(store, tmp_path, metadata=MINIMAL) as tested:
        for number in range(50):
            await make(tested, number)
        before, began = store.counts["lists"], trio.current_time()
        for number in range(50, 100):
            await make(tested, number)
            assert await tested.exists(f"d/theirs {number}")
        assert store.counts["lists"] <= before + 50 + 2 * (trio.current_time() - began) + 1


async def test_names_in_no_order(autojump_clock: object, tmp_path: Path) -> None:
    """Of one that it fills with names in no order a LIST comes for some five of its files, as long as it is small."""
    store = FakeStore(latency_s=LATENCY_S)
    store.put("d/first", b"1")
    async with namespace(store, tmp_path, metadata=MINIMAL) as tested:
        for number in random.Random(1).sample(range(10_000), 500):
            await make(tested, number)
        assert store.counts["lists"] <= 130
        assert store.counts["heads"] == 0
        assert len(await tested.listed("d")) == 501


@pytest.mark.parametrize("theirs", ["d/theirs", "d/0000theirs"], ids=["behind", "before"])
async def test_a_file_of_another_host(autojump_clock: object, tmp_path: Path, theirs: str) -> None:
    """There a file that another host makes is found within a second; and what is known of others changes nothing."""
    store = FakeStore(latency_s=LATENCY_S)
    store.put("d/first", b"1")
    async with namespace(store, tmp_path, metadata=MINIMAL) as tested:
        for number in range(50):
            await make(tested, number)
        store.put(theirs, b"1")
        made_at = trio.current_time()
        number = 50
        while not await tested.exists(theirs):
            number += 1
            await make(tested, number)
        assert trio.current_time() - made_at <= 1.0 + 4 * LATENCY_S
        store.put(f"{theirs} too", b"1")
        await trio.sleep(1.01)
        assert await tested.exists(f"{theirs} too")


async def test_a_refresh_counts(autojump_clock: object, tmp_path: Path) -> None:
    """There a file of another host is found at once by who refreshes."""
    store = FakeStore(latency_s=LATENCY_S)
    store.put("d/first", b"1")
    async with namespace(store, tmp_path, metadata=MINIMAL) as tested:
        for number in range(50):
            await make(tested, number)
        store.put("d/theirs", b"1")
        assert not await tested.exists("d/theirs")
        tested.mounted.fs.tree.cache.drop_below("d/")
        assert await tested.exists("d/theirs")


@pytest.mark.parametrize("is_slow", [False, True], ids=["refused", "slow"])
async def test_a_page_that_does_not_come(autojump_clock: object, tmp_path: Path, *, is_slow: bool) -> None:
    """A page of the next names that fails or hangs is not the program's matter: each name is asked for instead."""
    store, n_pages = FakeStore(latency_s=LATENCY_S), 0
    list_page = store.list_page
    store.put("d/first", b"1")

    async def broken(prefix: str, *, start_after: str = "", **options: Any) -> ListPage:
        nonlocal n_pages
        if not start_after:
            return await list_page(prefix, **options)
        n_pages += 1
        await trio.sleep(60.0 if is_slow else LATENCY_S)
        raise StoreFailure("no", key=prefix, operation="ListObjectsV2")

    store.list_page = broken  # type: ignore[method-assign]
    async with namespace(store, tmp_path, metadata=MINIMAL) as tested:
        began = trio.current_time()
        for number in range(100):
            await make(tested, number)
        assert n_pages == 3
        assert trio.current_time() - began < 3 * 1.0 + 100 * 3 * LATENCY_S


async def test_a_link_or_directory_of_another_host_is_seen_at_once(autojump_clock: object, tmp_path: Path) -> None:
    """There who is told that a name exists finds it: links and directories always ask S3."""
    store = FakeStore()
    async with namespace(store, tmp_path, metadata=MINIMAL) as tested:
        store.put("d/first", b"1")
        for number in range(50):
            await make(tested, number)
        store.put("d/theirs", b"1")
        store.put("d/dir/", b"")
        with pytest.raises(AlreadyExists):
            await tested.link("d/0001", "d/theirs")
        with pytest.raises(AlreadyExists):
            await tested.mkdir("d/dir")
        assert await tested.exists("d/theirs")
        assert await tested.exists("d/dir")


@pytest.mark.parametrize(
    ("theirs", "call"),
    [
        ("d/n/", lambda tested: tested.mkdir("d/n")),
        ("d/n!s3mount-symlink", lambda tested: tested.symlink("d/n", "x")),
        ("d/n", lambda tested: tested.link("d/0001", "d/n")),
        ("d/n", lambda tested: tested.rename("d/0001", "d/n", may_replace=False)),
    ],
    ids=["mkdir", "symlink", "link", "rename"],
)
async def test_who_is_told_that_a_name_exists_finds_it(
    autojump_clock: object, tmp_path: Path, theirs: str, call: Callable[[MountedNames], Awaitable[object]]
) -> None:
    """Who makes something a moment after another host did, and is told that it exists, finds it."""
    store, is_time = FakeStore(), False

    def other_host(_call: str, _key: str, _n: int) -> None:
        if is_time:
            store.put(theirs, b"")

    async with namespace(store, tmp_path, metadata=MINIMAL, fault=other_host) as tested:
        store.put("d/first", b"1")
        for number in range(50):
            await make(tested, number)
        assert not await tested.exists("d/n")
        is_time = True
        with pytest.raises(AlreadyExists):
            await call(tested)
        is_time = False
        assert await tested.exists("d/n")


async def test_a_file_now_and_then_always_asks(autojump_clock: object, tmp_path: Path) -> None:
    """Who makes a file every two seconds asks S3 for each, and finds what another host made a moment ago."""
    store = FakeStore()
    store.put("d/first", b"1")
    async with namespace(store, tmp_path, metadata=MINIMAL) as tested:
        for number in range(20):
            await make(tested, number, pause_s=2.0)
            store.put(f"d/theirs {number}", b"1")
            assert await tested.exists(f"d/theirs {number}")


async def test_a_large_directory_is_not_listed_again(autojump_clock: object, tmp_path: Path) -> None:
    """Filling a directory of forty pages in no order costs a LIST for each file, and once those of the directory."""
    store = FakeStore(latency_s=LATENCY_S)
    store.max_page = 5
    for number in range(200):
        store.put(f"d/old {number:03d}", b"1")
    async with namespace(store, tmp_path, metadata=MINIMAL) as tested:
        for number in random.Random(1).sample(range(10_000), 200):
            await make(tested, number)
        assert store.counts["lists"] <= 200 + 100
