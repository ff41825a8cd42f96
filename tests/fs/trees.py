"""Trees of many keys in memory, and programs that walk them as `os.walk`, `find` and ImageFolder do."""

import stat
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from typing import NamedTuple

import trio

from s3mount.cache.metadata import MetadataConfig
from s3mount.core.attrs import ObjectId
from s3mount.core.listing import ListPage
from s3mount.core.ttl import INDEFINITE, TimeToLive
from s3mount.store.base import MAX_PAGE
from tests.fs.harness import ROOT, Mounted
from tests.support.fake_store import FakeStore

LATENCY_S = 0.03
MINIMAL_MODE = MetadataConfig()
FOREVER = MetadataConfig(INDEFINITE, INDEFINITE)
A_MINUTE = MetadataConfig(TimeToLive(60.0), TimeToLive(60.0))


class SortedStore(FakeStore):
    """Lists as `FakeStore` does, but searches its keys instead of sorting all of them for each page."""

    def __init__(self, keys: Iterable[str] = (), *, latency_s: float = LATENCY_S, page: int = MAX_PAGE) -> None:
        super().__init__(latency_s=latency_s)
        self.max_page = page
        self._sorted: list[str] | None = None
        for key in keys:
            self.put(key, b"1")

    def put(self, key: str, content: bytes, *, storage_class: str = "STANDARD", mtime_s: int | None = None) -> ObjectId:
        self._sorted = None
        return super().put(key, content, storage_class=storage_class, mtime_s=mtime_s)

    def delete(self, key: str) -> None:
        self._sorted = None
        super().delete(key)

    async def list_page(
        self,
        prefix: str,
        *,
        delimiter: str = "/",
        token: str | None = None,
        max_keys: int = MAX_PAGE,
        start_after: str = "",
    ) -> ListPage:
        self.counts["lists"] += 1
        await trio.sleep(self.latency_s)
        keys = self._sorted = self._sorted or sorted(self.objects)
        at = max(bisect_left(keys, prefix), bisect_right(keys, start_after))
        if token is not None:
            at = (
                _beyond(keys, token)
                if delimiter and token.endswith(delimiter) and token != prefix
                else bisect_right(keys, token)
            )
        objects, prefixes, last = [], [], ""
        while at < len(keys) and keys[at].startswith(prefix):
            if len(objects) + len(prefixes) == min(max_keys, self.max_page):
                return ListPage(tuple(objects), tuple(prefixes), last)
            head, separator, _ = keys[at][len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
            last = prefix + head + separator if separator else keys[at]
            if separator:
                prefixes.append(last)
            else:
                objects.append(self.objects[last][0])
            at = _beyond(keys, last) if separator else at + 1
        return ListPage(tuple(objects), tuple(prefixes), None)


def _beyond(keys: list[str], directory_key: str) -> int:
    return bisect_left(keys, directory_key[:-1] + chr(ord(directory_key[-1]) + 1))


class Found(NamedTuple):
    """An entry as readdirplus gives it."""

    name: str
    is_directory: bool


#: In which order a program goes through the sub-directories of one directory.
Order = Callable[[list[str]], list[str]]


async def read_directory(mounted: Mounted, ino: int, batch: int = 1000) -> list[Found]:
    """All entries of a directory, in replies of at most `batch`."""
    handle = await mounted.fs.opendir(ino)
    found: list[Found] = []
    try:
        while True:
            reply: list[Found] = []

            def emit(name: bytes, attrs: object, _next: int, into: list[Found] = reply) -> bool:
                if len(into) < batch:
                    into.append(Found(name.decode(), stat.S_ISDIR(attrs.mode)))
                    return True
                return False

            await mounted.fs.readdir(handle, len(found), emit)
            if not reply:
                return found
            found += reply
    finally:
        mounted.fs.releasedir(handle)


async def go_into(mounted: Mounted, parent: int, name: str) -> int:
    """The inode of a sub-directory, stat'ed as the kernel does it for `os.path.islink`."""
    attrs = await mounted.fs.lookup(parent, name.encode())
    return (await mounted.fs.getattr(attrs.ino)).ino if attrs.ttl_s == 0 else attrs.ino


async def os_walk(mounted: Mounted, ino: int = ROOT, path: str = "", order: Order = list) -> list[str]:
    """Every path below a directory, depth first: each directory is read whole, then its sub-directories."""
    entries = await read_directory(mounted, ino)
    paths = [path + entry.name + "/" * entry.is_directory for entry in entries]
    for name in order([entry.name for entry in entries if entry.is_directory]):
        paths += await os_walk(mounted, await go_into(mounted, ino, name), path + name + "/", order)
    return paths


def paths_of(keys: Iterable[str]) -> list[str]:
    """What a walk must show for keys without anything odd: every file, and every directory with its slash."""
    paths = set()
    for key in keys:
        parts = key.split("/")
        paths.update("/".join(parts[:n]) + "/" for n in range(1, len(parts)))
        if not key.endswith("/"):
            paths.add(key)
    return sorted(paths)


def tree(directories: int, files: int, parent: str = "") -> list[str]:
    """Keys of so many directories with so many files each."""
    return [f"{parent}d{d:05}/f{f:05}" for d in range(directories) for f in range(files)]


def pages(n_keys: int, page: int = MAX_PAGE) -> int:
    """The least number of LISTs that give so many keys."""
    return -(-n_keys // page)
