"""The INIT exchange of FUSE: what the kernel offers → what it is told, and what libfuse is told.

The kernel opens each connection with one INIT message, and the reply settles the connection for
good.  libfuse answers it with its own limits, above all 12 requests in the background (every buffered
read is one), and pyfuse3 lets nobody change them.  So this program answers the kernel itself, and libfuse
gets an INIT message that never came from a kernel.

What libfuse is offered is exactly what the kernel was granted.  Whatever libfuse then chooses, it believes in no
feature that the kernel does not use; and every flag of `GRANTED` changes only what the kernel does on its
own, never the shape of a message, so it does no harm if libfuse does not know it.

Layouts are those of include/uapi/linux/fuse.h.  Pure: bytes in, bytes out.

INVARIANT: the reply has no flag that the kernel did not offer, and no write is larger than libfuse's buffer.
"""

import struct
from collections.abc import Collection
from dataclasses import dataclass
from enum import IntFlag
from typing import NamedTuple

from s3mount.units import MIB


class InitFlag(IntFlag):
    """`flags` and, from bit 32 on, `flags2` of both messages: those that this program has an opinion on."""

    ASYNC_READ = 1 << 0
    ATOMIC_O_TRUNC = 1 << 3
    BIG_WRITES = 1 << 5
    AUTO_INVAL_DATA = 1 << 12
    DO_READDIRPLUS = 1 << 13
    ASYNC_DIO = 1 << 15
    PARALLEL_DIROPS = 1 << 18
    MAX_PAGES = 1 << 22
    CACHE_SYMLINKS = 1 << 23
    INIT_EXT = 1 << 30
    HAS_RESEND = 1 << 39
    ALLOW_IDMAP = 1 << 40


#: What libfuse itself asks for, and three more: symbolic links are cached, directory operations run in
#: parallel whatever the version of libfuse, and a later daemon may have unanswered requests sent again.
#: Not here: READDIRPLUS_AUTO (pyfuse3 has no plain readdir), WRITEBACK_CACHE, POSIX_ACL, and all that add to
#: messages what libfuse does not parse (SECURITY_CTX, CREATE_SUPP_GROUP, SETXATTR_EXT).
GRANTED = (
    InitFlag.ASYNC_READ | InitFlag.ATOMIC_O_TRUNC | InitFlag.BIG_WRITES | InitFlag.AUTO_INVAL_DATA
    | InitFlag.DO_READDIRPLUS | InitFlag.ASYNC_DIO | InitFlag.PARALLEL_DIROPS | InitFlag.MAX_PAGES
    | InitFlag.CACHE_SYMLINKS | InitFlag.INIT_EXT | InitFlag.HAS_RESEND
)  # fmt: skip


def granted_for(options: Collection[str]) -> InitFlag:
    """What a mount with these options may have: where the kernel checks permissions, bind mounts with mapped ids, too.

    Where it does not, the kernel refuses the whole connection for that flag.  With the flag it does not say who asks,
    so libfuse could not turn others away (`allow_root`).
    """
    is_for_all = {"default_permissions", "allow_other"} <= set(options)
    return GRANTED | InitFlag.ALLOW_IDMAP if is_for_all else GRANTED


_OPCODE = 26
_MAJOR = 7
#: Shorter replies than `_INIT_OUT` were read before 7.23 (Linux 3.15).
_OLDEST_MINOR = 23
#: The newest whose header this module was written from; the kernel keeps to the smaller of the two.
_NEWEST_MINOR = 40
_LONG_REQUEST_MINOR = 36
#: FUSE_DEFAULT_MAX_PAGES_PER_REQ, for kernels without MAX_PAGES; and libfuse's buffer with it.
_PAGES_WITHOUT_FLAG = 32
MAX_PAGES = 256
#: Requests in the background that the kernel may always have.
MIN_BACKGROUND = 256
#: `max_background` and `congestion_threshold` are half words.
_MAX_BACKGROUND = (1 << 16) - 1
#: A reply to it is lost with ENOENT, which libfuse takes for an interrupted request and is silent about.  The kernel
#: counts from 2 upwards, and marks with bit 0 (interrupts) and bit 63 (requests sent again).
SYNTHETIC_UNIQUE = 1 << 62

_LOW_BITS = (1 << 32) - 1
#: struct fuse_in_header: len, opcode, unique, nodeid, uid, gid, pid, total_extlen, padding.
_IN_HEADER = struct.Struct("=IIQQIIIHH")
#: struct fuse_init_in: major, minor, max_readahead, flags; since 7.36 flags2 and eleven reserved words.
_INIT_IN = struct.Struct("=IIII")
_INIT_IN_MORE = struct.Struct("=I44x")
#: struct fuse_out_header: len, error, unique.
_OUT_HEADER = struct.Struct("=IiQ")
#: struct fuse_init_out: major, minor, max_readahead, flags, max_background, congestion_threshold, max_write,
#: time_gran, max_pages, map_alignment, flags2, max_stack_depth, request_timeout, eleven reserved half words.
_INIT_OUT = struct.Struct("=IIIIHHIIHHIIH22x")


#: FUSE_NOTIFY_RESEND (7), a notification without a body (7.40): every request that was read and not answered comes
#: again, marked with bit 63 of its number.
RESEND = _OUT_HEADER.pack(_OUT_HEADER.size, 7, 0)


