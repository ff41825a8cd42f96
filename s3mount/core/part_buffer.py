"""The bytes of one part while it is written: kept as they came, so that a large write is never copied.

Small writes are joined; a patch makes one piece of all.  What was handed out by `body` may be on its way, so it is
never touched again: a patch after it works on a copy, an append begins a new piece.

INVARIANT: `size` is the sum of the pieces.
"""

from s3mount.units import KIB, MIB

#: A smaller write is copied behind the one before it: a piece costs some 100 bytes and a step of every send.
_WORTH_A_PIECE = 32 * KIB
#: A piece of small writes grows no further: it is copied when it grows.
_FULL = 1 * MIB


class PartBuffer:
    """Bytes that grow at their end and may be patched."""

    def __init__(self) -> None:
        self._pieces: list[bytes | bytearray | memoryview] = []
        self._is_out = False
        self.size = 0

    def append(self, data: bytes | memoryview) -> None:
        """Bytes behind the others; the caller never changes them."""
        last = self._pieces[-1] if self._pieces else None
        if isinstance(last, bytearray) and not self._is_out and len(last) < _FULL and len(data) < _WORTH_A_PIECE:
            last += data
        else:
            self._pieces.append(bytearray(data) if len(data) < _WORTH_A_PIECE else data)
            self._is_out = False
        self.size += len(data)

    def patch(self, offset: int, data: bytes | memoryview) -> None:
        """Other bytes in place of some that are there.

        Raises:
            ValueError: not all of them are.
        """
        if offset + len(data) > self.size:
            raise ValueError(f"{len(data)} bytes at {offset} are not within {self.size}")
        if self._is_out or len(self._pieces) != 1 or not isinstance(self._pieces[0], bytearray):
            self._pieces = [bytearray().join(self._pieces)]
            self._is_out = False
        whole = self._pieces[0]
        if isinstance(whole, bytearray):
            whole[offset : offset + len(data)] = data

    def read(self, start: int, stop: int) -> bytes:
        """Bytes of a range; what lies beyond the end is left out."""
        found: list[bytes | bytearray | memoryview] = []
        at = 0
        for piece in self._pieces:
            if at < stop and at + len(piece) > start:
                found.append(memoryview(piece)[max(0, start - at) : stop - at])
            at += len(piece)
        return b"".join(found)

    def body(self) -> list[bytes | memoryview]:
        """All of it, to be sent; it does not change any more, whatever is done to the buffer."""
        self._is_out = True
        return [piece if isinstance(piece, bytes) else memoryview(piece) for piece in self._pieces]

    def check_invariants(self) -> None:
        """Raises ValueError when the size is not that of the pieces."""
        if self.size != sum(map(len, self._pieces)):
            raise ValueError(f"{self.size} bytes are kept in pieces of {list(map(len, self._pieces))}")
