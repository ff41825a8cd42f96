"""Who asks for the attributes of one file after the other, as `ls -l` does: those of the next are asked for meanwhile.

Files are in the order in which the kernel was told of them, in each directory by itself: programs ask in that order.
When the file after the last one is asked for, twice as many as before are fetched with it, up to `_AT_ONCE`; any other
file begins anew, alone.

Bounded: the files that were told first are forgotten first.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator

from s3mount.core.inode import Inode
from s3mount.core.keys import split_key

#: Files fetched together: at 20 ms some 3,000 in a second.
_AT_ONCE = 64
#: Files whose neighbours are known, and directories that are gone through.
_MAX_TOLD = 20_000
_MAX_FRONTS = 256


class AttributesAhead:
    """Who is next.

    Args:
        is_known: whether nothing need be fetched for a file.
    """

    def __init__(self, is_known: Callable[[Inode], bool]) -> None:
        self._is_known = is_known
        self._next: OrderedDict[Inode, Inode | None] = OrderedDict()
        self._last: dict[str, Inode] = {}  # told of a directory
        self._fronts: OrderedDict[str, tuple[Inode | None, int]] = OrderedDict()  # next to be asked for, and how many

    def told(self, inode: Inode) -> None:
        """The kernel was told of a file, but not of all its attributes."""
        if inode in self._next:
            return
        directory_key = split_key(inode.key)[0]
        last = self._last.get(directory_key)
        if last is not None and last in self._next:
            self._next[last] = inode
        self._next[inode] = None
        self._last[directory_key] = inode
        if len(self._next) > _MAX_TOLD:
            self._next.popitem(last=False)
        if len(self._last) > _MAX_FRONTS:
            del self._last[next(iter(self._last))]

    def wanted(self, inode: Inode) -> list[Inode]:
        """The kernel asks for a file's attributes, and they are not known: others to fetch with them."""
        directory_key = split_key(inode.key)[0]
        expected, before = self._fronts.pop(directory_key, (None, 0))
        count = min(2 * before, _AT_ONCE) if expected is inode else 1
        ahead = [each for each, _ in zip(self._after(inode), range(count - 1), strict=False)]
        self._fronts[directory_key] = next(self._after(ahead[-1] if ahead else inode), None), count
        if len(self._fronts) > _MAX_FRONTS:
            self._fronts.popitem(last=False)
        return ahead

    def _after(self, inode: Inode) -> Iterator[Inode]:
        """Those that follow and are not known; a circle ends where it began."""
        each = self._next.get(inode)
        while each is not None and each is not inode:
            if not self._is_known(each):
                yield each
            each = self._next.get(each)

    def check_invariants(self) -> None:
        """Raises ValueError when more is remembered than may be."""
        if len(self._next) > _MAX_TOLD or max(len(self._fronts), len(self._last)) > _MAX_FRONTS:
            raise ValueError(f"{len(self._next)} files and {len(self._fronts)} directories are remembered")
