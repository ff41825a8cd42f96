"""One listing for several handles: what is shared, what is not, and what is left of one that failed."""

from dataclasses import dataclass, field

import pytest
import trio

from s3mount.cache import metadata
from s3mount.cache.metadata import MetadataConfig
from s3mount.errors import ObjectChanged, StoreError, StoreThrottled
from tests.fs.harness import ROOT, Mounted, file_system
from tests.fs.trees import A_MINUTE, FOREVER, LATENCY_S, MINIMAL_MODE, SortedStore, pages
from tests.support.fake_store import FakeStore, FaultyStore

both_modes = pytest.mark.parametrize("config", [FOREVER, MINIMAL_MODE], ids=["forever", "minimal"])


@dataclass
class Reader:
    """One handle on the root, read a reply at a time; `ages` are what the kernel is told of each entry."""

    mounted: Mounted
    handle: int
    names: list[str] = field(default_factory=list)
    ttls: list[float] = field(default_factory=list)

    @classmethod
    async def open(cls, mounted: Mounted) -> "Reader":
        return cls(mounted, await mounted.fs.opendir(ROOT))

    async def read(self) -> bool:
        """One readdir; False at the end."""
        before = len(self.names)

        def emit(name: bytes, attrs: object, _next: int) -> bool:
            self.names.append(name.decode())
            self.ttls.append(attrs.ttl_s)
            return True

        await self.mounted.fs.readdir(self.handle, before, emit)
        return len(self.names) > before

    async def read_all(self) -> list[str]:
        while await self.read():
            pass
        return self.names

    def close(self) -> None:
        self.mounted.fs.releasedir(self.handle)


def flat(count: int, page: int = 10) -> SortedStore:
    return SortedStore([f"f{n:06}" for n in range(count)], page=page)


@both_modes
async def test_two_handles_share_a_listing_with_a_ttl(autojump_clock: object, config: MetadataConfig) -> None:
    """Two handles that start at once cost the pages once with a TTL, and twice without."""
    store = flat(80)
    async with file_system(store, metadata=config) as mounted:
        readers = [await Reader.open(mounted) for _ in range(2)]
        async with trio.open_nursery() as nursery:
            for reader in readers:
                nursery.start_soon(reader.read_all)
        assert [reader.names for reader in readers] == [sorted(store.objects)] * 2
        assert store.counts == {"lists": 8 if config is FOREVER else 16}
        for reader in readers:
            reader.close()


@both_modes
async def test_one_closes_and_the_other_goes_on(autojump_clock: object, config: MetadataConfig) -> None:
    """A handle that is closed in the middle takes no page from the other; one that comes late sees everything."""
    store = flat(80)
    async with file_system(store, metadata=config) as mounted:
        first, second = await Reader.open(mounted), await Reader.open(mounted)
        await first.read()
        await second.read()
        await first.read()
        first.close()
        late = await Reader.open(mounted)
        await late.read()
        assert await second.read_all() == sorted(store.objects)
        second.close()
        assert await late.read_all() == sorted(store.objects)
        late.close()
        assert mounted.fs.statistics().directories.open == 0


async def test_a_contradicted_listing_is_not_joined(autojump_clock: object) -> None:
    """Once an open found that a file changed, a handle that starts lists anew and sees what is there now."""
    store = flat(60)
    async with file_system(store, metadata=A_MINUTE) as mounted:
        early = await Reader.open(mounted)
        await early.read()
        attrs = await mounted.walk("f000001")
        store.put("f000001", b"22")
        store.put("a-new", b"1")
        with pytest.raises(ObjectChanged):
            await mounted.read(await mounted.fs.open(attrs.ino), 0, 1)
        late = await Reader.open(mounted)
        assert "a-new" in await late.read_all()
        assert (await mounted.walk("f000001")).size == 2
        early.close()
        late.close()
        again = await Reader.open(mounted)
        assert "a-new" in await again.read_all()
        again.close()


