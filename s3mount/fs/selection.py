"""Which objects are under some paths: what `s3mountctl warm` and `evict` work on.

A directory is listed flat, in whole pages with several on their way (fs.pages), since attributes of everything
below it are wanted, and nothing of its shape.  So a file that a directory of the same name hides is selected, too;
keys that cannot be files are not.

A path or a directory that fails is told, and the others go on.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator

import trio

from s3mount.core.attrs import ObjectStat
from s3mount.core.keys import SEPARATOR, is_legal_component, is_text
from s3mount.errors import InvalidName, NameNotFound, S3MountError
from s3mount.fs.pages import PageStream
from s3mount.fs.resolver import Resolver
from s3mount.store.base import Catalogue

#: Paths asked about at once: a quarter of what LIST and HEAD together may be (GuardConfig).
_RESOLVERS = 16

#: Gets some objects, and may hold up the selection by waiting.
Found = Callable[[list[ObjectStat]], Awaitable[None]]
#: Gets a path, and why nothing of it was selected.
Failed = Callable[[str, str], Awaitable[None]]


class Selector:
    """Finds objects by path.

    Args:
        root_key: of the mount, empty or ending in `/`.
    """

    def __init__(self, store: Catalogue, resolver: Resolver, root_key: str) -> None:
        self._store = store
        self._resolver = resolver
        self._root_key = root_key

    def path_of(self, key: str) -> str:
        """Where in the mount an object is."""
        return key.removeprefix(self._root_key)

    async def find(self, paths: Iterable[str], found: Found, failed: Failed) -> None:
        """Every object under the paths, each once.

        Args:
            paths: relative to the mount's root, which is the empty one.
        """
        remaining = iter(_outermost(paths))
        async with trio.open_nursery() as nursery:
            for _ in range(_RESOLVERS):
                nursery.start_soon(self._find_each, remaining, found, failed, nursery)

    async def _find_each(self, remaining: Iterator[str], found: Found, failed: Failed, nursery: trio.Nursery) -> None:
        for path in remaining:
            try:
                await self._find(path, found, nursery)
            except NameNotFound:
                await failed(path, "nothing has this name")
            except S3MountError as error:
                await failed(path, str(error))

    async def _find(self, path: str, found: Found, nursery: trio.Nursery) -> None:
        if not path:
            await self._list(self._root_key, found, nursery)
            return
        if not is_text(path):
            raise InvalidName("the name is not UTF-8, so no object can have it")
        record = await self._resolver.resolve(self._root_key + path)
        if record.found is None:
            await self._list(self._root_key + path + SEPARATOR, found, nursery)
        else:
            await found([record.found])

    async def _list(self, prefix: str, found: Found, nursery: trio.Nursery) -> None:
        stream = PageStream(self._store, nursery, prefix, delimiter="")
        try:
            while (page := await stream.next()) is not None:
                files = [each for each in page.page.objects if self._is_file(each.key)]
                await found(files)
                if page.is_last:
                    break
        finally:
            stream.close()

    def _is_file(self, key: str) -> bool:
        return all(map(is_legal_component, self.path_of(key).split(SEPARATOR)))


def _outermost(paths: Iterable[str]) -> list[str]:
    """The paths that do not lie in another of them, without slashes at their ends, in their order."""
    wanted = dict.fromkeys(path.strip(SEPARATOR) for path in paths)
    if "" in wanted:
        return [""]
    return [path for path in wanted if not any(above in wanted for above in _above(path))]


def _above(path: str) -> Iterator[str]:
    at = path.find(SEPARATOR)
    while at >= 0:
        yield path[:at]
        at = path.find(SEPARATOR, at + 1)
