"""What access(2) is told: the rules of POSIX for the caller's class."""

import os
import stat

import pytest

from s3mount.core.attrs import FileAttrs, permits

OWNER, GROUP, OTHER = (1000, 7), (2000, 100), (2000, 7)


def attrs(mode: int, kind: int = stat.S_IFREG) -> FileAttrs:
    return FileAttrs(2, kind | mode, 0, 0, 1, 1000, 100, 1.0)


@pytest.mark.parametrize(
    ("mode", "who", "granted"),
    [
        (0o400, OWNER, os.R_OK),
        (0o640, GROUP, os.R_OK),
        (0o604, OTHER, os.R_OK),
        (0o755, OTHER, os.R_OK | os.X_OK),
        (0o077, OWNER, 0),
        (0o707, GROUP, 0),
        (0o000, (0, 0), os.R_OK | os.W_OK),
        (0o100, (0, 0), os.R_OK | os.W_OK | os.X_OK),
    ],
)
def test_a_caller_has_the_bits_of_its_class(mode: int, who: tuple[int, int], granted: int) -> None:
    """The owner's bits for the owner, else the group's, else the others'; root all but executing what nobody may."""
    for wanted in range(8):
        assert permits(attrs(mode), wanted, *who) == (wanted & ~granted == 0), wanted


def test_root_may_enter_any_directory() -> None:
    """For root a directory needs no bit."""
    assert permits(attrs(0, stat.S_IFDIR), os.X_OK, 0, 0)
    assert not permits(attrs(0, stat.S_IFDIR), os.X_OK, *OTHER)
