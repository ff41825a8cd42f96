"""Another /dev, another /etc, another user: shell scripts in a mount namespace of their own.

What a script mounts is seen by nobody else and is gone with its last process.
"""

import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.support.mounts import aws_environment

#: Linux numbers its devices for good (Documentation/admin-guide/devices.txt).
_BARE_DEV = """
mount -t tmpfs -o mode=755 tmpfs /dev
mknod -m 666 /dev/null c 1 3
mknod -m 666 /dev/urandom c 1 9
"""
#: /dev/fuse as distributions have it; some containers give it to root only.
PUBLIC_FUSE_DEV = _BARE_DEV + "mknod -m 666 /dev/fuse c 10 229\n"
NO_FUSE_DEV = _BARE_DEV
NOBODY = 65534


def in_namespace(script: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The script as root; it ends at the first command that fails."""
    return subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script],
        env=dict(env or aws_environment()),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def over(source: Path | str, target: str) -> str:
    """The line of a script that puts one file in the place of another."""
    return f"mount --bind {shlex.quote(str(source))} {target}\n"


def as_nobody(*command: str) -> str:
    """The line of a script that runs a command as an ordinary user.

    It may read what root may, because the program under test can lie where only root can look.
    """
    rights = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    return shlex.join(["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *rights, *command]) + "\n"
