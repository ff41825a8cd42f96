"""What programs see while the file system's daemons die and are replaced."""

from dataclasses import dataclass, field

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from s3mount.cache.metadata import MetadataConfig
from s3mount.core.attrs import FileAttrs
from s3mount.core.ttl import TimeToLive
from s3mount.errors import BadHandle, ObjectChanged, StaleInode
from s3mount.units import MIB
from tests.fs.harness import ROOT, Mounted
from tests.fs.listing_model import Kernel
from tests.fs.takeover import Succession, succession
from tests.support.fake_store import FakeStore

CONFIGS = (MetadataConfig(), MetadataConfig(TimeToLive(60), TimeToLive(60)))
both_modes = pytest.mark.parametrize("config", CONFIGS, ids=["minimal", "a minute"])
#: `a` may be shadowed until the page that has `a/` or comes behind it, so its place depends on all pages.
KEYS = ("a", "a-1", "a-2/x", "a-3", "a.txt", "d/a", "d/e/a", "d/e/b", "d/f/a", "z")
DIRECTORIES = ("", "a-2", "d", "d/e", "d/f")


def content_of(key: str) -> bytes:
    return f"the content of {key}".encode()


def names_in(path: str) -> set[str]:
    key = path + "/" if path else ""
    return {each[len(key) :].partition("/")[0] for each in KEYS if each.startswith(key)}


def filled(page: int = 1000, *, is_ordered: bool = True) -> FakeStore:
    store = FakeStore(is_ordered=is_ordered)
    store.max_page = page
    for key in KEYS:
        store.put(key, content_of(key))
    return store


@dataclass
class Listing:
    """A directory that a program reads."""

    path: str
    ino: int
    handle: int
    names: list[str] = field(default_factory=list)


class Programs:
    """Programs and the kernel, which lose nothing when a daemon dies."""

    def __init__(self, daemons: Succession) -> None:
        self.daemons = daemons
        self.kernel = Kernel(daemons.fs, trio.current_time)
        self.files: list[tuple[str, int, int]] = []
        self.listings: list[Listing] = []
        self.working: list[tuple[str, int]] = []
        self.is_lost = False

    async def crash(self) -> None:
        await self.daemons.crash()
        self.kernel.fs = self.daemons.fs

    async def step(self, verb: str, number: int, *, is_lost: bool) -> None:
        """One thing a program does; if it is lost, the daemon died before it answered, and the next is asked again."""
        if is_lost:
            files, listings, names = self.files[:], self.listings[:], [each.names[:] for each in self.listings]
            self.is_lost = True
            await getattr(self, verb)(number)
            self.is_lost = False
            self.files, self.listings = files, listings
            for each, shown in zip(listings, names, strict=True):
                each.names = shown
            await self.crash()
        await getattr(self, verb)(number)
        self.daemons.fs.check_invariants()

    async def stat(self, number: int) -> None:
        key = KEYS[number % len(KEYS)]
        assert (await self.kernel.on_path(key, self.kernel.attributes)).size == len(content_of(key))

    async def open(self, number: int) -> None:
        key = KEYS[number % len(KEYS)]

        async def open_it(ino: int) -> None:
            handle = await self.daemons.fs.open(ino)
            self.files.append((key, ino, handle))

        await self.kernel.on_path(key, open_it)
        numbers = [handle for _, _, handle in self.files] + [each.handle for each in self.listings]
        assert len(set(numbers)) == len(numbers)

    async def read(self, number: int) -> None:
        if self.files:
            key, ino, handle = self.files[number % len(self.files)]
            offset, length = number % 20, 1 + number % 7
            read = await self.daemons.mounted.read(handle, offset, length)
            assert bytes(read) == content_of(key)[offset : offset + length]
            attrs = self.daemons.fs.getattr_nowait(ino)  # fstat, without a request
            assert attrs is not None
            assert attrs.size == len(content_of(key))

    async def release(self, number: int) -> None:
        if self.files:
            _, _, handle = self.files.pop(number % len(self.files))
            self.daemons.fs.release(handle)

    async def opendir(self, number: int) -> None:
        path = DIRECTORIES[number % len(DIRECTORIES)]

        async def open_it(ino: int) -> None:
            self.listings.append(Listing(path, ino, await self.daemons.fs.opendir(ino)))

        await self.kernel.on_path(path, open_it)

    async def readdir(self, number: int) -> None:
        if self.listings:
            listing = self.listings[number % len(self.listings)]
            n_before, room = len(listing.names), 1 + number % 3

            def emit(name: bytes, attrs: FileAttrs, next_offset: int) -> bool:
                if len(listing.names) == n_before + room:
                    return False
                listing.names.append(name.decode())
                assert next_offset == len(listing.names)
                if not self.is_lost:
                    self.kernel.take(listing.ino, name, attrs)
                return True

            await self.daemons.fs.readdir(listing.handle, n_before, emit)
            is_at_end = len(listing.names) == n_before
            shown = set(listing.names)
            assert len(shown) == len(listing.names)
            assert shown == names_in(listing.path) if is_at_end else shown <= names_in(listing.path)

    async def releasedir(self, number: int) -> None:
        if self.listings:
            listing = self.listings.pop(number % len(self.listings))
            self.daemons.fs.releasedir(listing.handle)

    async def chdir(self, number: int) -> None:
        path = DIRECTORIES[number % len(DIRECTORIES)]

        async def keep(ino: int) -> None:
            self.working.append((path, ino))

        await self.kernel.on_path(path, keep)

    async def look_up(self, number: int) -> None:
        """What nobody looked up before, and perhaps nobody gets to know."""
        path = DIRECTORIES[number % len(DIRECTORIES)]

        async def in_it(ino: int) -> None:
            for known in sorted(names_in(path)):
                attrs = await self.daemons.fs.lookup(ino, known.encode())
                if not self.is_lost:
                    self.kernel.take(ino, known.encode(), attrs)

        await self.kernel.on_path(path, in_it)

    async def use_working_directory(self, number: int) -> None:
        if self.working:
            path, ino = self.working[number % len(self.working)]
            for name in names_in(path):
                attrs = await self.daemons.fs.lookup(ino, name.encode())
                self.kernel.take(ino, name.encode(), attrs)

    async def forget(self, number: int) -> None:
        """The kernel evicts an inode that nothing uses, with what it knows below."""
        in_use = [ino for _, ino, _ in self.files] + [each.ino for each in self.listings]
        for ino in in_use + [ino for _, ino in self.working]:
            self.kernel.pin(ino)
        self.kernel.forget(number)
        self.kernel._pins.clear()

    async def end(self) -> None:
        """Everything is closed and forgotten; nothing of it is left, with the daemon or on record."""
        while self.files:
            await self.release(0)
        while self.listings:
            await self.releasedir(0)
        self.kernel.forget_all()
        self.daemons.fs.check_invariants()
        assert self.daemons.fs.statistics().inodes.inodes == 1
        await self.crash()
        assert self.daemons.fs.statistics().inodes.inodes == 1


