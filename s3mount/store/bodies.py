"""A body in pieces, as the streams that the clients read.

The kernel brings a part in some hundred pieces.  Joined first, each byte would be copied once more than the CRT
copies it anyway; aiobotocore, which sends few bodies, gets them joined.
"""

import io

from s3mount.store.writing import Body
from s3mount.units import KIB

#: Bytes that aiobotocore sends at once.
_CHUNK = 256 * KIB


def as_file(body: Body) -> io.BytesIO:
    """A body for aiobotocore."""
    return _ChunkedFile(b"".join(body))


class _ChunkedFile(io.BytesIO):
    """A file whose "lines" are long: aiobotocore's httpx session sends a file line by line.

    Of random bytes that is one system call and four turns of the loop for each 256 bytes: 450 s of CPU for a GB.
    """

    def __next__(self) -> bytes:
        chunk = self.read(_CHUNK)
        if not chunk:
            raise StopIteration
        return chunk


class PieceStream:
    """Bytes of a body, from the first one on; what the CRT asks of a file (`awscrt.io.InputStream`).

    It is read by one thread at a time, all of it before the first byte is sent (measured).

    INVARIANT: `_offset` is within the piece `_index`, or both are at the end.
    """

    def __init__(self, body: Body) -> None:
        self._pieces = [memoryview(piece) for piece in body if len(piece)]
        self._index = 0
        self._offset = 0

    def readinto(self, target: memoryview) -> int:
        """Fill `target` as far as there are bytes; returns how many there were, 0 at the end."""
        filled = 0
        while filled < len(target) and self._index < len(self._pieces):
            rest = self._pieces[self._index][self._offset :]
            taken = rest[: len(target) - filled]
            target[filled : filled + len(taken)] = taken
            filled += len(taken)
            self._offset += len(taken)
            if len(taken) == len(rest):
                self._index, self._offset = self._index + 1, 0
        return filled

    def read(self, size: int) -> bytes:
        """The CRT asks whether there is a `read`, and uses `readinto`."""
        target = bytearray(size)
        return bytes(target[: self.readinto(memoryview(target))])

    def seek(self, offset: int, whence: int = 0) -> int:
        """Back to the beginning: what the CRT does before it reads again.

        Raises:
            ValueError: to anywhere else.
        """
        if offset or whence:
            raise ValueError("a body is only read from its beginning")
        self._index = self._offset = 0
        return 0
