"""The command's first step: the interpreter starts again with malloc(3) as its allocator.

CPython's own allocator gives memory back by the MiB, and one object that stays keeps a MiB: of what the names of a
`find` took hardly anything went back, and with malloc and a trim most of it does
(docs/decisions/0014-malloc-instead-of-pymalloc.md).  The allocator is chosen by the environment, before
the interpreter starts, so the command replaces itself: 20 ms, once.

Nothing heavy is imported before that.
"""

import gc
import os
import sys
from importlib import import_module

_CHOICE = "PYTHONMALLOC"
#: Free blocks that a thread keeps for itself, of each size: without them it takes the heap's lock, which the CRT's
#: threads want, too.  7 by default; with 400 listing a name costs a tenth less (measured).  Only of small sizes: of all
#: up to 1 KiB a thread would keep 14 MB, which fill up over hours and which no trim gives back; so it is 1 MB at most.
_TUNABLES = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=400:glibc.malloc.tcache_max=256:glibc.malloc.arena_max=1"}


def main() -> None:
    """What `s3mount` on the command line runs; a PYTHONMALLOC of the user's own is respected."""
    _run("s3mount.cli.mount")


def mount_helper() -> None:
    """What mount(8) runs: `mount.s3mount`, `mount.fuse.s3mount`."""
    _run("s3mount.cli.helper")


def _run(module: str) -> None:
    _start_again()
    gc.disable()  # what is imported stays: looking for garbage among it is a tenth of the start
    command = import_module(module).main
    gc.enable()
    command()


def _start_again() -> None:
    if _CHOICE not in os.environ and sys.executable:
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**_TUNABLES, **os.environ, _CHOICE: "malloc"})
