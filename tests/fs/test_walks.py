"""Programs that walk a tree: how many LISTs it costs, and that what they see is whole and new enough."""

import random
from collections.abc import Callable
from functools import partial

import pytest
import trio

from s3mount.cache.metadata import MetadataCache, MetadataConfig
from s3mount.core.tree import TreeDirectory
from s3mount.errors import StoreError, StoreFailure
from s3mount.fs.walks import SubtreeWalks
from tests.fs.harness import ROOT, Mounted, file_system
from tests.fs.trees import (
    A_MINUTE,
    FOREVER,
    MINIMAL_MODE,
    SortedStore,
    go_into,
    os_walk,
    pages,
    paths_of,
    read_directory,
    tree,
)
from tests.support.fake_store import FakeStore, FaultyStore

both_modes = pytest.mark.parametrize("config", [FOREVER, MINIMAL_MODE], ids=["forever", "minimal"])


def nested(*widths: int) -> list[str]:
    keys = [""]
    for depth, width in enumerate(widths):
        is_leaf = depth == len(widths) - 1
        keys = [f"{key}{'f' if is_leaf else 'd'}{n:03}{'' if is_leaf else '/'}" for key in keys for n in range(width)]
    return keys


async def find(mounted: Mounted, ino: int = ROOT, path: str = "") -> list[str]:
    """As find does: the parent is listed whole, then its children in that order, without a stat of each."""
    entries = await read_directory(mounted, ino)
    paths = [path + entry.name + "/" * entry.is_directory for entry in entries]
    for entry in entries:
        if entry.is_directory:
            attrs = await mounted.fs.lookup(ino, entry.name.encode())
            paths += await find(mounted, attrs.ino, path + entry.name + "/")
    return paths


async def image_folder(mounted: Mounted) -> list[str]:
    """As torchvision does: sorted class names, then os.walk of each, sorted."""
    classes = sorted(entry.name for entry in await read_directory(mounted, ROOT))
    paths = [name + "/" for name in classes]
    for name in classes:
        paths += await os_walk(mounted, await go_into(mounted, ROOT, name), name + "/", sorted)
    return paths


@both_modes
@pytest.mark.parametrize(
    ("keys", "page"),
    [
        (tree(1000, 100), 1000),
        (tree(300, 100), 1000),
        (nested(10, 10, 100), 1000),
        (nested(20, 20, 20), 1000),
        (tree(5, 5000), 1000),
        (tree(12, 500), 100),
    ],
    ids=["1000x100", "300x100", "10x10x100", "20x20x20", "big leaves", "leaves of five pages"],
)
async def test_a_walk_costs_the_pages_of_the_tree(
    autojump_clock: object, config: MetadataConfig, keys: list[str], page: int
) -> None:
    """At most 1.2 LISTs for each page of keys, and a few before it is recognised; no HEAD; a second none."""
    store = SortedStore(keys, page=page)
    async with file_system(store, metadata=config) as mounted:
        assert sorted(await os_walk(mounted)) == paths_of(keys)
        assert store.counts["lists"] <= 1.2 * pages(len(keys), page) + 10
        if len(keys) == 100_000:
            assert store.counts["lists"] <= 1.2 * pages(len(keys), page)
        assert store.counts["heads"] == 0
        if config is FOREVER:
            store.counts.clear()
            assert sorted(await os_walk(mounted)) == paths_of(keys)
            assert store.counts == {}


@both_modes
@pytest.mark.parametrize(
    "program", [find, image_folder, partial(os_walk, order=sorted)], ids=["find", "torch", "sorted"]
)
async def test_other_programs_are_recognised(
    autojump_clock: object, config: MetadataConfig, program: Callable[[Mounted], object]
) -> None:
    """find and ImageFolder cost as little as os.walk."""
    store = SortedStore(tree(300, 100))
    async with file_system(store, metadata=config) as mounted:
        assert sorted(await program(mounted)) == paths_of(store.objects)
        assert (store.counts["lists"] <= 40, store.counts["heads"]) == (True, 0)


