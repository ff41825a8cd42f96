"""Read every block of a directory, and remove what is wrong: what a user asks for, not what reads need."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from s3mount.cache.descriptors import OpenBlocks
from s3mount.cache.directory import BlockDirectory
from s3mount.cache.faults import Faults
from s3mount.core.blockfile import HEADER_BYTES, MAX_CONTENT, decode_header, written_block
from s3mount.core.lru import N_FOLDERS

#: Told the bytes of each block that was read.
OnProgress = Callable[[int], None]
#: A pause after each block, in times of what its reading took: half of what one reader takes of the disk.
_REST = 1.0


@dataclass
class BlockCounts:
    """What a check of every block found.

    Attributes:
        right: blocks of which every byte is as it was written.
        removed: names of those that were not.
        unread: that could not be read; they are still there.
    """

    right: int = 0
    removed: list[bytes] = field(default_factory=list)
    unread: int = 0


def is_right_file(directory: BlockDirectory, name: bytes) -> bool:
    """Whether the file of a block is a whole right block of that name.

    Raises:
        OSError: the disk failed.
    """
    fd = directory.open(name)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_NOREUSE)  # what readers keep in memory is worth more
        page = os.pread(fd, HEADER_BYTES, 0)
        block = written_block(name, page)
        header = decode_header(block, page) if block else None
        if header is None:
            return False
        content = os.pread(fd, MAX_CONTENT + 1, HEADER_BYTES)
        return len(content) == header.span.length and header.is_right(0, memoryview(content))
    finally:
        os.close(fd)


async def verify_directory(
    directory: BlockDirectory, opened: OpenBlocks, faults: Faults, on_progress: OnProgress
) -> BlockCounts:
    """Check every block, one at a time and with pauses: readers come first."""
    counts = BlockCounts()
    for folder in range(N_FOLDERS):
        try:
            found = await trio.to_thread.run_sync(directory.blocks, folder, abandon_on_cancel=True)
        except OSError as error:
            faults.note("scan", error)
            continue
        for block in found:
            began_at = trio.current_time()
            try:
                is_right = await trio.to_thread.run_sync(is_right_file, directory, block.name, abandon_on_cancel=True)
                on_progress(block.n_bytes)
                await trio.sleep((trio.current_time() - began_at) * _REST)
                if is_right:
                    counts.right += 1
                    continue
                opened.drop(block.name)
                await trio.to_thread.run_sync(directory.remove, block.name, abandon_on_cancel=True)
                counts.removed.append(block.name)
            except FileNotFoundError:
                continue  # evicted meanwhile
            except OSError as error:
                faults.note("read", error)
                counts.unread += 1
    return counts
