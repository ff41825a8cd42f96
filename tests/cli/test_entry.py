"""The command replaces itself once, with another allocator."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
if os.environ.get("PYTHONMALLOC"):
    import s3mount.cli.mount
    s3mount.cli.mount.main = lambda: print(os.environ["PYTHONMALLOC"], os.getpid(), *sys.argv[1:])
else:
    print(os.getpid(), flush=True)
from s3mount.cli.entry import main
assert os.environ.get("PYTHONMALLOC") or "click" not in sys.modules
main()
"""


def run(*arguments: str, **env: str) -> list[str]:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONMALLOC"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=True, env={**clean, **env}
    )
    return done.stdout.splitlines()


def test_the_command_starts_again_with_malloc() -> None:
    """The same process, with the same arguments, has the other allocator; nothing heavy was imported before."""
    first, second = run("a bucket", "--flag")
    assert second == f"malloc {first} a bucket --flag"


@pytest.mark.parametrize("choice", ["pymalloc", "malloc"])
def test_a_choice_of_the_user_is_respected(choice: str) -> None:
    """With PYTHONMALLOC set there is no second start."""
    (line,) = run("bucket", PYTHONMALLOC=choice)
    assert line.split()[0] == choice


THREADS = """
import ctypes, os, threading
if os.environ.get("PYTHONMALLOC"):
    import s3mount.cli.mount

    class Heap(ctypes.Structure):  # malloc.h, struct mallinfo2
        _fields_ = [(str(n), ctypes.c_size_t) for n in range(7)] + [("used", ctypes.c_size_t)] + [
            (str(n), ctypes.c_size_t) for n in range(8, 10)
        ]

    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = Heap
    N = 4
    filled, over = threading.Barrier(N + 1), threading.Event()

    def fill_and_free():
        for size in range(0, 1000, 8):
            blocks = [bytes(size) for _ in range(500)]
            blocks.clear()
        filled.wait()
        over.wait()

    def measure():
        threads = [threading.Thread(target=fill_and_free) for _ in range(N)]
        before = mallinfo2().used
        for each in threads:
            each.start()
        filled.wait()
        print((mallinfo2().used - before) // N)
        over.set()

    s3mount.cli.mount.main = measure
from s3mount.cli.entry import main
main()
"""


def test_what_a_thread_keeps_of_freed_blocks_is_little() -> None:
    """Of blocks of all sizes, thousands of each, that were freed a thread keeps 1 MB at most: nothing takes it back."""
    clean = {name: value for name, value in os.environ.items() if name not in {"PYTHONMALLOC", "GLIBC_TUNABLES"}}
    done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, check=True, env=clean)
    assert 0 < int(done.stdout) < 1_000_000
