"""The file system's verbs over a store in memory: names, requests, consistency, errors."""

import stat

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from s3mount.core.listing import ListPage
from s3mount.errors import (
    ArchivedObject,
    BadCredentials,
    BadHandle,
    InvalidName,
    IsADirectory,
    NameNotFound,
    NotADirectory,
    ObjectChanged,
    StaleInode,
    StoreError,
    StoreFailure,
)
from s3mount.store.base import MAX_PAGE
from tests.fs.harness import OWNER, ROOT, file_system
from tests.support.fake_store import FakeStore, FaultyStore


async def test_lookup_tells_files_from_directories_in_one_list(autojump_clock: object) -> None:
    """One LIST decides what a name is, for a file, a directory and a name that is neither."""
    store = FakeStore()
    store.put("dir/x", b"1")
    store.put("dir-1/x", b"1")
    store.put("file", b"12345")
    async with file_system(store) as mounted:
        attrs = await mounted.walk("file")
        assert stat.S_ISREG(attrs.mode)
        assert (attrs.size, attrs.uid, attrs.nlink) == (5, OWNER.uid, 1)
        assert stat.S_ISDIR((await mounted.walk("dir")).mode)
        with pytest.raises(NameNotFound):
            await mounted.walk("di")
        assert store.counts == {"lists": 3}


async def test_a_name_cut_off_by_a_full_page_costs_a_second_list(autojump_clock: object) -> None:
    """A directory behind more than a page of names with the same start is found by a second LIST."""
    store = FakeStore()
    for n in range(150):
        store.put(f"train-{n:04d}", b"1")
    store.put("train/x", b"1")
    async with file_system(store) as mounted:
        assert stat.S_ISDIR((await mounted.walk("train")).mode)
        assert store.counts["lists"] == 2


class BlankPages(FakeStore):
    """Sends an empty page before the first, as some compatible servers do."""

    async def list_page(
        self,
        prefix: str,
        *,
        delimiter: str = "/",
        token: str | None = None,
        max_keys: int = MAX_PAGE,
        start_after: str = "",
    ) -> ListPage:
        if token is None:
            return ListPage((), (), "blank")
        after = None if token == "blank" else token
        return await super().list_page(
            prefix, delimiter=delimiter, token=after, max_keys=max_keys, start_after=start_after
        )


async def test_an_empty_page_is_not_taken_for_absence(autojump_clock: object) -> None:
    """An empty page that is not the last says nothing: files and directories behind it are found."""
    store = BlankPages()
    store.put("dir/x", b"1")
    store.put("file", b"12")
    async with file_system(store) as mounted:
        assert stat.S_ISDIR((await mounted.walk("dir")).mode)
        assert (await mounted.walk("file")).size == 2
        with pytest.raises(NameNotFound):
            await mounted.walk("nothing")
        assert await mounted.names() == ["dir", "file"]


async def test_an_unordered_store_is_resolved_by_list_and_head(autojump_clock: object) -> None:
    """Where a page proves nothing about what it lacks, HEAD decides."""
    store = FakeStore(is_ordered=False)
    store.put("dir/x", b"1")
    store.put("file", b"1")
    async with file_system(store) as mounted:
        assert stat.S_ISDIR((await mounted.walk("dir")).mode)
        assert stat.S_ISREG((await mounted.walk("file")).mode)
        with pytest.raises(NameNotFound):
            await mounted.walk("nothing")
        assert sorted(await mounted.names()) == ["dir", "file"]


async def test_a_listing_answers_the_lookups_that_follow(autojump_clock: object) -> None:
    """Within a second of a listing, stat of every listed name costs nothing; later it asks again."""
    store = FakeStore()
    for n in range(2500):
        store.put(f"f{n:04d}", b"1")
    async with file_system(store) as mounted:
        names = await mounted.names()
        assert len(names) == 2500
        assert store.counts == {"lists": 3}
        for name in names:
            await mounted.walk(name)
        assert store.counts == {"lists": 3}
        await trio.sleep(1.1)
        await mounted.walk("f0000")
        assert store.counts == {"lists": 4}


@pytest.mark.parametrize("batch", [1, 3, 1000])
@pytest.mark.parametrize("page", [1, 2, 7, 1000])
async def test_any_page_and_any_reply_size_list_the_same(autojump_clock: object, page: int, batch: int) -> None:
    """Page size and reply size change nothing about the set of names."""
    store = FakeStore()
    store.max_page = page
    for key in ("a", "a-1", "a.txt", "a/x", "b", "b-/y", "c/", "c/z", "d"):
        store.put(key, b"1")
    async with file_system(store) as mounted:
        assert sorted(await mounted.names(batch=batch)) == ["a", "a-1", "a.txt", "b", "b-", "c", "d"]