@both_modes
@pytest.mark.parametrize("apart", [0, 75], ids=["together", "apart"])
@pytest.mark.parametrize("programs", [2, 4])
async def test_several_programs_walk_one_tree(
    autojump_clock: object, config: MetadataConfig, programs: int, apart: int
) -> None:
    """With a TTL they share what is listed; in the minimal mode each gets a flat listing of its own."""
    store = SortedStore(tree(300, 100))
    async with file_system(store, metadata=config) as mounted:

        async def walk(start: int) -> None:
            seen: list[str] = []
            await os_walk(mounted, order=lambda names: seen.extend(names) or names[start:] + names[:start])
            assert len(seen) == 300

        async with trio.open_nursery() as nursery:
            for number in range(programs):
                nursery.start_soon(walk, number * apart)
    limit = 60 if config is FOREVER else programs * 36 * (1.4 if apart else 1.1)
    assert store.counts["lists"] <= limit


@both_modes
async def test_every_third_directory(autojump_clock: object, config: MetadataConfig) -> None:
    """A walk that skips two of three directories still costs no more than all pages."""
    store = SortedStore(tree(300, 100))
    async with file_system(store, metadata=config) as mounted:
        assert len(await os_walk(mounted, order=lambda names: names[::3])) == 300 + 100 * 100
    assert store.counts["lists"] <= 1.2 * 30 + 3


@pytest.mark.parametrize("files", [10, 100])
async def test_a_random_order_costs_one_list_a_directory_at_most(autojump_clock: object, files: int) -> None:
    """Jumps are given up: with a TTL, all requests are fewer than the directories and a small constant."""
    for seed in range(2):
        store = SortedStore(tree(200, files))
        async with file_system(store, metadata=FOREVER) as mounted:
            walked = await os_walk(
                mounted, order=lambda names, seed=seed: random.Random(seed).sample(names, len(names))
            )
            assert sorted(walked) == paths_of(store.objects)
        assert store.counts["lists"] <= 201 + 40


async def test_a_random_order_in_the_minimal_mode(autojump_clock: object) -> None:
    """There a stat after a second and the listing are a LIST each; flat listings in vain add a small constant."""
    for seed in range(2):
        store = SortedStore(tree(150, 100))
        async with file_system(store) as mounted:
            walked = await os_walk(
                mounted, order=lambda names, seed=seed: random.Random(seed).sample(names, len(names))
            )
            assert sorted(walked) == paths_of(store.objects)
        assert store.counts["lists"] <= 301 + 40


@both_modes
async def test_a_glob_above_large_trees_wastes_little(autojump_clock: object, config: MetadataConfig) -> None:
    """glob('*/*') over 40 directories with 60 pages below each reads a bounded number of pages in vain."""
    store = SortedStore(nested(40, 60, 10), page=10)
    async with file_system(store, metadata=config) as mounted:
        for entry in await read_directory(mounted, ROOT):
            assert len(await read_directory(mounted, await go_into(mounted, ROOT, entry.name))) == 60
        assert mounted.fs.statistics().directories.walks <= 8
    naive = 4 + 40 * 6 + (40 if config is MINIMAL_MODE else 0)
    assert store.counts["lists"] <= naive * 1.2 + 100


@both_modes
async def test_directories_too_large_to_gain_from_it(autojump_clock: object, config: MetadataConfig) -> None:
    """Directories of 100 pages each are listed by themselves: one try of a few pages is all the waste."""
    store = SortedStore(tree(8, 1000), page=10)
    async with file_system(store, metadata=config) as mounted:
        assert sorted(await os_walk(mounted)) == paths_of(store.objects)
        statistics = mounted.fs.statistics().directories
        assert (statistics.walks, statistics.pages >= 7 * 100) == (1, True)
    assert store.counts["lists"] <= 1.2 * 800 + 60


