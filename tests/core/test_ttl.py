"""Times to live: words, durations, and what the kernel is told of them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3mount.core.ttl import INDEFINITE, MINIMAL, TimeToLive, parse_ttl

HUNDRED_YEARS_S = 100 * 365 * 86400


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("minimal", MINIMAL),
        (" Minimal ", MINIMAL),
        ("indefinite", INDEFINITE),
        ("INDEFINITE", INDEFINITE),
        ("0", MINIMAL),
        ("0s", MINIMAL),
        ("1", TimeToLive(1.0)),
        ("60", TimeToLive(60.0)),
        ("500ms", TimeToLive(0.5)),
        ("5min", TimeToLive(300.0)),
        ("1 d", TimeToLive(86400.0)),
        (f"{HUNDRED_YEARS_S}", TimeToLive(HUNDRED_YEARS_S)),
    ],
)
def test_words_and_durations(text: str, expected: TimeToLive) -> None:
    """Two words in any case, a duration with a unit or in seconds, and 0 as the minimum."""
    assert parse_ttl(text) == expected


@pytest.mark.parametrize("text", ["", "never", "-1", "1 week", "nan", "inf", "minimal 1", "1e3"])
def test_other_text_is_refused(text: str) -> None:
    """The message quotes what was written and says what may be."""
    with pytest.raises(ValueError, match=r"minimal, indefinite, or a duration") as raised:
        parse_ttl(text)
    assert repr(text) in str(raised.value)


@pytest.mark.parametrize("text", [f"{HUNDRED_YEARS_S + 1}", "36501d", "9" * 18])
def test_more_than_a_hundred_years_is_refused(text: str) -> None:
    """A time that long is a slip, or means indefinite."""
    with pytest.raises(ValueError, match="write indefinite"):
        parse_ttl(text)


def test_minimal_is_one_second() -> None:
    """The minimum is a second and says that it is the minimum; a written second is not."""
    assert (MINIMAL.seconds, MINIMAL.is_minimal) == (1.0, True)
    assert not parse_ttl("1").is_minimal


@given(seconds=st.one_of(st.floats(0, HUNDRED_YEARS_S), st.just(math.inf)))
def test_the_kernel_is_told_a_finite_time(seconds: float) -> None:
    """The kernel gets the time itself, or 100 years for no end."""
    expected = HUNDRED_YEARS_S if math.isinf(seconds) else seconds
    assert TimeToLive(seconds).kernel_limit_s == expected