async def test_offsets_stay_and_rewinding_lists_anew(autojump_clock: object) -> None:
    """An old offset gives the same entries again; offset 0 gives what the bucket has now."""
    store = FakeStore()
    for name in "abcde":
        store.put(name, b"1")
    async with file_system(store) as mounted:
        handle = await mounted.fs.opendir(ROOT)

        async def names_from(offset: int) -> list[str]:
            found: list[str] = []
            await mounted.fs.readdir(handle, offset, lambda name, _attrs, _next: found.append(name.decode()) is None)
            return found

        assert await names_from(0) == list("abcde")
        store.put("aa", b"1")
        assert await names_from(3) == ["d", "e"]
        assert await names_from(1) == ["b", "c", "d", "e"]
        assert await names_from(5) == []
        assert await names_from(0) == ["a", "aa", "b", "c", "d", "e"]
        mounted.fs.releasedir(handle)


async def test_a_failed_page_fails_once(autojump_clock: object) -> None:
    """A LIST that fails in the middle fails that readdir; the next call goes on from there."""
    store = FakeStore()
    store.max_page = 2
    for name in "abcde":
        store.put(name, b"1")

    def fault(operation: str, _key: str, n: int) -> StoreError | None:
        return StoreFailure("page lost") if operation == "list" and n == 2 else None

    async with file_system(FaultyStore(store, fault)) as mounted:
        handle = await mounted.fs.opendir(ROOT)
        found: list[str] = []

        def emit(name: bytes, _attrs: object, _next: int) -> bool:
            found.append(name.decode())
            return True

        await mounted.fs.readdir(handle, 0, emit)
        with pytest.raises(StoreFailure):
            await mounted.fs.readdir(handle, len(found), emit)
        for _ in range(2):
            await mounted.fs.readdir(handle, len(found), emit)
        assert found == list("abcde")
        mounted.fs.releasedir(handle)


async def test_references_are_counted_only_for_taken_entries(autojump_clock: object) -> None:
    """An entry that did not fit in the reply leaves no inode behind; forget frees the others."""
    store = FakeStore()
    for name in "abc":
        store.put(name, b"1")
    async with file_system(store) as mounted:
        handle = await mounted.fs.opendir(ROOT)
        taken: list[int] = []

        def emit(_name: bytes, attrs: object, _next: int) -> bool:
            if len(taken) == 2:
                return False
            taken.append(attrs.ino)  # type: ignore[attr-defined]
            return True

        await mounted.fs.readdir(handle, 0, emit)
        assert mounted.fs.statistics().inodes.lookups == 2
        assert mounted.fs.statistics().inodes.inodes == 3
        mounted.fs.forget([(ino, 1) for ino in taken])
        assert mounted.fs.statistics().inodes.inodes == 1
        mounted.fs.releasedir(handle)


async def test_a_new_version_is_a_new_inode_and_an_open_file_keeps_the_old(autojump_clock: object) -> None:
    """After a replacement the name gives another inode; the open handle shows and reads the old version."""
    store = FakeStore()
    store.put("f", b"old")
    async with file_system(store) as mounted:
        old = await mounted.walk("f")
        handle = await mounted.fs.open(old.ino)
        store.put("f", b"newer")
        await trio.sleep(1.1)
        new = await mounted.walk("f")
        assert (new.ino != old.ino, new.size) == (True, 5)
        assert (await mounted.fs.getattr(old.ino)).size == 3
        assert await mounted.read(handle, 0, 10) == b"old"
        mounted.fs.release(handle)
        with pytest.raises(StaleInode):
            await mounted.fs.getattr(old.ino)


async def test_an_unchanged_object_keeps_its_inode(autojump_clock: object) -> None:
    """The same version has the same number after the record expired, and in another daemon."""
    store = FakeStore()
    store.put("d/f", b"1")
    numbers = set()
    for _ in range(2):
        async with file_system(store) as mounted:
            for _ in range(2):
                numbers.add((await mounted.walk("d/f")).ino)
                await trio.sleep(1.1)
    assert len(numbers) == 1


async def test_a_change_found_in_open_is_stale_and_the_next_lookup_sees_it(autojump_clock: object) -> None:
    """Open of a replaced small file says stale at once, and looking the name up again works at once."""
    store = FakeStore()
    store.put("f", b"old")
    async with file_system(store) as mounted:
        attrs = await mounted.walk("f")
        store.put("f", b"new")
        with pytest.raises(ObjectChanged):
            await mounted.fs.open(attrs.ino)
        assert await mounted.read_file("f") == b"new"
        assert mounted.fs.statistics().open_files == 0


async def test_a_big_file_known_to_be_gone_is_not_opened_again(autojump_clock: object) -> None:
    """After a read found the version gone, open says stale at once, so that the kernel looks up anew."""
    store = FakeStore()
    store.put("f", b"x" * 20_000_000)
    async with file_system(store) as mounted:
        attrs = await mounted.walk("f")
        handle = await mounted.fs.open(attrs.ino)
        store.put("f", b"y" * 20_000_000)
        with pytest.raises(ObjectChanged):
            await mounted.fs.read(handle, 15_000_000, 10)
        mounted.fs.release(handle)
        with pytest.raises(StaleInode):
            await mounted.fs.open(attrs.ino)
        assert (await mounted.read_file("f", 1 << 20))[:1] == b"y"