async def test_a_store_slower_than_the_minimal_mode(autojump_clock: object) -> None:
    """Where a LIST takes longer than an answer is good for, walks are tried once a minute and no more."""
    store = SortedStore(tree(50, 10), latency_s=1.2)
    async with file_system(store) as mounted:
        begun = trio.current_time()
        assert sorted(await os_walk(mounted)) == paths_of(store.objects)
        assert mounted.fs.statistics().directories.walks <= 1 + (trio.current_time() - begun) / 60


ODD_KEYS = [
    *(f"P/{name}/{n}" for name in ("a", "a-1", "a.d", "a0", "b", "b-", "c") for n in range(7)),
    "P/a.txt", "P/b", "P/c/", "P/empty/", "P/d/x/", "P/d/x/y", "P/d/x-1/y", "P/e/e/e/e", "P/z",
]  # fmt: skip
ODD_PATHS = sorted(set(paths_of(ODD_KEYS)) - {"P/b"})


@both_modes
@pytest.mark.parametrize("page", [1, 2, 3, 5, 1000])
@pytest.mark.parametrize("order", [list, sorted, lambda names: names[::-1]], ids=["listed", "sorted", "backwards"])
async def test_odd_neighbours_are_all_there(
    autojump_clock: object, config: MetadataConfig, page: int, order: Callable[[list[str]], list[str]]
) -> None:
    """`a`, `a-1` and `a.txt`, a directory and a file of one name, markers and empty directories: each once."""
    store = SortedStore(ODD_KEYS, page=page)
    async with file_system(store, metadata=config) as mounted:
        for _ in range(2):
            assert sorted(await os_walk(mounted, order=order)) == ODD_PATHS


@both_modes
async def test_hidden_keys_of_a_walk_are_logged_once(
    autojump_clock: object, config: MetadataConfig, caplog: pytest.LogCaptureFixture
) -> None:
    """A key that cannot be shown is told of once for its directory, however it was listed, however often."""
    store = SortedStore([*tree(20, 3), "d00010/x//y", "d00010/.", "d00001/../x"])
    async with file_system(store, metadata=config) as mounted:
        for _ in range(2):
            await os_walk(mounted)
            await trio.sleep(2)
    told = [record.args[1] for record in caplog.records if "cannot be shown" in record.msg]
    assert sorted(told) == ["d00001/", "d00010/", "d00010/x/"]


@both_modes
async def test_an_unordered_store_is_never_walked(autojump_clock: object, config: MetadataConfig) -> None:
    """Nothing is listed flat where the store has no order, and everything is there."""
    store = FakeStore(is_ordered=False)
    store.max_page = 7
    for key in tree(12, 10):
        store.put(key, b"1")
    async with file_system(store, metadata=config) as mounted:
        assert sorted(await os_walk(mounted)) == paths_of(store.objects)
        assert mounted.fs.statistics().directories.walks == 0


class TreeStore(FakeStore):
    """Lists as SeaweedFS does: by directories, one where its name without the slash sorts; StartAfter skips it."""

    def _rank(self, item: str) -> bytes:
        return b"\0".join(part.encode() for part in item.rstrip("/").split("/"))


@both_modes
@pytest.mark.parametrize("page", [3, 20, 1000])
async def test_a_store_with_another_order_is_complete(
    autojump_clock: object, config: MetadataConfig, page: int
) -> None:
    """Where `a/x` comes before `a-1/x`, every directory is whole, whatever the flat listing made of it."""
    store = TreeStore()
    store.max_page = page
    keys = [f"P/{n:02}{end}/{f}" for n in range(12) for end in ("", "-1", ".d") for f in range(5)]
    for key in keys:
        store.put(key, b"1")
    async with file_system(store, metadata=config) as mounted:
        for _ in range(2):
            assert sorted(await os_walk(mounted)) == paths_of(keys)


