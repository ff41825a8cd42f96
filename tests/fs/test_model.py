"""Random programs against a model, while another client changes the bucket.

The model is the bucket itself, folded anew by twenty lines that know nothing of pages, records or
inodes.  A step that looks waits until everything known has expired, and then sees what the model
says; with a TTL it first looks without waiting, which fills the caches with what will be wrong.
Small alphabets make names collide.
"""

import contextlib
from collections.abc import Mapping

import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from s3mount.cache.ages import MetadataConfig
from s3mount.core.ttl import MINIMAL, TimeToLive
from s3mount.errors import FileSystemError, NotADirectory, ObjectChanged
from tests.fs.harness import ROOT, Mounted, file_system
from tests.support.fake_store import FakeStore

PLAIN = st.sampled_from(["a", "a-", "b"])
NAMES = st.one_of(PLAIN, PLAIN, PLAIN, st.sampled_from(["a.", "..", "", "é", "\x01"]))
KEYS = st.lists(NAMES, min_size=1, max_size=3).map("/".join).filter(lambda key: key != "")
#: Only steps that look wait, and they wait until these are over.
CONFIGS = st.sampled_from([
    MetadataConfig(),
    MetadataConfig(TimeToLive(60), TimeToLive(60)),
    MetadataConfig(TimeToLive(60), TimeToLive(5)),
    MetadataConfig(TimeToLive(60), MINIMAL),
])  # fmt: skip
STEPS = st.one_of(
    st.tuples(st.just("put"), KEYS),
    st.tuples(st.just("delete"), KEYS),
    st.tuples(st.just("read"), KEYS),
    st.tuples(st.just("list"), KEYS),
    st.tuples(st.just("open"), KEYS),
    st.tuples(st.just("close"), KEYS),
    st.tuples(st.just("wait"), KEYS),
)


def visible(objects: Mapping[str, bytes]) -> dict[str, bytes | None]:
    """Path → content of every file, and path → None of every directory, that the rules show."""
    tree: dict[str, bytes | None] = {}
    for key, content in objects.items():
        parts = key.split("/")
        is_marker = parts[-1] == ""
        for depth, part in enumerate(parts):
            if part in ("", ".", "..") or "\0" in part:
                break
            path = "/".join(parts[: depth + 1])
            if depth < len(parts) - 1:
                tree[path] = None
            elif not is_marker and path not in tree:
                tree[path] = content
    for key in objects:  # a directory wins whatever order the keys came in
        parts = key.split("/")
        for depth in range(1, len(parts)):
            if all(part not in ("", ".", "..") and "\0" not in part for part in parts[:depth]):
                tree["/".join(parts[:depth])] = None
    return tree


def names_in(tree: Mapping[str, bytes | None], path: str) -> set[str]:
    prefix = path + "/" if path else ""
    return {each[len(prefix) :] for each in tree if each.startswith(prefix) and "/" not in each[len(prefix) :]}


class Program:
    """Runs steps on the file system and holds the results against the model."""

    def __init__(self, store: FakeStore, mounted: Mounted, config: MetadataConfig) -> None:
        self.store = store
        self.expired_s = max(config.ttl.seconds, config.negative_ttl.seconds) + 0.1
        self.is_caching = not config.ttl.is_minimal
        self.mounted = mounted
        self.open: list[tuple[int, bytes]] = []
        self.version = 0

    def tree(self) -> dict[str, bytes | None]:
        return visible({key: content for key, (_, content) in self.store.objects.items()})

    async def step(self, verb: str, key: str) -> None:
        if verb == "put":
            self.version += 1
            self.store.put(key, f"{key}:{self.version}".encode() * 3)
        elif verb == "delete":
            self.store.delete(key)
        elif verb == "close":
            await self.close_one()
        else:
            if self.is_caching:
                await self.look(key.rstrip("/"))
            await trio.sleep(self.expired_s)  # records and what the kernel may know have expired
            if verb != "wait":
                await getattr(self, f"do_{verb}")(key.rstrip("/"))
        self.mounted.fs.check_invariants()

    async def look(self, path: str) -> None:
        """Whatever is known or not: nothing but the named errors, and no name twice."""
        with contextlib.suppress(FileSystemError, ObjectChanged):
            await self.mounted.read_file(path, step=7)
        for directory in ("", path):
            with contextlib.suppress(FileSystemError):
                ino = (await self.mounted.walk(directory)).ino if directory else ROOT
                names = await self.mounted.names(ino, batch=2)
                assert len(names) == len(set(names))

    async def do_read(self, path: str) -> None:
        expected = self.tree().get(path, b"absent" if path not in self.tree() else None)
        try:
            with contextlib.suppress(NotADirectory):  # a file became a directory: the second attempt asks S3
                await self.mounted.walk(path)
            content = await self.mounted.read_file(path, step=7)
        except FileSystemError:
            assert path not in self.tree() or expected is None, f"{path!r} should be readable"
        else:
            assert content == expected

    async def do_list(self, path: str) -> None:
        tree = self.tree()
        for directory in ("", path):
            try:
                with contextlib.suppress(NotADirectory):
                    await self.mounted.walk(path)
                ino = (await self.mounted.walk(directory)).ino if directory else ROOT
                names = await self.mounted.names(ino, batch=2)
            except FileSystemError:
                assert tree.get(directory, b"") is not None, f"{directory!r} should be a directory"
            else:
                assert len(names) == len(set(names))
                assert set(names) == names_in(tree, directory)

    async def do_open(self, path: str) -> None:
        expected = self.tree().get(path)
        if expected is not None:
            with contextlib.suppress(NotADirectory):
                await self.mounted.walk(path)
            attrs = await self.mounted.walk(path)
            self.open.append((await self.mounted.fs.open(attrs.ino), expected))

    async def close_one(self) -> None:
        if self.open:
            handle, expected = self.open.pop(0)
            try:
                assert await self.mounted.read(handle, 0, 1000) == expected
            except ObjectChanged:
                assert expected not in self.tree().values()
            self.mounted.fs.release(handle)


@settings(max_examples=400)
@given(
    keys=st.lists(KEYS, min_size=1, max_size=8),
    steps=st.lists(STEPS, min_size=1, max_size=25),
    page=st.integers(1, 4),
    is_ordered=st.booleans(),
    config=CONFIGS,
)
def test_random_programs_see_what_the_bucket_has(
    keys: list[str], steps: list[tuple[str, str]], page: int, *, is_ordered: bool, config: MetadataConfig
) -> None:
    """Whatever another client does, reads and listings agree with the bucket, and no inode leaks."""

    async def main() -> None:
        store = FakeStore(is_ordered=is_ordered)
        store.max_page = page
        async with file_system(store, metadata=config) as mounted:
            program = Program(store, mounted, config)
            for verb, key in [*(("put", key) for key in keys), ("list", keys[0]), *steps]:
                await program.step(verb, key)
            while program.open:
                await program.close_one()

    trio.run(main, clock=MockClock(autojump_threshold=0))
