"""Memory for direct reads: lent again, but never while anybody can see it."""

import gc
import mmap

import pytest

from s3mount.cache.buffers import PageBuffers
from s3mount.units import KIB, MIB


def address(view: memoryview) -> int:
    """Where its memory begins."""
    import ctypes

    return ctypes.addressof(ctypes.c_ubyte.from_buffer(view))


def test_memory_is_lent_again_when_the_last_view_is_gone() -> None:
    """Memory under a view, or a view of a view, is not lent again; without one it is, and not made anew."""
    buffers = PageBuffers()
    view = buffers.lend(100_000)
    assert len(view) % mmap.PAGESIZE == 0
    assert address(view) % mmap.PAGESIZE == 0
    where = address(view)
    view[:5] = b"first"
    part = view[:5]
    del view
    other = buffers.lend(100_000)
    assert address(other) != where
    other[:5] = b"other"
    assert part == b"first"
    del part
    gc.collect()
    assert address(buffers.lend(100_000)) == where


def test_idle_memory_is_bounded() -> None:
    """However much was lent at once, at most 16 MiB stay when all of it is back."""
    buffers = PageBuffers()
    views = [buffers.lend(8 * MIB) for _ in range(5)]
    assert buffers.idle_bytes == 0
    views.clear()
    gc.collect()
    assert 8 * MIB <= buffers.idle_bytes <= 16 * MIB


def test_more_than_a_block_is_refused() -> None:
    """A block and its header fit; what is larger is the caller's mistake."""
    buffers = PageBuffers()
    assert len(buffers.lend(8 * MIB + 4 * KIB)) == 8 * MIB + 4 * KIB
    with pytest.raises(ValueError, match="more than a block"):
        buffers.lend(16 * MIB)