@both_modes
async def test_a_directory_larger_than_the_limit(
    autojump_clock: object, config: MetadataConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lists completely, and a stat of each name in order costs a LIST for each thousand, not one for each."""
    monkeypatch.setattr(metadata, "MAX_ENTRIES", 1500)
    monkeypatch.setattr(metadata, "MAX_MINIMAL_ENTRIES", 1500)
    store = flat(6000, page=1000)
    async with file_system(store, metadata=config) as mounted:
        reader = await Reader.open(mounted)
        names = list(await reader.read_all())
        reader.close()
        assert names == sorted(store.objects)
        await trio.sleep(2)
        store.counts.clear()
        for name in names:
            await mounted.fs.lookup(ROOT, name.encode())
        assert 0 < store.counts["lists"] <= 2 * pages(6000) + 4
        assert store.counts["heads"] == 0


@both_modes
@pytest.mark.parametrize("times", [1, 3])
async def test_a_throttled_listing_says_so_and_works_again(
    autojump_clock: object, config: MetadataConfig, times: int
) -> None:
    """Each readdir that S3 throttled fails, the next goes on, and nothing of it is kept as the directory."""
    inner = flat(30)
    store = FaultyStore(inner, lambda _op, _key, call: StoreThrottled("slow down") if 1 < call <= 1 + times else None)
    async with file_system(store, metadata=config) as mounted:
        reader = await Reader.open(mounted)
        failures = 0
        while len(reader.names) < 30:
            try:
                await reader.read()
            except StoreError:
                failures += 1
                assert mounted.fs.statistics().metadata.listings == 0
        assert (failures, reader.names) == (times, sorted(inner.objects))
        reader.close()


@pytest.mark.parametrize(
    "names",
    [("0", "a", "a-1", "a-2", "a-3", "a0", "b", "c"), ("0", "a", "a-1", "a-2/x", "a-3", "a-4/x", "a-5", "b", "c")],
    ids=["first of its page", "behind another of its page"],
)
@pytest.mark.parametrize("is_ordered", [True, False])
async def test_an_entry_that_was_held_back_is_as_old_as_its_page(
    autojump_clock: object, names: tuple[str, ...], *, is_ordered: bool
) -> None:
    """A file that might be shadowed comes out with a later page, but its time began with the one it was on."""
    store = FakeStore(is_ordered=is_ordered, latency_s=LATENCY_S)
    store.max_page = 2
    for name in names:
        store.put(name, b"1")
    async with file_system(store, metadata=A_MINUTE) as mounted:
        reader = await Reader.open(mounted)
        begun = trio.current_time()
        await reader.read()
        await trio.sleep(20)
        while await reader.read():
            oldest = 60 - (trio.current_time() - begun)
            if "a" in reader.names:
                assert reader.ttls[reader.names.index("a")] <= oldest + LATENCY_S
                break
        assert "a" in reader.names
        reader.close()


async def test_what_is_kept_of_a_hundred_thousand_names_is_packed(autojump_clock: object) -> None:
    """A listing of 100,000 names is kept once, and answers for each of them and for no other."""
    store = flat(100_000, page=1000)
    async with file_system(store, metadata=FOREVER) as mounted:
        reader = await Reader.open(mounted)
        assert len(await reader.read_all()) == 100_000
        reader.close()
        kept = mounted.fs.statistics().metadata
        assert (kept.records, kept.listings, kept.listed_names) == (0, 1, 100_000)
        store.counts.clear()
        for number in range(0, 100_000, 997):
            await mounted.walk(f"f{number:06}")
        assert (await mounted.fs.lookup(ROOT, b"none")).ino == 0
        assert store.counts == {}


@both_modes
async def test_a_cancelled_readdir_loses_nothing(autojump_clock: object, config: MetadataConfig) -> None:
    """A reader that is cancelled while it waits for a page leaves it to the next call."""
    store = flat(40)
    async with file_system(store, metadata=config) as mounted:
        reader = await Reader.open(mounted)
        for _ in range(200):
            with trio.move_on_after(LATENCY_S / 3):
                await reader.read()
        assert reader.names == sorted(store.objects)
        assert store.counts["lists"] == pages(40, 10)
        reader.close()
