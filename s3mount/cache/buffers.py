"""Memory for reads past the kernel's page cache: aligned to pages, and the same again and again.

O_DIRECT wants pages (open(2)), and fresh memory costs a page fault for each page, more CPU than the read itself:
what nobody looks at any more is lent again.  A view keeps its memory from being lent, however often it is
sliced or handed on; nobody gives anything back.  So a read that was given up writes into memory that is its own
until it ends.

The mappings are shared (with nobody): a fork beside a direct read into private memory can lose what is read (open(2)).

INVARIANT: memory is either idle or under a view; of each size idle are about as many as `_SIZES` says, beyond it goes
to the kernel.  When nobody reads all of it goes: else a process would look as if it grew for an hour, until all sizes
have been in use (seen).
"""

import ctypes
import mmap
import weakref
from typing import Any

from s3mount.units import KIB, MIB

#: A small file, the largest buffered read of a mount, a part, each with the page of a header before it; and how many
#: lie idle: what threads read at once (cache.patience), of parts what comes back when one stream ends.  24.4 MiB for
#: each directory.
_SIZES = {256 * KIB: 16, MIB + 64 * KIB: 4, 8 * MIB + 64 * KIB: 2}
_ARRAYS: dict[int, Any] = {size: ctypes.c_ubyte * size for size in _SIZES}


class _Loan(weakref.ref[Any]):
    """The array that all views of lent memory hold on to."""

    __slots__ = ("memory",)
    memory: mmap.mmap


class PageBuffers:
    """Lends memory; callable in any thread."""

    def __init__(self) -> None:
        self._idle: dict[int, list[mmap.mmap]] = {size: [] for size in _SIZES}
        self._lent: dict[int, _Loan] = {}

    def lend(self, n_bytes: int) -> memoryview:
        """Whole pages for so many bytes, with anything in them.

        Raises:
            ValueError: more than any block is.
        """
        size = next((size for size in _SIZES if n_bytes <= size), 0)
        if not size:
            raise ValueError(f"{n_bytes} bytes are more than a block")
        try:
            memory = self._idle[size].pop()
        except IndexError:
            memory = mmap.mmap(-1, size)
        array = _ARRAYS[size].from_buffer(memory)
        loan = _Loan(array, self._take_back)
        loan.memory = memory
        self._lent[id(loan)] = loan
        return memoryview(array).cast("B")[: -(-n_bytes // mmap.PAGESIZE) * mmap.PAGESIZE]

    def _take_back(self, loan: weakref.ref[Any]) -> None:
        memory = self._lent.pop(id(loan)).memory
        idle = self._idle[len(memory)]
        if len(idle) < _SIZES[len(memory)]:
            idle.append(memory)

    def give_back(self) -> None:
        """What is idle goes to the kernel; what is lent stays lent."""
        for idle in self._idle.values():
            idle.clear()

    @property
    def idle_bytes(self) -> int:
        """Held and not lent."""
        return sum(size * len(idle) for size, idle in self._idle.items())
