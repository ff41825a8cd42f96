"""A bind mount whose ids are mapped, as container runtimes make them: `idmapped SOURCE TARGET FIRST`.

Owner 0 of SOURCE is FIRST below TARGET, 1 is FIRST + 1, and so on.  mount(8) can do this from util-linux 2.39 on only.
The numbers are those of every architecture (include/uapi/linux/mount.h, asm-generic/unistd.h).
"""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_CLONE, _EMPTY_PATH, _FROM_EMPTY_PATH, _HERE = 1, 0x1000, 4, -100
_IDMAP = 0x00100000
_libc = ctypes.CDLL(None, use_errno=True)


class _Attributes(ctypes.Structure):
    """struct mount_attr."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "user_namespace")]


def _call(number: int, *arguments: object) -> int:
    result: int = _libc.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def bind(source: str, target: str, first: int) -> None:
    """Raises OSError with EINVAL where the file system does not take part."""
    with subprocess.Popen(
        ["unshare", "--user", "sh", "-c", "echo; read _"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        try:
            holder.stdout.readline()
            for kind in ("uid", "gid"):
                Path(f"/proc/{holder.pid}/{kind}_map").write_text(f"0 {first} 65536", encoding="ascii")
            namespace = os.open(f"/proc/{holder.pid}/ns/user", os.O_RDONLY)
        finally:
            holder.stdin.close()
    tree = _call(_OPEN_TREE, _HERE, os.fsencode(source), _CLONE)
    wish = _Attributes(_IDMAP, 0, 0, namespace)
    _call(_MOUNT_SETATTR, tree, b"", _EMPTY_PATH, ctypes.byref(wish), ctypes.sizeof(wish))
    _call(_MOVE_MOUNT, tree, b"", _HERE, os.fsencode(target), _FROM_EMPTY_PATH)


if __name__ == "__main__":
    bind(sys.argv[1], sys.argv[2], int(sys.argv[3]))