#: Requests whose answer can be lost; what a program does by itself, and FORGET, has none.
ASKED = ("stat", "look_up", "open", "read", "release", "opendir", "readdir", "releasedir")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(ASKED), st.integers(0, 1000), st.sampled_from([False, False, True])),
        st.tuples(
            st.sampled_from(["chdir", "use_working_directory", "forget"]), st.integers(0, 1000), st.just(value=False)
        ),
    ),
    max_size=30,
)


@settings(max_examples=200)
@given(steps=STEPS, config=st.sampled_from(CONFIGS), page=st.integers(1, 4))
def test_no_program_notices_that_daemons_die(
    steps: list[tuple[str, int, bool]], config: MetadataConfig, page: int
) -> None:
    """Daemons die at any moment, with any answer on its way: the bytes are right, each name is there once, no error."""

    async def main() -> None:
        async with succession(filled(page), config) as daemons:
            programs = Programs(daemons)
            for verb, number, is_lost in steps:
                await programs.step(verb, number, is_lost=is_lost)
            await programs.end()

    trio.run(main, clock=MockClock(autojump_threshold=0))


async def opened(mounted: Mounted, path: str) -> tuple[int, int]:
    ino = (await mounted.walk(path)).ino
    return ino, await mounted.fs.open(ino)


