"""Memory for direct reads: lent again, but never while anybody can see it."""

import gc
import mmap
import os

import pytest
import trio
import trio.testing

from s3mount.cache.buffers import PageBuffers
from s3mount.cache.threads import CallThreads
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


async def test_a_read_that_was_given_up_has_its_memory_to_itself(mock_clock: trio.testing.MockClock) -> None:
    """While a thread is in a read(2) that nobody waits for, its memory is not lent; what it reads is in no other's."""
    buffers = PageBuffers()
    threads = CallThreads(1, "test")
    reading, writing = os.pipe()
    where: list[int] = []

    def read() -> int:
        view = buffers.lend(MIB)
        where.append(address(view))
        return os.readv(reading, [view])  # hangs in the kernel, which has the address

    async def wait() -> None:
        with pytest.raises(trio.TooSlowError):
            await threads.run_for(1, read)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(threads.watch)
        async with trio.open_nursery() as waiting:
            waiting.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()  # a jump before `watch` sleeps would be none for it
            while not where:
                await trio.lowlevel.checkpoint()
            mock_clock.jump(60)
        gc.collect()
        others = [buffers.lend(MIB) for _ in range(8)]
        assert not {address(each) for each in others} & set(where)
        for each in others:
            each[:4] = b"mine"
        os.write(writing, b"late")
        await threads.run(int)  # the only thread has ended the read
        assert {bytes(each[:4]) for each in others} == {b"mine"}
        assert address(buffers.lend(MIB)) == where[0]
        nursery.cancel_scope.cancel()
    threads.close()
    os.close(reading)
    os.close(writing)


def test_idle_memory_is_bounded() -> None:
    """However much was lent at once, two parts stay when all of it is back, and small ones beside them."""
    buffers = PageBuffers()
    views = [buffers.lend(size) for size in (8 * MIB, MIB, KIB) for _ in range(20)]
    assert buffers.idle_bytes == 0
    views.clear()
    gc.collect()
    assert buffers.idle_bytes == 2 * (8 * MIB + 64 * KIB) + 4 * (MIB + 64 * KIB) + 16 * 256 * KIB
    where = {address(buffers.lend(8 * MIB)) for _ in range(4)}
    assert len(where) == 1, "made anew, not lent again"
    view = buffers.lend(8 * MIB)
    buffers.give_back()
    assert buffers.idle_bytes == 0
    view[:3] = b"own"
    assert bytes(view[:3]) == b"own"


def test_more_than_a_block_is_refused() -> None:
    """A block and its header fit; what is larger is the caller's mistake."""
    buffers = PageBuffers()
    assert len(buffers.lend(8 * MIB + 4 * KIB)) == 8 * MIB + 4 * KIB
    with pytest.raises(ValueError, match="more than a block"):
        buffers.lend(16 * MIB)
