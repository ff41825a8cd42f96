"""Names that a listing no longer has: the kernel need not remember what another client removed.

It asks again for each name that it uses, so nothing depends on this.  But what nobody uses any more it remembers for as
long as it has memory, with the pages of its content, and each such name is an inode here.  What the listing before had
and this one has not is gone, and with a directory all that was in it.

Of directories themselves no name is forgotten: a process may work in one (fs.kernel_view).
"""

from collections.abc import Sequence

import trio

from s3mount.cache.metadata import MetadataCache
from s3mount.core.entry_pages import EntryPages
from s3mount.core.keys import SEPARATOR, child_key
from s3mount.core.listing import Entry
from s3mount.fs.kernel_view import KernelView

#: Seconds for one comparison: thousands of names take a moment, and those of a directory that is busy are left to the
#: kernel.
_MOST_S = 60.0
#: Comparisons at once: each holds two listings, and the kernel's lock of its directory for a share of the time.
_AT_ONCE = 4


class LostNames:
    """Compares listings, beside who reads them.

    Args:
        nursery: the mount's.

    Attributes:
        kernel: is told to forget; None where nobody has mounted the file system.
    """

    def __init__(self, cache: MetadataCache, nursery: trio.Nursery) -> None:
        self._cache = cache
        self._nursery = nursery
        self.kernel: KernelView | None = None
        self._compared: set[str] = set()

    def compare(self, directory_key: str, before: EntryPages, after: EntryPages) -> None:
        """A directory was listed again; while it or some others are being compared its names are left to the kernel."""
        is_busy = directory_key in self._compared or len(self._compared) >= _AT_ONCE
        if self.kernel is not None and not is_busy and not before.has_names_of(after):
            self._compared.add(directory_key)
            self._nursery.start_soon(self._compare, self.kernel, directory_key, before, after)

    async def _compare(self, kernel: KernelView, directory_key: str, before: EntryPages, after: EntryPages) -> None:
        try:
            with trio.move_on_after(_MOST_S):
                for lost in before.lost(after):
                    await self._let_go(kernel, directory_key, lost)
        finally:
            self._compared.remove(directory_key)

    async def _let_go(self, kernel: KernelView, directory_key: str, lost: Sequence[Entry]) -> None:
        await trio.lowlevel.checkpoint()  # a page takes a millisecond, and there may be thousands
        await kernel.let_go(directory_key, lost)
        for name in [entry.name for entry in lost if entry.found is None]:
            key = child_key(directory_key, name) + SEPARATOR
            listing = self._cache.listings.last(key)
            if listing is not None and not self._cache.local.is_directory(key):
                for page in listing.entries.pages():
                    await self._let_go(kernel, key, page)
