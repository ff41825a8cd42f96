"""Content by formula: every offset has its own bytes, so that a wrong offset shows."""

import hashlib

from s3mount import units

_PERIOD = 4 * units.MIB


def make_content(seed: str, size: int) -> bytes:
    """`size` bytes that depend on `seed` and position: SHA-256 of (seed, block), repeated per 4 MiB with a counter."""
    blocks = []
    made = 0
    index = 0
    while made < size:
        block = hashlib.shake_256(f"{seed}:{index}".encode()).digest(min(_PERIOD, size - made))
        blocks.append(block)
        made += len(block)
        index += 1
    return b"".join(blocks)
