"""The INIT exchange: recorded and constructed messages of kernels, every broken one, and the real libfuse's belief."""

import os
import socket
import struct

import pyfuse3
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from s3mount.fuse.device import introduce
from s3mount.fuse.handshake import (
    GRANTED,
    MAX_PAGES,
    SYNTHETIC_UNIQUE,
    Agreement,
    InitFlag,
    InitRequest,
    Wishes,
    agree,
    granted_for,
)
from s3mount.units import KIB, MIB

PAGE = 4 * KIB
#: Read from /dev/fuse of Linux 6.18.
RECORDED = bytes.fromhex(
    "680000001a0000000200000000000000" + "00" * 24 + "070000002d00000000000200fbffff73fd050000" + "00" * 44
)


def made(minor: int, flags: int, flags2: int | None = None) -> bytes:
    """A message by the documented layout: 16 bytes of body before 7.36, 64 since."""
    body = struct.pack("<IIII", 7, minor, 128 * KIB, flags)
    if flags2 is not None:
        body += struct.pack("<I", flags2) + bytes(44)
    return struct.pack("<IIQQIIII", 40 + len(body), 26, 2, 0, 0, 0, 0, 0) + body


#: What kernels of these versions offer, by their include/uapi/linux/fuse.h and fs/fuse/inode.c.
KERNELS = {
    "7.23": made(23, 0x0003FFFB),
    "7.31": made(31, 0x03FFFFFB),
    "7.36": made(36, 0x73FFFFFB, 0x1),
    "7.38": made(38, 0x73FFFFFB, 0xD),
    "7.45": RECORDED,
}


def settled(message: bytes, wishes: Wishes | None = None, pages_limit: int = MAX_PAGES) -> Agreement:
    return agree(InitRequest.parse(message), wishes or Wishes(), page_size=PAGE, pages_limit=pages_limit)


class Told:
    """A reply as the kernel reads it: struct fuse_out_header, then struct fuse_init_out."""

    def __init__(self, message: bytes) -> None:
        length, self.error, self.unique = struct.unpack_from("<IiQ", message)
        assert length == len(message) == 16 + 64
        self.major, self.minor, self.max_readahead, low = struct.unpack_from("<IIII", message, 16)
        self.max_background, self.congestion_threshold = struct.unpack_from("<HH", message, 32)
        self.max_write, self.time_gran = struct.unpack_from("<II", message, 36)
        self.max_pages, self.map_alignment, high = struct.unpack_from("<HHI", message, 44)
        self.flags = low | (high << 32 if low & InitFlag.INIT_EXT else 0)
        self.rest = message[52:]


# -- the kernel's message ---------------------------------------------------------------------


def test_the_recorded_message() -> None:
    """The message of a real kernel is read field by field, with the upper half of its flags."""
    kernel = InitRequest.parse(RECORDED)
    assert kernel == InitRequest(unique=2, major=7, minor=45, max_readahead=128 * KIB, flags=0x5FD_73FF_FFFB)
    assert InitRequest.parse(KERNELS["7.31"]).flags == 0x03FF_FFFB


@pytest.mark.parametrize("version", KERNELS)
def test_a_message_is_written_as_it_was_read(version: str) -> None:
    """Reading and writing loses nothing that a kernel says, in the length its version has."""
    assert InitRequest.parse(KERNELS[version]).to_bytes() == KERNELS[version]


@given(
    st.builds(
        InitRequest,
        unique=st.integers(0, 2**64 - 1),
        major=st.integers(0, 2**32 - 1),
        minor=st.integers(36, 2**32 - 1),
        max_readahead=st.integers(0, 2**32 - 1),
        flags=st.integers(0, 2**64 - 1).map(lambda flags: flags | InitFlag.INIT_EXT),
    )
)
def test_any_message_comes_back(request_: InitRequest) -> None:
    """What is written is read again, whatever the numbers are."""
    assert InitRequest.parse(request_.to_bytes()) == request_


@pytest.mark.parametrize("version", KERNELS)
def test_a_cut_message_is_refused(version: str) -> None:
    """A message without its last byte, or any number of them, is a ValueError; so is one with a byte too many."""
    message = KERNELS[version]
    for broken in [*(message[:length] for length in range(len(message))), message + b"\0"]:
        with pytest.raises(ValueError, match="INIT message"):
            InitRequest.parse(broken)


def test_a_message_shorter_than_its_flags_is_refused() -> None:
    """A kernel that announces the second half of the flags and does not send it is not believed."""
    with pytest.raises(ValueError, match="too short for its flags"):
        InitRequest.parse(made(36, InitFlag.INIT_EXT))


