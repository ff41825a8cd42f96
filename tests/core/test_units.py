"""Text to bytes and seconds, and back."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3mount.units import GIB, KIB, MIB, TIB, counted, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [
        ("0", 0),
        ("8388608", 8 * MIB),
        ("8MiB", 8 * MIB),
        ("8 mib", 8 * MIB),
        ("8M", 8 * MIB),
        (" 8m ", 8 * MIB),
        ("1.5 GiB", 3 * GIB // 2),
        ("512k", 512 * KIB),
        ("2TiB", 2 * TIB),
        ("17b", 17),
        ("0.3b", 0),
    ],
)
def test_sizes_people_write(text: str, n_bytes: int) -> None:
    """Binary units in any case, with or without a space or a fraction."""
    assert parse_size(text) == n_bytes


@pytest.mark.parametrize(
    ("text", "n_bytes"), [("512", 512 * MIB), ("0.5", 512 * KIB), ("512b", 512), ("2GiB", 2 * GIB)]
)
def test_a_bare_number_counts_in_the_option_s_unit(text: str, n_bytes: int) -> None:
    """`--memory-target 512` means MiB, but a unit that is written wins."""
    assert parse_size(text, unit=MIB) == n_bytes


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "MiB", "-1", "+1", "1e3", "0x10", "nan", "inf", "1,5", "1.", ".5", "1 2", "8 MB", "8 MiBs", "8 apples",
        "1_000", "8\0", "\u0663", "9" * 400, "9" * 5000, "1." + "0" * 400,
    ],
)  # fmt: skip
@pytest.mark.parametrize("parse", [parse_size, parse_duration])
def test_nonsense_is_a_value_error(text: str, parse: Callable[[str], float]) -> None:
    """Whatever is not a number with a known unit, or is endless, raises ValueError and nothing else."""
    with pytest.raises(ValueError, match=r"is not a (size|duration); write a number with"):
        parse(text)


@given(st.text(max_size=12))
def test_any_text_is_a_number_or_a_value_error(text: str) -> None:
    """No text makes the parsers fail in another way, or give a negative or endless value."""
    for parse in (parse_size, parse_duration):
        try:
            value = parse(text)
        except ValueError:
            continue
        assert 0 <= value < math.inf


@given(st.integers(0, 10**18 - 1))
def test_a_number_of_bytes_is_exact(n_bytes: int) -> None:
    """Bytes written as digits are that many bytes, also beyond the precision of a float."""
    assert parse_size(str(n_bytes)) == n_bytes
    assert parse_size(f"{n_bytes}b", unit=MIB) == n_bytes


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("60", 60.0), ("1.5s", 1.5), ("500ms", 0.5), ("2min", 120.0), ("2 m", 120.0), ("1H", 3600.0), ("1d", 86400.0)],
)
def test_durations_people_write(text: str, seconds: float) -> None:
    """Seconds, or the unit written."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (KIB, "1 KiB"),
        (5 * MIB, "5 MiB"),
        (3 * GIB // 2, "1.5 GiB"),
        (10 * TIB, "10 TiB"),
        (5000 * TIB, "5000 TiB"),
    ],
)
def test_sizes_people_read(n_bytes: int, text: str) -> None:
    """The largest unit that fits, with a decimal only where it says something."""
    assert format_size(n_bytes) == text


@given(st.integers(0, 2**62))
def test_a_formatted_size_reads_back(n_bytes: int) -> None:
    """What is printed is accepted by the options, and is right to the decimal that is shown."""
    assert parse_size(format_size(n_bytes)) == pytest.approx(n_bytes, rel=0.051)


@pytest.mark.parametrize(("number", "text"), [(0, "0 files"), (1, "1 file"), (2, "2 files")])
def test_a_number_and_its_noun(number: int, text: str) -> None:
    """One of something is no plural, and nothing is one."""
    assert counted(number, "file") == text
