"""Directories that this mount emptied: on S3 they are gone with their last key, here they stay until they are removed.

A directory that may have lost its last key is known here at once (cache.local_names), with those it is in.  A moment
later S3 is asked: a directory that has a key after all, its marker for example, is S3's matter again.  rm -rf is over
by then, so it costs no such question.

INVARIANT: what is asked about is known here as a directory.
"""

import logging

import trio

from s3mount.cache.answers import Absence
from s3mount.cache.metadata import MetadataCache
from s3mount.core.keys import SEPARATOR, split_key
from s3mount.errors import StoreError
from s3mount.store.base import Catalogue

log = logging.getLogger(__name__)

#: Seconds until S3 is asked: who empties a directory to remove it has done so.
ASK_AFTER_S = 2.0


class KeptDirectories:
    """Watches over directories that may be empty.

    Args:
        root_key: of the mount; it is always there.
        nursery: the mount's.
    """

    def __init__(self, cache: MetadataCache, catalogue: Catalogue, root_key: str, nursery: trio.Nursery) -> None:
        self._cache = cache
        self._local = cache.local
        self._catalogue = catalogue
        self._root_key = root_key
        self._nursery = nursery
        self._asked: set[str] = set()  # directories that S3 is to be asked about
        self._keeps = 0

    def keep(self, directory_key: str) -> None:
        """A directory is about to lose its last key, or has."""
        innermost = directory_key
        self._keeps += 1
        is_new = False
        while len(directory_key) > len(self._root_key):
            known = self._local.answer(directory_key.removesuffix(SEPARATOR))
            if isinstance(known, Absence):  # it was removed itself
                return
            if known is None:
                self._local.add_directory(directory_key)
                self._asked.add(directory_key)
                is_new = True
            directory_key = split_key(directory_key[:-1])[0]
        if is_new:
            self._nursery.start_soon(self._ask, innermost)

    def removed(self, directory_key: str) -> None:
        """A directory was removed, or has another name."""
        self._asked.discard(directory_key)
        self._local.forget_directory(directory_key)

    def moved(self, directory_key: str, new_key: str) -> None:
        """A directory, and all that are known in it, have other names."""
        for key in self._local.directories_below(directory_key):
            is_asked = key in self._asked
            self.removed(key)
            moved_key = new_key + key.removeprefix(directory_key)
            if is_asked:
                self.keep(moved_key)
            else:
                self._local.add_directory(moved_key)

    async def _ask(self, directory_key: str) -> None:
        """From the innermost on: what a directory with a key is in is not empty either."""
        await trio.sleep(ASK_AFTER_S)
        is_full, asked_at = False, self._cache.now()
        while len(directory_key) > len(self._root_key):
            while directory_key in self._asked and not is_full:
                keeps, asked_at = self._keeps, self._cache.now()
                has_key = await self._has_key(directory_key)
                if keeps == self._keeps:  # else it may have lost that key meanwhile
                    is_full = has_key
                    break
                await trio.sleep(ASK_AFTER_S)
            if directory_key in self._asked:
                self._asked.discard(directory_key)
                if is_full:
                    self._local.forget_directory(directory_key)
                    # Or an older listing, from when it had no key, would speak for it.
                    self._cache.put(directory_key.removesuffix(SEPARATOR), None, asked_at)
            directory_key = split_key(directory_key[:-1])[0]

    async def _has_key(self, directory_key: str) -> bool:
        try:
            return not (await self._catalogue.list_page(directory_key, delimiter="", max_keys=1)).is_empty
        except StoreError as error:
            log.info("whether %r is empty is not known, so it stays: %s", directory_key, error)
            return False

    def check_invariants(self) -> None:
        """Raises ValueError when S3 is to be asked about what is no directory here."""
        for key in self._asked:
            if not self._local.is_directory(key):
                raise ValueError(f"{key!r} is kept and not known")
