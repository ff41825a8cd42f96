"""Entries of a listing as programs see them: S3's pages, put right by what this mount knows better.

    known here                a file being written, a directory made here, a name that was removed: cache.local_names
    changed since             a page was asked for, and then something in its directory changed: what was made, replaced
                              or removed since is shown as it is now
    known here at the start   S3 got it after the page was asked for: the listing lacks it, the directory does not
    a ghost                   a directory that was removed here: not believed in until S3 has something below it

So who changes a directory, or sees it changed, and then lists it, finds it as it is, however long a page was on its
way.
"""

from collections.abc import Sequence

from s3mount.cache.answers import Absence
from s3mount.cache.metadata import MetadataCache
from s3mount.core.keys import SEPARATOR, child_key
from s3mount.core.listing import Entry
from s3mount.core.symlinks import shown_name
from s3mount.fs.open_directory import OpenDirectory
from s3mount.fs.scans import DirectoryScan
from s3mount.store.base import MAX_PAGE, Catalogue


class ShownEntries:
    """Puts entries right, for the lister."""

    def __init__(self, store: Catalogue, cache: MetadataCache) -> None:
        self._store = store
        self._cache = cache

    def some_from(self, directory: OpenDirectory, scan: DirectoryScan, offset: int) -> Sequence[Entry | None]:
        """Some entries of a listing, and after them of what it lacks; None for one that is not there any more."""
        if offset < len(scan.entries):
            listed: Sequence[Entry | None] = directory.some_from(offset)
            asked_at = scan.asked_at(offset)
            if self._cache.listings.may_differ(directory.key, asked_at):
                listed = [entry and self._since(directory.key, entry, asked_at) for entry in listed]
            return self._cache.local.corrected(directory.key, listed)
        if directory.extras is None:
            names = directory.known | self.known_here(directory.key)
            directory.extras = sorted(name for name in names if scan.entries.get(name) is None)
        return [self._extra(directory.key, name) for name in directory.extras[offset - len(scan.entries) :]]

    async def look_for_ghosts(self, directory_key: str, scan: DirectoryScan, offset: int) -> None:
        """Believe again in directories that were removed here, where S3 has something below them.

        Raises:
            StoreError.
        """
        ghosts = self._cache.local.ghosts
        for entry in scan.entries.some_from(offset) if offset < len(scan.entries) else []:
            if ghosts.has(directory_key, entry):
                asked_at = self._cache.now()
                if await self.has_key(directory_key + entry.name):
                    ghosts.forget(directory_key + entry.name, asked_at)

    async def has_key(self, path: str) -> bool:
        """Whether S3 has anything below a path, but for what was removed here a moment ago.  Raises StoreError."""
        going = self._cache.local.removed_below(path + SEPARATOR)
        max_keys = min(len(going) + 1, MAX_PAGE)
        page = await self._store.list_page(path + SEPARATOR, delimiter="", max_keys=max_keys)
        return any(shown_name(found.key.removesuffix(SEPARATOR)) not in going for found in page.objects)

    def known_here(self, directory_key: str) -> set[str]:
        """Names that a listing may lack."""
        return {entry.name for entry in self._cache.local.entries(directory_key)}

    def _since(self, directory_key: str, entry: Entry, asked_at: float) -> Entry | None:
        known = self._cache.newer(child_key(directory_key, entry.name), asked_at)
        if isinstance(known, Absence):
            return None if known.is_known else entry
        return entry if known is None else Entry(entry.name, known.found)

    def _extra(self, directory_key: str, name: str) -> Entry | None:
        """What is under a name by now: S3 may have it meanwhile."""
        record = self._cache.last_record(child_key(directory_key, name))
        return None if record is None else Entry(name, record.found)