async def test_entries_are_handed_on_before_the_next_page(autojump_clock: object) -> None:
    """A readdir that has entries does not wait for another LIST."""
    store = FakeStore()
    store.max_page = 2
    for name in "abcd":
        store.put(name, b"1")
    async with file_system(store) as mounted:
        handle = await mounted.fs.opendir(ROOT)
        found: list[bytes] = []
        await mounted.fs.readdir(handle, 0, lambda name, _attrs, _next: found.append(name) is None)
        assert (found, store.counts["lists"]) == ([b"a"], 1)  # `b/` could still follow
        mounted.fs.releasedir(handle)


async def test_what_another_client_deletes_is_gone_within_a_second(autojump_clock: object) -> None:
    """A deleted file, and a directory whose last key went, are not found a second later."""
    store = FakeStore()
    store.put("d/f", b"1")
    async with file_system(store) as mounted:
        directory = await mounted.walk("d")
        store.delete("d/f")
        await trio.sleep(1.1)
        with pytest.raises(NameNotFound):
            await mounted.walk("d/f")
        with pytest.raises(NameNotFound):
            await mounted.fs.getattr(directory.ino)


async def test_a_file_hidden_by_a_directory_comes_back(autojump_clock: object) -> None:
    """`a` is a directory while `a/b` exists, and the file again when it is gone."""
    store = FakeStore()
    store.put("a", b"file")
    store.put("a/b", b"1")
    async with file_system(store) as mounted:
        assert stat.S_ISDIR((await mounted.walk("a")).mode)
        assert await mounted.names() == ["a"]
        store.delete("a/b")
        await trio.sleep(1.1)
        assert await mounted.read_file("a") == b"file"


@pytest.mark.parametrize("name", [b".", b"..", b"", b"a/b", b"a\0b", b"\xff"])
async def test_impossible_names_cost_no_request(autojump_clock: object, name: bytes) -> None:
    """A name that no key can have is refused without asking S3."""
    store = FakeStore()
    async with file_system(store) as mounted:
        with pytest.raises(InvalidName):
            await mounted.fs.lookup(ROOT, name)
    assert not store.counts


async def test_a_name_too_long_for_a_key_is_not_found(autojump_clock: object) -> None:
    """1,024 bytes are looked up; 1,025 cannot exist and cost no request."""
    store = FakeStore()
    store.put("k" * 1024, b"1")
    async with file_system(store) as mounted:
        assert (await mounted.walk("k" * 1024)).size == 1
        with pytest.raises(NameNotFound):
            await mounted.walk("k" * 1025)
        assert store.counts["lists"] == 1


async def test_wrong_kinds_are_refused(autojump_clock: object) -> None:
    """Directories are not opened, files are not listed, handles end."""
    store = FakeStore()
    store.put("f", b"1")
    store.put("d/x", b"1")
    async with file_system(store) as mounted:
        file, directory = await mounted.walk("f"), await mounted.walk("d")
        with pytest.raises(IsADirectory):
            await mounted.fs.open(directory.ino)
        with pytest.raises(NotADirectory):
            await mounted.fs.opendir(file.ino)
        with pytest.raises(NotADirectory):
            await mounted.fs.lookup(file.ino, b"x")
        with pytest.raises(StaleInode):
            await mounted.fs.getattr(12345)
        for call in (mounted.fs.release, mounted.fs.releasedir):
            with pytest.raises(BadHandle):
                call(99)


async def test_an_archived_object_has_no_mode_and_is_not_opened(autojump_clock: object) -> None:
    """An archived object shows mode 0000, and open says why without a GET."""
    store = FakeStore()
    store.put("f", b"1", storage_class="GLACIER")
    async with file_system(store) as mounted:
        attrs = await mounted.walk("f")
        assert stat.S_IMODE(attrs.mode) == 0
        with pytest.raises(ArchivedObject, match=r"GLACIER.*restore"):
            await mounted.fs.open(attrs.ino)
        assert store.counts["gets"] == 0


async def test_a_denied_lookup_fails_everybody_who_waited_for_it(autojump_clock: object) -> None:
    """One failed LIST is one error for each caller that joined it, and the next call asks again."""
    store = FakeStore(latency_s=1)
    store.put("f", b"1")

    def fault(_operation: str, _key: str, n: int) -> StoreError | None:
        return BadCredentials("no") if n == 1 else None

    slow = SlowFault(FaultyStore(store, fault))
    failures = []
    async with file_system(slow) as mounted:

        async def look() -> None:
            try:
                await mounted.walk("f")
            except BadCredentials as error:
                failures.append(error)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(look)
            await wait_all_tasks_blocked()
        assert len(failures) == 3
        assert (await mounted.walk("f")).size == 1


class SlowFault(FaultyStore):
    """Fails after a wait, so that others can join the question."""

    def __init__(self, faulty: FaultyStore) -> None:
        super().__init__(faulty._store, faulty._fault)

    async def list_page(self, *args: object, **kwargs: object) -> object:  # type: ignore[override]
        await trio.sleep(1)
        return await super().list_page(*args, **kwargs)  # type: ignore[arg-type]