@dataclass(frozen=True)
class InitRequest:
    """The kernel's first message.

    Attributes:
        max_readahead: bytes; a reply can only lower it.
        flags: `InitFlag`, with the bits that have no name here.
    """

    unique: int
    major: int
    minor: int
    max_readahead: int
    flags: int

    @classmethod
    def parse(cls, message: bytes) -> "InitRequest":
        """From what read(2) of the FUSE device gave.

        Raises:
            ValueError: that is no INIT message.
        """
        if len(message) < _IN_HEADER.size + _INIT_IN.size:
            raise ValueError(f"an INIT message of {len(message)} bytes is too short")
        length, opcode, unique, *_ = _IN_HEADER.unpack_from(message)
        if length != len(message) or opcode != _OPCODE:
            raise ValueError(f"not an INIT message: operation {opcode}, {length} bytes in {len(message)}")
        major, minor, max_readahead, flags = _INIT_IN.unpack_from(message, _IN_HEADER.size)
        if flags & InitFlag.INIT_EXT:
            if len(message) < _IN_HEADER.size + _INIT_IN.size + _INIT_IN_MORE.size:
                raise ValueError(f"an INIT message of {len(message)} bytes is too short for its flags")
            (more,) = _INIT_IN_MORE.unpack_from(message, _IN_HEADER.size + _INIT_IN.size)
            flags |= more << 32
        return cls(unique, major, minor, max_readahead, flags)

    def to_bytes(self) -> bytes:
        """The message as a kernel of this protocol version sends it."""
        body = _INIT_IN.pack(self.major, self.minor, self.max_readahead, self.flags & _LOW_BITS)
        if self.minor >= _LONG_REQUEST_MINOR:
            body += _INIT_IN_MORE.pack(self.flags >> 32)
        return _IN_HEADER.pack(_IN_HEADER.size + len(body), _OPCODE, self.unique, 0, 0, 0, 0, 0, 0) + body


@dataclass(frozen=True)
class InitReply:
    """What the kernel is told.

    Attributes:
        max_background: requests that the kernel has in flight without a process waiting in each: read-ahead, which is
            every buffered read, and asynchronous O_DIRECT.  It lowers it for ordinary users to a share of the memory.
        congestion_threshold: beyond it the kernel holds speculative read-ahead back.
        max_write, max_readahead: bytes.
        max_pages: of one request, reads too.
        time_gran_ns: resolution of time stamps.
    """

    unique: int
    minor: int
    max_readahead: int
    flags: int
    max_background: int
    congestion_threshold: int
    max_write: int
    time_gran_ns: int
    max_pages: int

    def to_bytes(self) -> bytes:
        """What write(2) to the FUSE device takes."""
        body = _INIT_OUT.pack(
            _MAJOR, self.minor, self.max_readahead, self.flags & _LOW_BITS, self.max_background,
            self.congestion_threshold, self.max_write, self.time_gran_ns, self.max_pages, 0, self.flags >> 32, 0, 0,
        )  # fmt: skip
        return _OUT_HEADER.pack(_OUT_HEADER.size + len(body), 0, self.unique) + body


@dataclass(frozen=True)
class Wishes:
    """What this program wants of a kernel that can do everything.

    Attributes:
        max_background: libfuse leaves it at 12, a fifth of the throughput of 64 readers at 30 ms (measured).
        request_bytes: larger requests than 1 MiB are slower again (measured).
        time_gran_ns: all times shown are whole seconds.
    """

    max_background: int = MIN_BACKGROUND
    request_bytes: int = MIB
    max_readahead: int = MIB
    time_gran_ns: int = 1_000_000_000
    flags: int = GRANTED


def background_limit(connections: int) -> int:
    """The requests that the kernel may have in the background where so many GETs may be in flight: one for each."""
    return min(max(MIN_BACKGROUND, connections), _MAX_BACKGROUND)


class Agreement(NamedTuple):
    """What the kernel is told, and the INIT message from which libfuse comes to believe the same."""

    reply: InitReply
    offer: InitRequest


def agree(kernel: InitRequest, wishes: Wishes, *, page_size: int, pages_limit: int = MAX_PAGES) -> Agreement:
    """Settle a connection.

    Args:
        pages_limit: of one request, by the administrator (fs.fuse.max_pages_limit); libfuse's buffer is
            no larger, and the kernel refuses to hand requests to a buffer smaller than `max_write`.

    Raises:
        ValueError: this kernel speaks a protocol that this module does not.
    """
    version = f"{kernel.major}.{kernel.minor}"
    if kernel.major != _MAJOR or kernel.minor < _OLDEST_MINOR:
        raise ValueError(f"the kernel speaks FUSE {version}, not {_MAJOR}.{_OLDEST_MINOR} or newer")
    flags = kernel.flags & wishes.flags
    if not flags & InitFlag.DO_READDIRPLUS:
        raise ValueError(f"the kernel (FUSE {version}) cannot list directories with attributes")
    if not flags & InitFlag.INIT_EXT:
        flags &= _LOW_BITS
    most_pages = min(pages_limit, MAX_PAGES) if flags & InitFlag.MAX_PAGES else _PAGES_WITHOUT_FLAG
    pages = max(1, min(wishes.request_bytes // page_size, most_pages))
    reply = InitReply(
        unique=kernel.unique,
        minor=min(kernel.minor, _NEWEST_MINOR),
        max_readahead=min(kernel.max_readahead, wishes.max_readahead),
        flags=flags,
        max_background=wishes.max_background,
        congestion_threshold=wishes.max_background * 3 // 4,
        max_write=pages * page_size,
        time_gran_ns=wishes.time_gran_ns,
        max_pages=pages if flags & InitFlag.MAX_PAGES else 0,
    )
    return Agreement(reply, InitRequest(SYNTHETIC_UNIQUE, _MAJOR, reply.minor, reply.max_readahead, flags))
