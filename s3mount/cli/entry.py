"""The command's first step: the interpreter starts again with malloc(3) as its allocator.

CPython's own allocator gives memory back by the MiB, and one object that stays keeps a MiB: after a million names
came and went the daemon stayed 600 MB larger, and with malloc and a trim it does not
(docs/decisions/0014-malloc-instead-of-pymalloc.md).  The allocator is chosen by the environment, before
the interpreter starts, so the command replaces itself: 20 ms, once.

Nothing heavy is imported before that.
"""

import os
import sys

_CHOICE = "PYTHONMALLOC"


def main() -> None:
    """What `s3mount` on the command line runs; a PYTHONMALLOC of the user's own is respected."""
    if _CHOICE not in os.environ and sys.executable:
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, _CHOICE: "malloc"})
    from s3mount.cli.mount import main as mount  # noqa: PLC0415  after the new start

    mount()