def test_another_operation_is_refused() -> None:
    """A descriptor whose connection is open already gives other messages than INIT."""
    lookup = struct.pack("<IIQQIIII", 56, 1, 4, 1, 0, 0, 0, 0) + b"some-name-of-16\0"
    with pytest.raises(ValueError, match="operation 1"):
        InitRequest.parse(lookup)


@given(st.binary(max_size=128))
def test_garbage_is_refused(message: bytes) -> None:
    """Bytes of any kind are read or refused by ValueError; nothing else happens."""
    try:
        InitRequest.parse(message)
    except ValueError:
        return
    assert message[4] == 26


# -- the reply --------------------------------------------------------------------------------


def test_what_a_new_kernel_is_told() -> None:
    """A kernel that can do everything gets every wish, in the places where it looks for them."""
    told = Told(settled(RECORDED).reply.to_bytes())
    assert (told.error, told.unique, told.major, told.minor) == (0, 2, 7, 40)
    assert (told.max_background, told.congestion_threshold) == (256, 192)
    assert (told.max_write, told.max_pages, told.max_readahead) == (MIB, 256, 128 * KIB)
    assert told.time_gran == 1_000_000_000
    assert told.flags == GRANTED
    assert told.flags >> 39 == 1  # HAS_RESEND, in the second half
    assert told.map_alignment == 0
    assert not any(told.rest[4:])  # after max_stack_depth everything is reserved


def test_what_older_kernels_are_told() -> None:
    """Nothing that a kernel did not offer is in the reply: no second half before 7.36, 128 KiB before 7.28."""
    told = Told(settled(KERNELS["7.31"]).reply.to_bytes())
    assert (told.minor, told.max_write, told.max_pages) == (31, MIB, 256)
    assert told.flags == GRANTED & ~(InitFlag.INIT_EXT | InitFlag.HAS_RESEND)
    told = Told(settled(KERNELS["7.36"]).reply.to_bytes())
    assert told.flags == GRANTED & ~InitFlag.HAS_RESEND
    told = Told(settled(KERNELS["7.23"]).reply.to_bytes())
    assert (told.max_write, told.max_pages, told.max_background) == (128 * KIB, 0, 256)
    assert not told.flags & (InitFlag.MAX_PAGES | InitFlag.PARALLEL_DIROPS | InitFlag.CACHE_SYMLINKS)


def test_no_second_half_without_its_flag() -> None:
    """A wish in the upper flags is dropped when the flag that announces them is not agreed."""
    reply = settled(RECORDED, Wishes(flags=GRANTED & ~InitFlag.INIT_EXT)).reply
    assert reply.flags == GRANTED & ~(InitFlag.INIT_EXT | InitFlag.HAS_RESEND)


def test_mapped_ids_where_the_kernel_checks_permissions() -> None:
    """ALLOW_IDMAP is wished for with default_permissions only, else the kernel refuses the connection; and not with
    allow_root, for libfuse would not know who is root.
    """
    assert granted_for({"default_permissions", "allow_other"}) == GRANTED | InitFlag.ALLOW_IDMAP
    assert granted_for({"ro"}) == GRANTED
    assert granted_for({"default_permissions", "allow_root"}) == GRANTED
    wishes = Wishes(flags=granted_for({"default_permissions", "allow_other"}))
    assert settled(RECORDED, wishes).reply.flags & InitFlag.ALLOW_IDMAP
    assert not settled(KERNELS["7.36"], wishes).reply.flags & InitFlag.ALLOW_IDMAP


def test_a_limit_of_the_administrator() -> None:
    """With fs.fuse.max_pages_limit lower than 1 MiB no larger request is asked for."""
    reply = settled(RECORDED, pages_limit=64).reply
    assert (reply.max_write, reply.max_pages) == (256 * KIB, 64)
    assert settled(RECORDED, pages_limit=65_535).reply.max_pages == 256


def test_large_pages() -> None:
    """With pages of 64 KiB a request is still 1 MiB, in fewer of them."""
    reply = agree(InitRequest.parse(RECORDED), Wishes(), page_size=64 * KIB).reply
    assert (reply.max_write, reply.max_pages) == (MIB, 16)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (made(22, 0x3FFFB), "FUSE 7.22"),
        (made(31, 0x03FFFFFB & ~InitFlag.DO_READDIRPLUS), "list directories"),
        (InitRequest(2, 8, 0, 0, 0).to_bytes(), "FUSE 8.0"),
        (InitRequest(2, 6, 31, 0, 0).to_bytes(), "FUSE 6.31"),
    ],
    ids=["too old", "no readdirplus", "major 8", "major 6"],
)
def test_kernels_that_are_refused(message: bytes, reason: str) -> None:
    """A kernel of another protocol, or without what pyfuse3 needs, is left to libfuse, with the reason."""
    with pytest.raises(ValueError, match=reason):
        settled(message)


