"""What a service manager keeps of a mount, so that it outlives the mounter, too.

The device, the memory files of the daemons, and what the mounter knows, as JSON in a memory file.  A version of the
program reads what an older one kept; what it cannot read is a mount that nobody serves, and is unmounted.
"""

import json
import os
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from s3mount.fuse.device import Device
from s3mount.fuse.handshake import InitRequest
from s3mount.mounter.channel import MEMORIES

_DEVICE, _FACTS = "s3mount-device", "s3mount-facts"
#: All that may be kept, by name.
KEPT = (_DEVICE, _FACTS, *(f"s3mount-{name}" for name in MEMORIES))


class Kept(NamedTuple):
    """A mount without processes.

    Attributes:
        facts: what the first daemon found out.
    """

    mount_point: str
    device: Device
    offer: InitRequest
    memories: list[int]
    facts: dict[str, Any]


def to_keep(
    mount_point: str, device: int, offer: InitRequest, memories: Sequence[int], facts: Mapping[str, Any]
) -> dict[str, int]:
    """Descriptors by name; the one of the facts is new."""
    text = {"mount_point": mount_point, "offer": offer.to_bytes().hex(), "facts": dict(facts)}
    fd = os.memfd_create(_FACTS, os.MFD_CLOEXEC)
    os.write(fd, json.dumps(text).encode())
    return dict(zip(KEPT, (device, fd, *memories), strict=False))


def kept(descriptors: Mapping[str, int], directory: str) -> Kept | None:
    """A mount that lives; any other that was kept is ended.

    Args:
        descriptors: by name; all of `KEPT` are taken.
        directory: where it must be, as the user says it; it is not touched, since nobody answers there.
    """
    ours = {name: descriptors[name] for name in KEPT if name in descriptors}
    if not ours:
        return None
    for fd in ours.values():
        os.set_inheritable(fd, False)  # noqa: FBT003
    parent, name = os.path.split(os.path.abspath(directory))
    path = os.path.join(os.path.realpath(parent), name)
    found = _read(ours)
    if found is not None and found.mount_point == path and found.device.is_connected():
        os.close(ours[_FACTS])
        return found
    if _DEVICE in ours:
        Device(ours.pop(_DEVICE), path if found is None else found.mount_point).close()
    for fd in ours.values():
        os.close(fd)
    return None


def _read(ours: Mapping[str, int]) -> Kept | None:
    """None where something is missing or makes no sense."""
    try:
        with open(ours[_FACTS], "rb", closefd=False) as file:
            file.seek(0)
            text = json.loads(file.read())
        mount_point, facts = text["mount_point"], text["facts"]
        offer = InitRequest.parse(bytes.fromhex(text["offer"]))
        memories = [ours[name] for name in takewhile(ours.__contains__, KEPT[2:])]
        return Kept(mount_point, Device(ours[_DEVICE], mount_point), offer, memories, facts)
    except (KeyError, OSError, TypeError, ValueError):
        return None
