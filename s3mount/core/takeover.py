"""The takeover record: what a daemon leaves to the one after it, as bytes.

    entry    4  length of the body
             4  CRC-32 of the body
             1  1 while it holds, 0 since it does not, 3 while a file that holds has content which S3 does not have:
                written in place, the one byte that no checksum covers
                body

    body     1  kind, then the fields of the kind, all little-endian

    kind             fields
    ---------------  ---------------------------------------------------------------------------------------
    1 heading        magic, version, generation, takeovers, serial, what is mounted
    2 directory      inode number, serial, key: the kernel may know it; the key ends in two slashes, as no other does,
                     when its name is gone
    3 file           inode number, serial, size, mtime, restored, ETag, storage class, key: it may be open

Of a file that is not open nothing is kept: its inode number is a hash, and the kernel looks up again what answers
ESTALE.  A handle's number has its inode's serial in it (`fs.handles`), so handles have no entries.

A daemon may be killed within any write.  Reading ends at the first entry that is not whole; what is read is the
record as it was before the write that was cut off.  The heading stands first and is written last: without
one the bytes are no record.  Its form is the same in every version.

Nothing here is repaired: a record that cannot be understood is refused, with the reason.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple, Protocol, SupportsIndex, overload
from zlib import crc32

from s3mount.core.attrs import ObjectStat
from s3mount.core.keys import SEPARATOR

VERSION = 1
#: The first that is given out, to the root of every mount.
ROOT_SERIAL = 1
#: Where in an entry the byte stands that says whether it holds.
LIVE_AT = 8
#: What it may be.
LIVE, LIVE_UNSAVED = 1, 3
#: Bytes before the body.
FRAME_BYTES = 9

_MAGIC = b"s3mount\x00"
_FRAME = struct.Struct("<IIB")
_HEADING, _DIRECTORY, _FILE = 1, 2, 3
_HEADING_FIELDS = struct.Struct("<B8sIQIQ")
_DIRECTORY_FIELDS = struct.Struct("<BQQ")
#: The last two are lengths in characters: of the ETag and the storage class, which the key follows.
_FILE_FIELDS = struct.Struct("<BQQQqBHB")
#: Frame, kind and number of an inode's entry.
_START = struct.Struct("<IIBBQ")


class Bytes(Protocol):
    """What a record is written to and read from: a bytearray, or memory that outlives the process."""

    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: SupportsIndex, /) -> int: ...
    @overload
    def __getitem__(self, index: slice, /) -> bytes | bytearray: ...
    @overload
    def __setitem__(self, index: SupportsIndex, content: int, /) -> None: ...
    @overload
    def __setitem__(self, index: slice, content: bytes | bytearray, /) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...


class Heading(NamedTuple):
    """What a record is of.

    Attributes:
        generation: counts records; the greatest one that is whole is the valid one.
        takeovers: daemons that served the mount before the writer.
        identity: endpoint, bucket and prefix, as text.
        serial: the greatest that was given out when it was written.
    """

    generation: int
    takeovers: int
    identity: str
    serial: int = ROOT_SERIAL


class RecordedInode(NamedTuple):
    """One inode that cannot be recomputed.

    Attributes:
        found: None for a directory, and else the version that was opened.
        is_unsaved: programs wrote to it what S3 does not have.
    """

    ino: int
    serial: int
    key: str
    found: ObjectStat | None
    is_unsaved: bool = False


def recorded_key(key: str, *, is_nameless: bool) -> str:
    """What the record has of a directory's key."""
    return key + SEPARATOR if is_nameless else key


def key_of(recorded: RecordedInode) -> tuple[str, bool]:
    """The key of an inode, and whether it is a directory whose name is gone."""
    is_nameless = recorded.found is None and recorded.key.endswith(2 * SEPARATOR)
    return recorded.key[:-1] if is_nameless else recorded.key, is_nameless


def pack_heading(heading: Heading) -> bytes:
    """The entry that makes a record valid."""
    fields = _HEADING_FIELDS.pack(_HEADING, _MAGIC, VERSION, heading.generation, heading.takeovers, heading.serial)
    return _framed(fields + _utf8(heading.identity))


