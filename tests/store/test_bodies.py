"""Bodies in pieces, as the clients read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3mount.store.bodies import PieceStream, as_file
from s3mount.units import KIB


@given(st.lists(st.binary(max_size=20), max_size=10), st.lists(st.integers(1, 30), min_size=1, max_size=10))
def test_a_stream_is_its_pieces(pieces: list[bytes], lengths: list[int]) -> None:
    """Read in any lengths, the bytes come in order, as much as asked for until the end; rewound, once more."""
    content = b"".join(pieces)
    stream = PieceStream([memoryview(piece) for piece in pieces])
    for _ in range(2):
        got = b""
        number = 0
        while True:
            target = bytearray(lengths[number % len(lengths)])
            filled = stream.readinto(memoryview(target))
            assert filled == min(len(target), len(content) - len(got))
            got += target[:filled]
            if not filled:
                break
            number += 1
        assert got == content
        stream.seek(0)
    assert stream.read(1000) == content


def test_a_stream_is_only_read_from_its_beginning() -> None:
    """A place in the middle is a request that nobody makes."""
    with pytest.raises(ValueError, match="from its beginning"):
        PieceStream([b"content"]).seek(1)


def test_a_file_is_sent_in_long_chunks() -> None:
    """A body full of newlines is no more chunks than another: aiobotocore iterates it as if it were text."""
    for content in (b"\n" * (600 * KIB), b"x" * (600 * KIB)):
        chunks = list(as_file([content[:1000], content[1000:]]))
        assert b"".join(chunks) == content
        assert [len(chunk) for chunk in chunks] == [256 * KIB, 256 * KIB, 88 * KIB]
