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
