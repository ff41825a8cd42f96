"""Names of a directory that nobody listed: after a few look-ups it is listed in the background."""

import pytest
import trio

from s3mount.cache.metadata import MetadataConfig
from s3mount.errors import NameNotFound, StoreError, StoreFailure
from tests.fs.harness import Mounted, file_system
from tests.fs.trees import FOREVER, MINIMAL_MODE, SortedStore, tree
from tests.support.fake_store import FakeStore, FaultyStore

both_modes = pytest.mark.parametrize("config", [FOREVER, MINIMAL_MODE], ids=["forever", "minimal"])


async def open_all(mounted: Mounted, keys: list[str]) -> None:
    """Open and close each path; the kernel knows the directory, and asks for the name."""
    directory = (await mounted.walk(keys[0].rpartition("/")[0])).ino
    for key in keys:
        attrs = await mounted.fs.lookup(directory, key.rpartition("/")[2].encode())
        mounted.fs.release(await mounted.fs.open(attrs.ino))


@both_modes
@pytest.mark.parametrize("names", [1000, 10_000])
async def test_opening_many_names_of_one_directory(autojump_clock: object, config: MetadataConfig, names: int) -> None:
    """A thousand opens cost their GETs, the pages of the directory and a few LISTs more, and no HEAD."""
    keys = tree(1, names)
    store = SortedStore(keys)
    async with file_system(store, metadata=config) as mounted:
        await open_all(mounted, keys[:: names // 1000])
        pages = names // 1000
        assert store.counts["lists"] <= 2 * pages + 12
        assert (store.counts["heads"], store.counts["gets"]) == (0, 1000)


@both_modes
async def test_three_misses_list_nothing_and_the_fourth_does(autojump_clock: object, config: MetadataConfig) -> None:
    """Three names are a LIST each; with the fourth comes one of the directory."""
    keys = tree(1, 500)
    store = SortedStore(keys)
    async with file_system(store, metadata=config) as mounted:
        await open_all(mounted, keys[:3])
        assert store.counts["lists"] == 1 + 3
        await open_all(mounted, keys[3:4])
        await trio.sleep(0.1)
        assert store.counts["lists"] == 1 + 4 + 1
        await open_all(mounted, keys[4:400])
        assert (store.counts["lists"], store.counts["heads"]) == (6, 0)


@both_modes
async def test_five_names_of_a_huge_directory(autojump_clock: object, config: MetadataConfig) -> None:
    """A directory of 2,500 pages of which five names are wanted costs a bounded number of LISTs, and no more later."""
    keys = tree(1, 50_000)
    store = SortedStore(keys, page=20)
    async with file_system(store, metadata=config) as mounted:
        await open_all(mounted, keys[::10_000])
        await trio.sleep(5)
        assert store.counts["lists"] <= 1 + 5 * 2 + 40
        before = store.counts["lists"]
        await trio.sleep(300)
        assert store.counts["lists"] == before


async def test_five_names_of_a_huge_directory_without_order(autojump_clock: object) -> None:
    """Also where entries are held back until the listing is whole, it is not read to its end for five names."""
    store = FakeStore(is_ordered=False)
    store.max_page = 5
    keys = tree(1, 1000)
    for key in keys:
        store.put(key, b"1")
    async with file_system(store, metadata=FOREVER) as mounted:
        await open_all(mounted, keys[::200])
        await trio.sleep(5)
    assert store.counts["lists"] <= 1 + 5 * 2 + 40


@both_modes
async def test_missing_names_stay_missing(autojump_clock: object, config: MetadataConfig) -> None:
    """While and after the directory is listed in the background, a name that is not there is not found."""
    store = SortedStore(tree(1, 50), page=10)
    async with file_system(store, metadata=config) as mounted:
        for number in range(20):
            with pytest.raises(NameNotFound):
                await mounted.walk(f"d00000/none{number}")
        assert store.counts["heads"] == 0
        before = store.counts["lists"]
        with pytest.raises(NameNotFound):
            await mounted.walk("d00000/none99")
        assert store.counts["lists"] == before + (config is MINIMAL_MODE)


@both_modes
async def test_a_name_that_came_during_the_listing_is_found(autojump_clock: object, config: MetadataConfig) -> None:
    """A listing under way answers for what it saw, never that something is not there."""
    store = SortedStore(tree(1, 500), page=10)
    async with file_system(store, metadata=config) as mounted:
        await open_all(mounted, tree(1, 500)[:4])
        store.put("d00000/f00000-new", b"1")
        await open_all(mounted, ["d00000/f00000-new", "d00000/f00499"])


@both_modes
async def test_a_listing_that_fails_in_the_background_harms_nobody(
    autojump_clock: object, config: MetadataConfig
) -> None:
    """Names are found one by one as before, and the directory is not listed again within a minute."""
    inner = SortedStore(tree(1, 200))
    listed: list[float] = []

    def fault(operation: str, key: str, _call: int) -> StoreError | None:
        if operation == "list" and key == "d00000/":
            listed.append(trio.current_time())
            return StoreFailure("broken")
        return None

    keys = tree(1, 200)
    async with file_system(FaultyStore(inner, fault), metadata=config) as mounted:
        await open_all(mounted, keys[:50])
        assert len(listed) == 1
        assert inner.counts["gets"] == 50
        await trio.sleep(61)
        await open_all(mounted, keys[50:100])
        assert len(listed) == 2


async def test_not_again_within_a_minute(autojump_clock: object) -> None:
    """A directory whose listing ended because nobody paid for more is left alone for a minute."""
    keys = tree(1, 2000)
    store = SortedStore(keys, page=10)
    async with file_system(store) as mounted:
        await open_all(mounted, keys[::500])
        await trio.sleep(11)
        store.counts.clear()
        await open_all(mounted, keys[1999:1900:-10])
        assert store.counts["lists"] == 1 + 10
