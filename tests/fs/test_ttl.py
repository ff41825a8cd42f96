"""The file system with a TTL over a store in memory: requests, expiry, changes by another client."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from s3mount.cache.ages import MetadataConfig
from s3mount.cache.metadata import MetadataCache
from s3mount.core.attrs import FileAttrs
from s3mount.core.ttl import INDEFINITE, MINIMAL, TimeToLive
from s3mount.errors import FileSystemError, NameNotFound, ObjectChanged, StaleInode, StoreError, StoreFailure
from s3mount.fs.directories import DirectoryLister
from tests.fs.harness import ROOT, Mounted, file_system
from tests.support.fake_store import FakeStore, FaultyStore

TTL_S = 60.0
CONFIG = MetadataConfig(TimeToLive(TTL_S), TimeToLive(TTL_S))


@asynccontextmanager
async def with_ttl(store: FakeStore | FaultyStore, config: MetadataConfig = CONFIG) -> AsyncIterator[Mounted]:
    async with file_system(store, metadata=config) as mounted:
        yield mounted


async def names_from(mounted: Mounted, handle: int, offset: int = 0) -> list[str]:
    found: list[str] = []
    await mounted.fs.readdir(handle, offset, lambda name, _attrs, _next: found.append(name.decode()) is None)
    return found


async def test_after_one_ls_no_stat_costs_a_request(autojump_clock: object) -> None:
    """One LIST for each 1,000 names, then 10,000 stats, a second ls and a missing name cost nothing."""
    store = FakeStore(latency_s=0.01)
    for n in range(10_000):
        store.put(f"f{n:05}", b"1")
    async with with_ttl(store) as mounted:
        names = await mounted.names()
        assert (len(names), store.counts) == (10_000, {"lists": 10})
        for name in names:
            await mounted.walk(name)
        assert await mounted.names() == names
        with pytest.raises(NameNotFound):
            await mounted.walk("missing")
        assert store.counts == {"lists": 10}


async def test_a_known_small_file_costs_one_get_once(autojump_clock: object) -> None:
    """Open and read of a listed file is one GET; again, when the kernel has it, nothing."""
    store = FakeStore()
    store.put("d/f", b"content")
    async with with_ttl(store) as mounted:
        await mounted.names((await mounted.walk("d")).ino)
        store.counts.clear()
        assert await mounted.read_file("d/f") == b"content"
        assert store.counts == {"gets": 1, "bytes": 7}
        attrs = await mounted.walk("d/f")
        mounted.fs.release(await mounted.fs.open(attrs.ino))
        assert store.counts == {"gets": 1, "bytes": 7}


@pytest.mark.parametrize("depth", [1, 2, 5])
async def test_an_unknown_path_costs_one_list_a_component(autojump_clock: object, depth: int) -> None:
    """Nothing known: one LIST for each component, and one GET; the second time no LIST at all."""
    store = FakeStore()
    path = "/".join(["d"] * (depth - 1) + ["f"])
    store.put(path, b"1")
    async with with_ttl(store) as mounted:
        assert await mounted.read_file(path) == b"1"
        assert (store.counts["lists"], store.counts["gets"], store.counts["heads"]) == (depth, 1, 0)
        await mounted.read_file(path)
        assert store.counts["lists"] == depth


async def test_many_opens_of_one_cold_file_are_one_resolution_and_one_get(autojump_clock: object) -> None:
    """32 readers that start together cost one LIST and one GET."""
    store = FakeStore(latency_s=0.03)
    store.put("f", b"content")
    contents = []
    async with with_ttl(store) as mounted:

        async def read() -> None:
            contents.append(await mounted.read_file("f"))

        async with trio.open_nursery() as nursery:
            for _ in range(32):
                nursery.start_soon(read)
        assert contents == [b"content"] * 32
        assert (store.counts["lists"], store.counts["gets"]) == (1, 1)
        assert mounted.fs.statistics().resolver.resolved == 1


async def test_after_the_ttl_an_unchanged_file_keeps_its_inode_and_a_changed_one_does_not(
    autojump_clock: object,
) -> None:
    """Within the TTL nothing moves; after it the same ETag is the same inode, another one is another."""
    store = FakeStore()
    store.put("same", b"1")
    store.put("changes", b"1")
    async with with_ttl(store) as mounted:
        before = {name: (await mounted.walk(name)).ino for name in await mounted.names()}
        store.put("changes", b"22")
        await trio.sleep(TTL_S - 1)
        assert (await mounted.walk("changes")).ino == before["changes"]
        assert store.counts == {"lists": 1}
        await trio.sleep(1.5)
        assert (await mounted.walk("same")).ino == before["same"]
        changed = await mounted.walk("changes")
        assert (changed.ino != before["changes"], changed.size) == (True, 2)


async def test_the_kernel_is_told_what_is_left(autojump_clock: object) -> None:
    """Daemon and kernel together are never older than the TTL: for names, entries and absent names."""
    store = FakeStore()
    store.put("f", b"1")
    async with with_ttl(store) as mounted:
        await mounted.names()
        await trio.sleep(20)
        assert (await mounted.walk("f")).ttl_s == pytest.approx(TTL_S - 20)
        assert (await mounted.fs.lookup(ROOT, b"none")).ttl_s == pytest.approx(TTL_S - 20)
        seen: list[FileAttrs] = []
        handle = await mounted.fs.opendir(ROOT)
        await mounted.fs.readdir(handle, 0, lambda _name, attrs, _next: seen.append(attrs) is None)
        mounted.fs.releasedir(handle)
        assert [attrs.ttl_s for attrs in seen] == [pytest.approx(TTL_S - 20)]


async def test_a_missing_name_is_inode_zero_and_no_reference(autojump_clock: object) -> None:
    """With a negative TTL a missing name answers inode 0 and is asked for once; nothing is counted."""
    store = FakeStore()
    async with with_ttl(store) as mounted:
        for _ in range(3):
            attrs = await mounted.fs.lookup(ROOT, b"none")
            assert (attrs.ino, attrs.ttl_s) == (0, TTL_S)
        assert store.counts == {"lists": 1}
        assert mounted.fs.statistics().inodes.lookups == 0
        await trio.sleep(TTL_S)
        store.put("none", b"1")
        assert (await mounted.walk("none")).size == 1


async def test_a_minimal_negative_ttl_always_asks_for_missing_names(autojump_clock: object) -> None:
    """Names that are there are known for the TTL while each probe of a missing one asks, and sees it come."""
    store = FakeStore()
    store.put("f", b"1")
    async with with_ttl(store, MetadataConfig(TimeToLive(TTL_S), MINIMAL)) as mounted:
        assert await mounted.names() == ["f"]
        for _ in range(2):
            with pytest.raises(NameNotFound):
                await mounted.fs.lookup(ROOT, b"new")
        await mounted.walk("f")
        assert store.counts == {"lists": 3}
        await trio.sleep(1)
        store.put("new", b"1")
        assert (await mounted.walk("new")).size == 1
        assert await mounted.names() == ["f", "new"]


async def test_a_listing_that_hides_a_new_file_expires_also_for_who_keeps_asking(autojump_clock: object) -> None:
    """A process that lists and probes every second sees what another client added when the TTL is over."""
    store = FakeStore()
    store.put("old", b"1")
    async with with_ttl(store, MetadataConfig(TimeToLive(10), TimeToLive(10))) as mounted:
        assert await mounted.names() == ["old"]
        store.put("new", b"1")
        seen_after = None
        for second in range(1, 30):
            await trio.sleep(1)
            is_listed = "new" in await mounted.names()
            attrs = await mounted.fs.lookup(ROOT, b"new")
            assert is_listed == (attrs.ino != 0)
            if is_listed and seen_after is None:
                seen_after = second
        assert seen_after == 10


async def test_rewinding_uses_a_fresh_listing_and_lists_anew_after_it(autojump_clock: object) -> None:
    """With a TTL rewinddir asks S3 only when the listing has expired; old offsets stay good in between."""
    store = FakeStore()
    for name in "abc":
        store.put(name, b"1")
    async with with_ttl(store) as mounted:
        handle = await mounted.fs.opendir(ROOT)
        assert await names_from(mounted, handle) == list("abc")
        store.put("d", b"1")
        assert await names_from(mounted, handle) == list("abc")
        assert await names_from(mounted, handle, 2) == ["c"]
        assert store.counts == {"lists": 1}
        await trio.sleep(TTL_S)
        assert await names_from(mounted, handle, 1) == ["b", "c"]
        assert await names_from(mounted, handle) == list("abcd")
        assert store.counts == {"lists": 2}
        mounted.fs.releasedir(handle)


@pytest.mark.parametrize("config", [MetadataConfig(), CONFIG], ids=["minimal", "ttl"])
async def test_rewinding_an_empty_directory(autojump_clock: object, config: MetadataConfig) -> None:
    """A handle on an empty directory sees what came: at once in the minimal mode, else after the TTL."""
    store = FakeStore()
    async with with_ttl(store, config) as mounted:
        handle = await mounted.fs.opendir(ROOT)
        assert await names_from(mounted, handle) == []
        store.put("a", b"1")
        assert await names_from(mounted, handle) == (["a"] if config.ttl.is_minimal else [])
        await trio.sleep(TTL_S)
        assert await names_from(mounted, handle) == ["a"]
        mounted.fs.releasedir(handle)


async def test_a_directory_that_was_not_read_to_its_end_is_not_known(autojump_clock: object) -> None:
    """Half a listing, or one whose page failed, proves nothing about what it lacks."""
    store = FakeStore()
    store.max_page = 2
    for name in "abcd":
        store.put(name, b"1")

    def fault(_operation: str, _key: str, n: int) -> StoreError | None:
        return StoreFailure("page lost") if n == 2 else None

    async with with_ttl(FaultyStore(store, fault)) as mounted:
        handle = await mounted.fs.opendir(ROOT)
        found = await names_from(mounted, handle)
        assert found == ["a"]  # the page that comes next might make a directory of b
        with pytest.raises(StoreFailure):
            await names_from(mounted, handle, len(found))
        assert (await mounted.walk("d")).size == 1
        assert mounted.fs.statistics().metadata.listings == 0
        while more := await names_from(mounted, handle, len(found)):
            found += more
        assert found == list("abcd")
        mounted.fs.releasedir(handle)
        store.counts.clear()
        assert await mounted.names() == list("abcd")
        assert not store.counts


async def test_a_slow_listing_is_as_old_as_its_first_page(autojump_clock: object) -> None:
    """A directory whose pages took half of the TTL is known for the other half."""
    store = FakeStore(latency_s=10)
    store.max_page = 1
    for name in "abc":
        store.put(name, b"1")
    async with with_ttl(store) as mounted:
        await mounted.names()
        store.counts.clear()
        await trio.sleep(TTL_S - 30 - 1)
        await mounted.names()
        assert not store.counts
        await trio.sleep(2)
        await mounted.names()
        assert store.counts == {"lists": 3}


async def test_a_replaced_file_is_stale_once_and_its_directory_is_listed_anew(autojump_clock: object) -> None:
    """Open finds the change; from then on look-up, read and ls show the new version, neighbours stay known."""
    store = FakeStore()
    store.put("f", b"old")
    store.put("g", b"1")
    async with with_ttl(store, MetadataConfig(INDEFINITE, INDEFINITE)) as mounted:
        await mounted.names()
        attrs = await mounted.walk("f")
        await trio.sleep(1000)
        store.put("f", b"newer")
        with pytest.raises(ObjectChanged):
            await mounted.fs.open(attrs.ino)
        store.counts.clear()
        await mounted.walk("g")
        assert not store.counts
        assert await mounted.read_file("f") == b"newer"
        sizes: list[int] = []
        handle = await mounted.fs.opendir(ROOT)
        await mounted.fs.readdir(handle, 0, lambda _name, attrs, _next: sizes.append(attrs.size) is None)
        mounted.fs.releasedir(handle)
        assert sizes == [5, 1]


async def test_a_revalidating_open_asks_s3_whatever_is_known(autojump_clock: object) -> None:
    """Unchanged: one LIST more. Changed: stale, then the new version. Gone: stale, and then not found."""
    store = FakeStore()
    store.put("f", b"old")
    async with with_ttl(store, MetadataConfig(INDEFINITE, INDEFINITE)) as mounted:
        await mounted.names()
        old = await mounted.walk("f")
        await trio.sleep(1)
        mounted.fs.release(await mounted.fs.open(old.ino, revalidate=True))
        assert store.counts["lists"] == 2
        await trio.sleep(10)
        store.put("f", b"newer")
        with pytest.raises(StaleInode):
            await mounted.fs.open(old.ino, revalidate=True)
        new = await mounted.walk("f")
        handle = await mounted.fs.open(new.ino, revalidate=True)
        assert await mounted.read(handle, 0, 10) == b"newer"
        mounted.fs.release(handle)
        await trio.sleep(10)
        store.delete("f")
        with pytest.raises(StaleInode):
            await mounted.fs.open(new.ino, revalidate=True)
        assert (await mounted.fs.lookup(ROOT, b"f")).ino == 0
        assert await mounted.names() == []
        assert mounted.fs.statistics().open_files == 0


async def test_a_revalidating_open_does_not_join_an_older_question(autojump_clock: object) -> None:
    """An answer that was on its way before the open may be too old for it; those that start together share one."""
    store = FakeStore(latency_s=2)
    store.put("f", b"1")
    async with with_ttl(store, MetadataConfig(TimeToLive(5), TimeToLive(5))) as mounted:
        attrs = await mounted.walk("f")
        await trio.sleep(5)
        store.counts.clear()

        async def revalidate() -> None:
            mounted.fs.release(await mounted.fs.open(attrs.ino, revalidate=True))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(mounted.walk, "f")
            await trio.sleep(1)
            for _ in range(3):
                nursery.start_soon(revalidate)
        assert store.counts["lists"] == 2


@pytest.mark.parametrize("is_ordered", [True, False])
async def test_hidden_and_shadowed_keys_are_the_same_with_and_without_a_listing(
    autojump_clock: object, *, is_ordered: bool
) -> None:
    """What a whole listing says of a name is what a look-up of its own says."""
    store = FakeStore(is_ordered=is_ordered)
    for key in ("a", "a/x", "a-", "b//x", "c/", "../x", "é", "a.txt"):
        store.put(key, b"1")
    probes = ["a", "a-", "b", "c", "é", "a.txt", "x", "a.tx", "b-"]
    answers = []
    for is_listed in (False, True):
        async with with_ttl(store) as mounted:
            if is_listed:
                await mounted.names()
                store.counts.clear()
            answers.append([(await mounted.fs.lookup(ROOT, name.encode())).ino for name in probes])
    assert answers[0] == answers[1]
    assert answers[0].count(0) == 3
    assert not store.counts


async def test_the_probe_of_the_bucket_is_the_roots_listing(
    autojump_clock: object, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    """A first page that is all of the root answers ls without a request, and says which keys it hides."""
    store = FakeStore()
    for key in ("a", "/b"):
        store.put(key, b"1")
    cache = MetadataCache(trio.current_time, CONFIG)
    lister = DirectoryLister(store, cache, nursery)
    lister.remember_page("", await store.list_page(""), cache.now())
    store.counts.clear()
    handle = lister.open("")
    assert [entry.name for entry in await lister.entries_from(handle, 0)] == ["a"]
    assert not store.counts
    assert len(caplog.records) == 1
    assert "'/'" in caplog.text


async def test_a_first_page_with_more_to_come_is_no_listing(autojump_clock: object, nursery: trio.Nursery) -> None:
    """A probe that saw a part of the root says nothing about the rest."""
    store = FakeStore()
    store.max_page = 1
    for key in ("a", "b"):
        store.put(key, b"1")
    cache = MetadataCache(trio.current_time, CONFIG)
    lister = DirectoryLister(store, cache, nursery)
    lister.remember_page("", await store.list_page(""), cache.now())
    assert cache.get("b") is None
    handle = lister.open("")
    assert [entry.name for entry in await lister.entries_from(handle, 0)] == ["a", "b"]


async def test_a_refresh_finds_a_file_in_a_new_directory(autojump_clock: object) -> None:
    """A refresh of a path shows it, though the directory that it is in was absent, or a file, when it was listed."""
    store = FakeStore()
    for key in ("x", "file"):
        store.put(key, b"1")
    async with with_ttl(store) as mounted:
        await mounted.names()
        for path in ("new/a/b", "file/b"):
            with pytest.raises(FileSystemError):
                await mounted.walk(path)
            store.put(path, b"22")
            await trio.sleep(0.1)
            await mounted.fs.refresh(path)
            assert (await mounted.walk(path)).size == 2
