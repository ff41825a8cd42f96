"""Mounting by a service beside this one, for a daemon that may not mount and whose mounts the host would not see.

A unit that systemd confines has a mount namespace of its own and no privilege.  What it must have done outside is
asked of `mounter.privileged`, which knows for itself on which directory:

    →  {"verb": "mount", "options": [...]}      ←  {}  with the descriptor of the device
    →  {"verb": "unmount"}, {"verb": "abort"}, {"verb": "read-ahead", "kib": N}      ←  {}
                                                ←  {"errno": N, "message": ...}  to any of them

One packet each way, on a connection of its own.  Whether there is such a service is said by the environment, which all
processes of a mount inherit.
"""

import json
import logging
import os
import socket
from collections.abc import Set
from typing import Any

log = logging.getLogger(__name__)

#: The path of the service's socket; the unit sets it.
ADDRESS = "S3MOUNT_MOUNT_SOCKET"
MAX_PACKET = 1 << 16
#: Seconds for an answer.  Unmounting and aborting do not wait for anybody.
_ANSWER_S = 10.0


def is_there() -> bool:
    """Whether this process mounts by a service."""
    return ADDRESS in os.environ


def mount(options: Set[str]) -> int:
    """The descriptor of a new mount.

    Raises:
        OSError: the service is not there, or refused.
    """
    (fd,) = _call({"verb": "mount", "options": sorted(options)})
    return fd


def ask(verb: str, **facts: Any) -> bool:
    """Have anything else done; whether it was.  What failed is in the log."""
    try:
        _call({"verb": verb, **facts})
    except OSError as error:
        level = logging.INFO if verb == "read-ahead" else logging.WARNING
        log.log(level, "the mount service did not %s: %s", verb, error)
        return False
    return True


def _call(request: dict[str, Any]) -> list[int]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC) as sock:
        sock.settimeout(_ANSWER_S)
        sock.connect(os.environ[ADDRESS])
        sock.send(json.dumps(request).encode())
        packet, descriptors, _, _ = socket.recv_fds(sock, MAX_PACKET, 1)
    for fd in descriptors:
        os.set_inheritable(fd, False)  # noqa: FBT003  recv_fds leaves out its flags, and so MSG_CMSG_CLOEXEC
    answer = json.loads(packet) if packet else {"errno": 0, "message": "the mount service went away"}
    if "message" in answer:
        raise OSError(answer["errno"], answer["message"])
    return list(descriptors)
