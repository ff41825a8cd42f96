"""A daemon beside a mounter, of which a test is the other end: whatever is said or not said, and in whatever order."""

import os
from collections.abc import Iterator

import pytest

from s3mount.daemon.tenant import Tenant
from s3mount.errors import FuseUnavailable
from s3mount.fuse.handshake import InitFlag, InitRequest
from s3mount.fuse.options import FuseConfig
from s3mount.mounter.channel import Channel

_FACTS = {"region": "us-east-1", "started_s": 1}
_OFFER = InitRequest(unique=2, major=7, minor=45, max_readahead=0, flags=InitFlag.HAS_RESEND)


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    """The daemon's, and the mounter's."""
    ours, theirs = Channel.pair()
    yield ours, theirs
    ours.close()
    theirs.close()


async def test_no_turn_comes_from_a_mounter_that_is_gone(ends: tuple[Channel, Channel]) -> None:
    """A standby whose mounter ends takes nothing over: what it shares with the daemon that goes on is not touched."""
    ours, theirs = ends
    tenant = Tenant(ours, [], _FACTS)
    theirs.close()
    with pytest.raises(FuseUnavailable, match="takes nothing over"):
        await tenant.turn()


async def test_a_turn_begins_with_the_device(ends: tuple[Channel, Channel]) -> None:
    """Whatever else is said to a daemon that waits for its turn is passed over."""
    ours, theirs = ends
    tenant = Tenant(ours, [], _FACTS)
    for kind in ("drain", "busy?", "go"):
        theirs.send(kind, is_to_blame=kind == "go")
    await tenant.turn()
    assert tenant.is_to_blame


async def test_a_restart_that_is_refused_while_the_first_daemon_starts(ends: tuple[Channel, Channel]) -> None:
    """The answer to a restart that nobody can do yet is not taken for the mount, so libfuse does not mount another."""
    ours, theirs = ends
    fd = os.memfd_create("device")
    theirs.send("cannot", reason="libfuse made this mount")
    theirs.send("mounted", [fd], offer=_OFFER.to_bytes().hex())
    connection = Tenant(ours, []).connect(FuseConfig("/nowhere", "x"))
    assert os.fstat(connection.device.fd).st_ino == os.fstat(fd).st_ino
    assert not connection.is_taken_over
    os.close(connection.device.fd)
    os.close(fd)


def test_a_mounter_hears_that_memory_is_short(ends: tuple[Channel, Channel]) -> None:
    """The start and the end of a shortage are a message each, and no error when the mounter is gone."""
    ours, theirs = ends
    tenant = Tenant(ours, [])
    for is_short in (True, False):
        tenant.memory_is_short(is_short=is_short)
        assert theirs.receive() == ("memory", {"is_short": is_short}, [])
    theirs.close()
    tenant.memory_is_short(is_short=True)