@both_modes
@pytest.mark.parametrize("period", [3, 5, 7])
async def test_pages_that_fail_harm_nobody(autojump_clock: object, config: MetadataConfig, period: int) -> None:
    """A readdir during which a page failed works or says so, and then works: nothing wrong is kept."""
    inner = SortedStore(tree(40, 10), page=25)
    store = FaultyStore(inner, lambda _op, _key, call: StoreFailure("broken") if call % period == 1 else None)
    async with file_system(store, metadata=config) as mounted:

        async def patiently(directory: int) -> list[str]:
            for _ in range(60):
                try:
                    return [entry.name for entry in await read_directory(mounted, directory)]
                except StoreError:
                    continue
            raise AssertionError("it never worked")

        for name in await patiently(ROOT):
            ino = None
            while ino is None:
                try:
                    ino = await go_into(mounted, ROOT, name)
                except StoreError:
                    continue
            assert await patiently(ino) == [f"f{n:05}" for n in range(10)]


async def test_in_the_minimal_mode_nothing_old_is_served(autojump_clock: object) -> None:
    """A walk at any pace shows what another client did a second ago; a directory listed again is asked for again."""
    store = SortedStore(tree(60, 20), page=100)
    async with file_system(store) as mounted:
        for number, entry in enumerate(await read_directory(mounted, ROOT)):
            ahead = f"d{min(number + 3, 59):05}/new{number}"
            store.put(ahead, b"2")
            await trio.sleep(1.0 if number % 5 == 4 else 0.05)
            ino = await go_into(mounted, ROOT, entry.name)
            shown = {found.name for found in await read_directory(mounted, ino)}
            if number > 8:
                assert {key.split("/")[1] for key in store.objects if key.startswith(entry.name + "/")} - shown == set()
            if number == 30:
                before = store.counts["lists"]
                store.put(f"{entry.name}/again", b"3")
                assert "again" in {found.name for found in await read_directory(mounted, ino)}
                assert store.counts["lists"] == before + 1


async def test_with_a_ttl_a_walk_is_as_old_as_the_ttl_at_most(autojump_clock: object) -> None:
    """What the flat listing read is believed for the TTL from when it was asked for, and no longer."""
    store = SortedStore(tree(60, 20), page=100)
    async with file_system(store, metadata=A_MINUTE) as mounted:
        assert len(await os_walk(mounted)) == 60 * 21
        store.put("d00040/new", b"2")
        walked = await os_walk(mounted)
        assert "d00040/new" not in walked
        await trio.sleep(60)
        assert "d00040/new" in await os_walk(mounted)


@both_modes
async def test_a_reader_whose_walk_is_taken_away(autojump_clock: object, config: MetadataConfig) -> None:
    """Sixteen programs jump about in twelve trees: walks close under readers who wait for a page of them."""
    store = SortedStore([key for top in range(12) for key in tree(40, 10, f"t{top:02}/")], page=20)
    async with file_system(store, metadata=config) as mounted:
        tops = {entry.name: await go_into(mounted, ROOT, entry.name) for entry in await read_directory(mounted, ROOT)}

        async def wander(seed: int) -> None:
            choose = random.Random(seed)
            for _ in range(20):
                top, start = choose.choice(sorted(tops)), choose.randrange(36)
                for number in range(start, start + 4):
                    ino = await go_into(mounted, tops[top], f"d{number:05}")
                    assert len(await read_directory(mounted, ino)) == 10

        async with trio.open_nursery() as nursery:
            for seed in range(16):
                nursery.start_soon(wander, seed)


@both_modes
async def test_walks_that_nobody_follows_are_bounded(autojump_clock: object, config: MetadataConfig) -> None:
    """Twenty walks begun and left hold at most eight flat listings open, and in the end none and nothing in flight."""
    store = SortedStore([key for top in range(20) for key in tree(30, 10, f"t{top:02}/")], page=20)
    async with trio.open_nursery() as nursery:
        cache = MetadataCache(trio.current_time, config)

        def remember(_found: TreeDirectory, _asked_at: float) -> None:
            return

        walks = SubtreeWalks(store, cache, nursery, remember)
        for top in range(20):
            for number in range(3):
                await walks.listing(f"t{top:02}/d{number:05}/")
            walks.check_invariants()
            assert walks.statistics().open <= 8
        await trio.sleep(30)
        assert not nursery.child_tasks
        assert walks.statistics().open == 0
        assert store.counts["lists"] <= 20 * 4