@both_modes
async def test_a_file_that_is_open_stays_open(autojump_clock: object, config: MetadataConfig) -> None:
    """A file held open through ten takeovers reads on where it was, and fstat of it asks S3 nothing."""
    store = FakeStore()
    content = bytes(range(256)) * (MIB // 64)
    store.put("big", content)
    async with succession(store, config) as daemons:
        ino, handle = await opened(daemons.mounted, "big")
        for offset in range(0, len(content), len(content) // 10):
            read = await daemons.mounted.read(handle, offset, 1000)
            assert bytes(read) == content[offset : offset + 1000]
            await daemons.crash()
            store.counts.clear()
            attrs = daemons.fs.getattr_nowait(ino)
            assert attrs is not None
            assert (attrs.ino, attrs.size, store.counts) == (ino, len(content), {})
        daemons.fs.release(handle)


async def test_an_open_file_stays_its_version(autojump_clock: object) -> None:
    """A file that was replaced meanwhile shows its old size and gives no bytes of the new version."""
    store = filled()
    async with succession(store) as daemons:
        ino, handle = await opened(daemons.mounted, "z")
        store.put("z", b"something else")
        await daemons.crash()
        attrs = daemons.fs.getattr_nowait(ino)
        assert attrs is not None
        assert attrs.size == len(content_of("z"))
        with pytest.raises(ObjectChanged):
            await daemons.mounted.read(handle, 0, 100)
        assert await daemons.mounted.read_file("z") == b"something else"
        daemons.fs.release(handle)


@both_modes
async def test_a_file_that_is_not_open_is_looked_up_again(autojump_clock: object, config: MetadataConfig) -> None:
    """The kernel's next use of it fails as ESTALE does, and the look-up after that finds the same inode."""
    async with succession(filled(), config) as daemons:
        ino, handle = await opened(daemons.mounted, "z")
        daemons.fs.release(handle)
        await daemons.crash()
        with pytest.raises(StaleInode):
            await daemons.fs.open(ino)
        assert (await daemons.mounted.walk("z")).ino == ino


@both_modes
async def test_a_directory_that_is_being_read_goes_on(autojump_clock: object, config: MetadataConfig) -> None:
    """With a takeover after every reply, whatever its size, each of 120 names is shown once."""
    store = FakeStore()
    store.max_page = 7
    expected = {f"f{n:03}{mark}" for n in range(30) for mark in ("", "-", ".x", "0")}
    for name in expected:
        store.put(name if name.endswith("x") else f"{name}/x", b"1")
    async with succession(store, config) as daemons:
        handle = await daemons.fs.opendir(ROOT)
        names: list[str] = []
        n_before = -1
        while len(names) > n_before:
            n_before = len(names)
            room = n_before + 1 + n_before % 40

            def emit(name: bytes, _: FileAttrs, _next: int, room: int = room) -> bool:
                if len(names) < room:
                    names.append(name.decode())
                    return True
                return False

            await daemons.fs.readdir(handle, n_before, emit)
            await daemons.crash()
        assert sorted(names) == sorted(expected)
        daemons.fs.releasedir(handle)


async def test_no_handle_of_a_predecessor_is_given_out_again(autojump_clock: object) -> None:
    """Handles on one file from fifteen daemons in a row are fifteen numbers, and letting go of each is no error."""
    async with succession(filled()) as daemons:
        handles = []
        for _ in range(15):
            handles.append((await opened(daemons.mounted, "z"))[1])
            handles.append(await daemons.fs.opendir(ROOT))
            await daemons.crash()
        assert len(set(handles)) == 30
        for handle in handles[::2]:
            daemons.fs.release(handle)
            daemons.fs.release(handle)  # half done by a daemon that died
        for handle in handles[1::2]:
            daemons.fs.releasedir(handle)
            daemons.fs.releasedir(handle)


async def test_handles_outlive_any_number_of_daemons(autojump_clock: object) -> None:
    """Handles on one file, one from each of twenty daemons, read right until each is closed."""
    async with succession(filled()) as daemons:
        handles = []
        for _ in range(20):
            handles.append((await opened(daemons.mounted, "z"))[1])
            await daemons.crash()
        for handle in handles:
            assert bytes(await daemons.mounted.read(handle, 4, 100)) == content_of("z")[4:]
            daemons.fs.release(handle)
        daemons.fs.check_invariants()
        assert daemons.fs.statistics().open_files == 0


async def test_the_record_does_not_grow_with_takeovers(autojump_clock: object) -> None:
    """Thirty daemons that die while files are opened, which the kernel then opens again, leave no more than one."""
    async with succession(filled()) as daemons:
        sizes = set()
        for _ in range(30):
            for key in KEYS:
                _, handle = await opened(daemons.mounted, key)
                if key != "z":
                    daemons.fs.release(handle)
            await daemons.crash()
            assert daemons.ledger.journal is not None
            sizes.add(daemons.ledger.journal.bytes)
        assert len(sizes) == 1


@both_modes
async def test_another_buckets_record_is_refused(autojump_clock: object, config: MetadataConfig) -> None:
    """Old handles and inodes fail as unknown ones do, and what is looked up anew works."""
    async with succession(filled(), config) as daemons:
        ino, handle = await opened(daemons.mounted, "d/a")
        directory = await daemons.fs.opendir((await daemons.mounted.walk("d")).ino)
        await daemons.kill()
        await daemons.begin("https://s3.test/other/")
        with pytest.raises(BadHandle):
            await daemons.mounted.read(handle, 0, 1)
        with pytest.raises(BadHandle):
            await daemons.fs.readdir(directory, 0, lambda *_: True)
        with pytest.raises(StaleInode):
            await daemons.fs.getattr(ino)
        daemons.fs.release(handle)
        daemons.fs.releasedir(directory)
        assert await daemons.mounted.read_file("d/a") == content_of("d/a")


async def test_a_directory_handle_does_not_read_a_file(autojump_clock: object) -> None:
    """A predecessor's handle on a directory is no handle on a file, nor the other way round."""
    async with succession(filled()) as daemons:
        _, handle = await opened(daemons.mounted, "z")
        directory = await daemons.fs.opendir(ROOT)
        await daemons.crash()
        with pytest.raises(BadHandle):
            await daemons.mounted.read(directory, 0, 1)
        with pytest.raises(BadHandle):
            await daemons.fs.readdir(handle, 0, lambda *_: True)