def pack_inode(ino: int, serial: int, key: str, found: ObjectStat | None) -> bytes:
    """The entry of an inode.

    Raises:
        struct.error: an ETag has more than 65,535 characters, or a storage class more than 255.
    """
    if found is None:
        return _framed(_DIRECTORY_FIELDS.pack(_DIRECTORY, ino, serial) + _utf8(key))
    _, etag, size, mtime_s, storage_class, restored = found
    fields = _FILE_FIELDS.pack(_FILE, ino, serial, size, mtime_s, restored, len(etag), len(storage_class))
    return _framed(fields + _utf8(etag + storage_class + key))  # one encoding for three takes a third of the time


def read_heading(record: Bytes) -> Heading | None:
    """The heading, of whatever version; None where nothing valid begins."""
    body = _body_at(record, 0)
    if body is None or len(body) < _HEADING_FIELDS.size:
        return None
    kind, magic, _, generation, takeovers, serial = _HEADING_FIELDS.unpack_from(body)
    if kind != _HEADING or magic != _MAGIC:
        return None
    return Heading(generation, takeovers, _text(body[_HEADING_FIELDS.size :]), serial)


def read_inodes(record: Bytes) -> list[RecordedInode]:
    """Every entry that holds, up to the first that is not whole.

    Raises:
        ValueError: it was written by a newer program, or has entries that are unknown here.
    """
    _, _, version, *_ = _HEADING_FIELDS.unpack_from(record, FRAME_BYTES)
    if version > VERSION:
        raise ValueError(f"it has version {version}, and this program reads versions up to {VERSION}")
    bodies = _bodies(record)
    next(bodies)  # the heading
    return [_inode(body)._replace(is_unsaved=state == LIVE_UNSAVED) for state, body in bodies if state]


def greatest_serial(record: Bytes) -> int:
    """Of the heading, which is there, and of every entry that is whole, whether it holds or not."""
    entries = (body for _, body in _bodies(record) if body[0] in (_DIRECTORY, _FILE))
    given: Iterator[int] = (
        _DIRECTORY_FIELDS.unpack_from(body)[2] for body in entries
    )  # a file's begin in the same way
    heading_serial: int = _HEADING_FIELDS.unpack_from(record, FRAME_BYTES)[-1]
    return max(heading_serial, *given, ROOT_SERIAL)


def hop(record: Bytes, at: int) -> tuple[int, bool, int]:
    """Of the whole entry of an inode at a position: where it ends, whether it holds, and the number of the inode."""
    length, _, is_live, _, ino = _START.unpack_from(record, at)
    return at + FRAME_BYTES + length, bool(is_live), ino


def extent(record: Bytes) -> int:
    """Bytes up to the first entry that is not whole."""
    return sum(FRAME_BYTES + len(body) for _, body in _bodies(record))


def _framed(body: bytes) -> bytes:
    return _FRAME.pack(len(body), crc32(body), LIVE) + body


def _bodies(record: Bytes) -> Iterator[tuple[int, bytes]]:
    """Whether it holds, as is written, and the body, of each whole entry from the first on."""
    at = 0
    while (body := _body_at(record, at)) is not None:
        yield record[at + LIVE_AT], body
        at += FRAME_BYTES + len(body)


def _body_at(record: Bytes, at: int) -> bytes | None:
    """The body of the entry at a position; None where there is no whole one."""
    if at + FRAME_BYTES >= len(record):
        return None
    length, expected, _ = _FRAME.unpack_from(record, at)
    body = bytes(record[at + FRAME_BYTES : at + FRAME_BYTES + length])
    return body if length and len(body) == length and crc32(body) == expected else None


def _inode(body: bytes) -> RecordedInode:
    if body[0] == _DIRECTORY:
        _, ino, serial = _DIRECTORY_FIELDS.unpack_from(body)
        return RecordedInode(ino, serial, _text(body[_DIRECTORY_FIELDS.size :]), None)
    if body[0] == _FILE:
        _, ino, serial, size, mtime_s, restored, n_etag, n_class = _FILE_FIELDS.unpack_from(body)
        text = _text(body[_FILE_FIELDS.size :])
        etag, storage_class, key = text[:n_etag], text[n_etag : n_etag + n_class], text[n_etag + n_class :]
        return RecordedInode(ino, serial, key, ObjectStat(key, etag, size, mtime_s, storage_class, bool(restored)))
    raise ValueError(f"it has entries of kind {body[0]}, which this program does not know")


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")