@given(
    minor=st.integers(23, 100),
    max_readahead=st.integers(0, 2**32 - 1),
    flags=st.integers(0, 2**64 - 1).map(lambda flags: flags | InitFlag.DO_READDIRPLUS),
    max_background=st.integers(1, 65_535),
    page_size=st.sampled_from([4 * KIB, 16 * KIB, 64 * KIB]),
    pages_limit=st.integers(1, 65_535),
)
def test_every_agreement(
    *, minor: int, max_readahead: int, flags: int, max_background: int, page_size: int, pages_limit: int
) -> None:
    """The kernel is told no more than it offered, libfuse is offered what the kernel was told, and all of it fits."""
    if minor < 36:
        flags &= 0xFFFF_FFFF & ~InitFlag.INIT_EXT
    elif not flags & InitFlag.INIT_EXT:
        flags &= 0xFFFF_FFFF
    kernel = InitRequest(2, 7, minor, max_readahead, flags)
    reply, offer = agree(kernel, Wishes(max_background), page_size=page_size, pages_limit=pages_limit)
    assert reply.flags & ~kernel.flags == 0
    assert reply.flags & ~GRANTED == 0
    assert (offer.flags, offer.minor, offer.max_readahead) == (reply.flags, reply.minor, reply.max_readahead)
    assert offer.unique == SYNTHETIC_UNIQUE != reply.unique
    assert reply.minor <= minor
    assert reply.max_readahead <= max_readahead
    assert 0 <= reply.congestion_threshold <= reply.max_background == max_background
    assert page_size <= reply.max_write <= page_size * (256 if reply.flags & InitFlag.MAX_PAGES else 32)
    assert len(reply.to_bytes()) == 80
    assert InitRequest.parse(offer.to_bytes()) == offer


# -- libfuse ----------------------------------------------------------------------------------


async def libfuse_reply(offer: InitRequest) -> Told:
    """What the real libfuse, with pyfuse3's handlers, replies to a message on a socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        ours.send(offer.to_bytes())
        pyfuse3.init(pyfuse3.Operations(), f"/dev/fd/{theirs.fileno()}", {"fsname=x", "subtype=s3mount"})
        theirs.detach()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pyfuse3.main)
            with trio.fail_after(10):
                await trio.lowlevel.wait_readable(ours)
            reply = ours.recv(4096)
            nursery.cancel_scope.cancel()
        pyfuse3.close(unmount=False)
    return Told(reply)


@pytest.mark.parametrize("version", KERNELS)
async def test_libfuse_believes_what_the_kernel_was_told(version: str) -> None:
    """libfuse asks for no feature that the kernel was not granted, and its buffer fits what the kernel may send."""
    reply, offer = settled(KERNELS[version])
    believed = await libfuse_reply(offer)
    assert (believed.error, believed.unique) == (0, SYNTHETIC_UNIQUE)
    assert believed.flags & ~reply.flags == 0
    # What it leaves out is what it knows nothing of, or leaves to the program; the kernel does it alone.
    assert (
        not reply.flags & ~believed.flags & ~(InitFlag.PARALLEL_DIROPS | InitFlag.CACHE_SYMLINKS | InitFlag.HAS_RESEND)
    )
    assert (believed.max_write, believed.max_pages) == (reply.max_write, reply.max_pages)
    assert believed.max_readahead == reply.max_readahead


# -- a descriptor -----------------------------------------------------------------------------


def test_introduce_answers_the_kernel() -> None:
    """The message that waits is answered, and libfuse's comes back."""
    kernel, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with kernel, ours:
        kernel.send(RECORDED)
        offer = introduce(ours.fileno(), Wishes(max_background=99))
        told = Told(kernel.recv(4096))
    assert (told.unique, told.max_background, told.congestion_threshold) == (2, 99, 74)
    assert offer.flags == told.flags


def test_introduce_leaves_what_it_does_not_know_unanswered() -> None:
    """Nothing is written to a descriptor that does not open with INIT, or is at its end."""
    kernel, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with kernel, ours:
        kernel.send(b"something else")
        with pytest.raises(ValueError, match="too short"):
            introduce(ours.fileno(), Wishes())
        with pytest.raises(BlockingIOError):
            kernel.recv(4096, socket.MSG_DONTWAIT)
    with open(os.devnull, "rb") as null, pytest.raises(ValueError, match="0 bytes"):
        introduce(null.fileno(), Wishes())
