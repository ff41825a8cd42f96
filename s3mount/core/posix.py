"""Mode, owner and time of a file as the metadata of its object: what is written, and what is understood.

    mode     0100644       octal, with the bits of a regular file or a link
    uid gid  1000          decimal
    mtime    1700000000    seconds since the epoch, decimal

s3fs and rclone read these.  Understood is what they write, too: a mode in decimal (33188), or without its kind; a time
with a fraction, which is cut off.  A mode is decimal if that gives the kind that is expected; else octal, if that
does, or if it has three or four digits.  Anything else says nothing: no value of another client is an error here.

Of a mode the permission bits count and the sticky one; set-user-id and set-group-id would be whoever's may write the
bucket.
"""

import re
import stat
from collections.abc import Mapping
from typing import NamedTuple

#: What the program that set them may set, and what is read.
_BITS = 0o1777
#: chown(2): the largest number is none.
_MAX_ID = (1 << 32) - 2
#: The kernel's nanoseconds in 64 bits end in the year 2262.
_MAX_TIME = 9_000_000_000
#: ASCII digits, which `str.isdigit` is not.
_ID = re.compile(r"[0-9]{1,10}")
_TIME = re.compile(r"(-?[0-9]{1,10})(\.[0-9]{0,30})?")
_OCTAL = re.compile(r"(?:0o)?([0-7]{1,8})")
_DECIMAL = re.compile(r"[1-9][0-9]{0,8}")


class Posix(NamedTuple):
    """What is said of a file; None for what is not.

    Attributes:
        mode: permission bits.
        mtime_s: whole seconds since the epoch.
    """

    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    mtime_s: int | None = None

    def unlike(self, other: "Posix") -> "Posix":
        """What is said otherwise here than there."""
        return Posix(*(None if mine == theirs else mine for mine, theirs in zip(self, other, strict=True)))

    @property
    def as_kept(self) -> "Posix":
        """What can be written of it."""
        return parsed(formatted(self))


NOTHING_SAID = Posix()
#: Names of metadata.
NAMES = (*Posix._fields[:-1], "mtime")


def formatted(posix: Posix, *, is_link: bool = False) -> dict[str, str]:
    """Metadata that says it."""
    kind = stat.S_IFLNK if is_link else stat.S_IFREG
    mode = None if posix.mode is None else f"0{kind | posix.mode & _BITS:o}"
    said = zip(NAMES, (mode, posix.uid, posix.gid, posix.mtime_s), strict=True)
    return {name: str(value) for name, value in said if value is not None}


def parsed(metadata: Mapping[str, str]) -> Posix:
    """What the metadata of a file's object says."""
    return Posix(
        _mode(metadata.get("mode", "").strip()),
        _id(metadata.get("uid", "").strip()),
        _id(metadata.get("gid", "").strip()),
        _time(metadata.get("mtime", "").strip()),
    )


def _mode(text: str) -> int | None:
    if _DECIMAL.fullmatch(text) and _is_file(int(text)):
        return int(text) & _BITS
    match = _OCTAL.fullmatch(text)
    if match is None:
        return None
    mode = int(match[1], 8)
    is_bare = mode <= stat.S_IMODE(mode) and 3 <= len(match[1].lstrip("0")) <= 4
    return mode & _BITS if is_bare or _is_file(mode) else None


def _is_file(mode: int) -> bool:
    return mode >> 16 == 0 and stat.S_IFMT(mode) in (stat.S_IFREG, stat.S_IFLNK)


def _id(text: str) -> int | None:
    return int(text) if _ID.fullmatch(text) and int(text) <= _MAX_ID else None


def _time(text: str) -> int | None:
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    seconds = int(match[1])
    has_fraction = bool((match[2] or ".").strip(".0"))
    if text.startswith("-") and has_fraction:
        seconds -= 1
    return seconds if abs(seconds) <= _MAX_TIME else None
