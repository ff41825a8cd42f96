"""Sizes, durations and counts: the only place where text becomes bytes or seconds.

INVARIANT: sizes are ints in bytes, durations are floats in seconds, everywhere inside.
"""

import re
from fractions import Fraction

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
TIB = 1024 * GIB

_SIZE_UNITS = {"": 0, "b": 1, "k": KIB, "kib": KIB, "m": MIB, "mib": MIB, "g": GIB, "gib": GIB, "t": TIB, "tib": TIB}
_TIME_UNITS = {"": 1.0, "s": 1.0, "ms": 0.001, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
#: At most 18 digits: a longer number is a slip, and as a float it may be infinite.
_NUMBER = re.compile(r"\s*(\d{1,18}(?:\.\d{1,18})?)\s*([A-Za-z]*)\s*", re.ASCII)


def parse_size(text: str, *, unit: int = 1) -> int:
    """Bytes from "8388608", "8MiB", "1.5 GiB"; a bare number counts in `unit` bytes.

    Raises:
        ValueError: not a number, an unknown unit, or negative.
    """
    match = _NUMBER.fullmatch(text)
    if match is None or match[2].lower() not in _SIZE_UNITS:
        raise ValueError(f"{text!r} is not a size; write a number with KiB, MiB or GiB")
    factor = _SIZE_UNITS[match[2].lower()] or unit
    return int(Fraction(match[1]) * factor)  # a float is exact only up to 8 PiB


def parse_duration(text: str) -> float:
    """Seconds from "60", "1.5s", "500ms", "2min", "1h".

    Raises:
        ValueError: not a number, an unknown unit, or negative.
    """
    match = _NUMBER.fullmatch(text)
    if match is None or match[2].lower() not in _TIME_UNITS:
        raise ValueError(f"{text!r} is not a duration; write a number with s, min or h")
    return float(match[1]) * _TIME_UNITS[match[2].lower()]


def format_size(n_bytes: int) -> str:
    """ "8 MiB" from 8388608: the largest binary unit that keeps one decimal readable."""
    for name, factor in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if n_bytes >= factor:
            return f"{n_bytes / factor:.1f}".removesuffix(".0") + f" {name}"
    return f"{n_bytes} B"


def counted(number: int, noun: str) -> str:
    """ "1 upload", "2 uploads": a number with its noun, whose plural ends in s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
