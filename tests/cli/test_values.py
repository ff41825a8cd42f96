"""click types: text on the command line becomes bytes, seconds or mode bits, or a message."""

from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3mount.cli.values import DURATION, MODE, OUTAGE, size_in
from s3mount.units import KIB, MIB


def convert(kind: click.ParamType[Any], text: Any) -> Any:
    """The value of an option of this type."""
    return kind.convert(text, None, None)


@given(st.integers(0, 0o777))
def test_every_mode(mode: int) -> None:
    """Octal digits mean themselves, with and without a leading zero."""
    assert convert(MODE, f"{mode:o}") == mode
    assert convert(MODE, f"0{mode:o}") == mode


@pytest.mark.parametrize("text", ["", "8", "0888", "rwx", "-1", "1000", "07777", "0x1ff", "6 4", "644.0"])
def test_not_a_mode(text: str) -> None:
    """Decimal digits, letters, signs, and bits above 0777 are refused with what to write."""
    with pytest.raises(click.BadParameter, match="write octal digits from 0 to 0777"):
        convert(MODE, text)


@pytest.mark.parametrize(
    ("unit", "text", "n_bytes"),
    [
        (1, "8388608", 8 * MIB),
        (1, "8MiB", 8 * MIB),
        (1, "8 mib", 8 * MIB),
        (MIB, "512", 512 * MIB),
        (MIB, "512MiB", 512 * MIB),
        (MIB, "64k", 64 * KIB),
        (MIB, "1.5", 3 * MIB // 2),
    ],
)
def test_sizes(unit: int, text: str, n_bytes: int) -> None:
    """A bare number counts in the option's own unit, a number with a unit in that one."""
    assert convert(size_in(unit), text) == n_bytes


@pytest.mark.parametrize("text", ["", "x", "-1", "8 apples", "1e6", "nan", "inf", "0x10", "8,5"])
def test_not_a_size(text: str) -> None:
    """Nonsense is refused with what to write."""
    with pytest.raises(click.BadParameter, match="is not a size; write a number with KiB, MiB or GiB"):
        convert(size_in(1), text)


@pytest.mark.parametrize(("text", "seconds"), [("60", 60.0), ("1.5s", 1.5), ("500ms", 0.5), ("2min", 120.0)])
def test_durations(text: str, seconds: float) -> None:
    """A bare number is seconds."""
    assert convert(DURATION, text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1", "1 fortnight", "nan", "inf"])
def test_not_a_duration(text: str) -> None:
    """Nonsense is refused with what to write."""
    with pytest.raises(click.BadParameter, match="is not a duration; write a number with s, min or h"):
        convert(DURATION, text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("wait", 90.0), ("wait:30", 30.0), ("wait:5min", 300.0), ("wait:0.5s", 0.5), ("error", 0.0)]
)
def test_outages(text: str, seconds: float) -> None:
    """How long S3 is waited for; an error at once is no wait at all."""
    assert convert(OUTAGE, text) == seconds


@pytest.mark.parametrize("text", ["", "Wait", "wait:", "wait:0", "wait:soon", "error:5", "30"])
def test_not_an_outage(text: str) -> None:
    """Nonsense is refused with what to write."""
    with pytest.raises(click.BadParameter, match="write"):
        convert(OUTAGE, text)


@pytest.mark.parametrize("kind", [MODE, DURATION, OUTAGE, size_in(1)])
def test_a_value_stays_itself(kind: click.ParamType[Any]) -> None:
    """A default that is a number already is not parsed again (click converts defaults too)."""
    assert convert(kind, 5) == 5
