"""What S3 says of the content it sends, and whether it came so.

S3 gives a checksum with a GET that asks for it (`x-amz-checksum-mode`, S3 API, GetObject) when it has one for exactly
the bytes asked for.  It is believed only where that cannot be mistaken:

    the answer                                        the checksum in it
    ------------------------------------------------  ---------------------------------------------------
    is the whole object, of the type FULL_OBJECT      verifies the content
    is the whole object, COMPOSITE                    is that of the parts' checksums: ignored
    is a part of the object                           may be the part's, the whole object's or that of checksums,
                                                      by server and upload: ignored
    names another algorithm than the three CRCs       ignored
    has none                                          length and ETag are all there is

An answer to a range has no `-N` after a composite checksum (botocore's issue 3346), so without the type
`FULL_OBJECT` in so many words nothing is believed.

The CRCs are computed by the CRT without the interpreter's lock, on the thread that brings the bytes.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from awscrt import checksums

from s3mount.errors import StoreFailure

#: Asks S3 for the checksum; only an answer that begins with the first byte can be the whole object.
REQUEST_HEADER = ("x-amz-checksum-mode", "ENABLED")
#: By response header: the function that goes on from a CRC over more bytes, and the bytes of the result.
_ALGORITHMS: Mapping[str, tuple[Callable[[bytes | memoryview, int], int], int]] = {
    "x-amz-checksum-crc64nvme": (checksums.crc64nvme, 8),
    "x-amz-checksum-crc32c": (checksums.crc32c, 4),
    "x-amz-checksum-crc32": (checksums.crc32, 4),
}
_RANGE = re.compile(r"bytes 0-(\d+)/(\d+)")


def checksum_of_body(name: str, body: Sequence[bytes | memoryview]) -> str:
    """The checksum of a content in pieces, as S3 writes it; `name` is crc32c or crc64nvme."""
    update, size = _ALGORITHMS[f"x-amz-checksum-{name}"]
    return b64encode(reduce(lambda crc, piece: update(piece, crc), body, 0).to_bytes(size, "big")).decode("ascii")


class Checksum:
    """What a content must have, and what has come of it so far.

    Args:
        header: one of `_ALGORITHMS`.
        expected: as S3 writes it, in base64.
    """

    __slots__ = ("_crc", "_expected", "_name", "_size", "_update")

    def __init__(self, header: str, expected: str) -> None:
        self._update, self._size = _ALGORITHMS[header]
        self._crc = 0
        self._name = header.rpartition("-")[2].upper()
        self._expected = expected

    def update(self, chunk: bytes) -> None:
        """The next bytes came."""
        self._crc = self._update(chunk, self._crc)

    def verify(self, key: str) -> None:
        """Prove that all bytes came as they were stored.

        Raises:
            StoreFailure: they did not; another attempt may do better.
        """
        actual = b64encode(self._crc.to_bytes(self._size, "big")).decode("ascii")
        if actual != self._expected:
            message = f"the content has the {self._name} {actual}, and S3 says {self._expected}"
            raise StoreFailure(message, key=key, operation="GetObject")


def checksum_of(headers: Mapping[str, str]) -> Checksum | None:
    """What verifies the body of an answer; None where nothing does.

    Args:
        headers: of the answer, names in lower case.
    """
    if headers.get("x-amz-checksum-type") != "FULL_OBJECT" or not _is_whole(headers.get("content-range")):
        return None
    return next((Checksum(name, headers[name]) for name in _ALGORITHMS if name in headers), None)


def _is_whole(content_range: str | None) -> bool:
    """Whether an answer with that Content-Range, or with none, is the whole object."""
    if content_range is None:
        return True
    found = _RANGE.fullmatch(content_range)
    return found is not None and int(found[1]) + 1 == int(found[2])
