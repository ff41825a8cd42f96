"""When a GET stalls: its length and what others took, never a clock."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3mount.core.stalls import FLOOR_S, Stalls
from s3mount.units import KIB, MIB

LENGTHS = st.integers(1, 64 * MIB)
TIMES = st.floats(0, 100)


def filled(*classes: tuple[int, float], count: int = 100) -> Stalls:
    """So many GETs of each length, that all took the same time."""
    stalls = Stalls()
    for length, took_s in classes:
        for _ in range(count):
            stalls.note(length, took_s)
    return stalls


def test_nothing_is_known_at_first() -> None:
    """Ten seconds, and a second more for each 8 MiB."""
    assert Stalls().patience_s(1) == pytest.approx(10, abs=0.001)
    assert Stalls().patience_s(8 * MIB) == pytest.approx(11)
    assert Stalls().patience_s(8192 * MIB) == pytest.approx(1034)


def test_a_few_answers_say_nothing() -> None:
    """With 19 answers the patience is that of the start, with 20 it is theirs."""
    stalls = filled((MIB, 1.0), count=19)
    assert stalls.patience_s(MIB) == Stalls().patience_s(MIB)
    stalls.note(MIB, 1.0)
    assert stalls.patience_s(MIB) == pytest.approx(3.0)


def test_three_times_the_p99_of_the_length() -> None:
    """Of 200 answers two may be slower without a change; a third is the p99."""
    stalls = filled((MIB, 1.0), count=198)
    stalls.note(MIB, 9.0)
    stalls.note(MIB, 9.0)
    assert stalls.patience_s(MIB) == pytest.approx(3.0)
    stalls.note(MIB, 8.0)
    assert stalls.patience_s(MIB) == pytest.approx(24.0)


def test_each_length_has_its_own() -> None:
    """Parts of 8 MiB that take 2 s leave small files their 1.2 s, and the other way round."""
    stalls = filled((100 * KIB, 0.4), (8 * MIB, 2.0))
    assert stalls.patience_s(100 * KIB) == pytest.approx(1.2)
    assert stalls.patience_s(8 * MIB) == pytest.approx(6.0)


def test_a_length_that_was_not_seen() -> None:
    """A longer one may take so many times as long; a shorter one as long; the least that is said counts."""
    stalls = filled((MIB, 0.5))
    assert stalls.patience_s(8 * MIB) == pytest.approx(3 * 0.5 * 8)
    assert stalls.patience_s(64 * KIB) == pytest.approx(3 * 0.5)
    both = filled((MIB, 0.5), (16 * MIB, 1.0))
    assert both.patience_s(8 * MIB) == pytest.approx(3.0)


def test_never_less_than_a_second() -> None:
    """However fast the server is."""
    assert filled((MIB, 0.001)).patience_s(MIB) == FLOOR_S


def test_a_server_that_changed_is_followed() -> None:
    """After 200 answers only those count, slower or faster."""
    stalls = filled((MIB, 1.0), count=500)
    for took_s in (10.0, 0.5):
        for _ in range(200):
            stalls.note(MIB, took_s)
        assert stalls.patience_s(MIB) == pytest.approx(3 * took_s)


def test_eight_races_and_one_for_twenty_answers() -> None:
    """Eight are granted before any answer; then one for each 20 answers, and no more than eight are saved up."""
    stalls = Stalls()
    assert [stalls.grant() for _ in range(9)] == [True] * 8 + [False]
    for _ in range(19):
        stalls.note(1, 0.0)
    assert not stalls.grant()
    stalls.note(1, 0.0)
    assert stalls.grant()
    for _ in range(1000):
        stalls.note(1, 0.0)
    assert [stalls.grant() for _ in range(9)] == [True] * 8 + [False]
    assert stalls.statistics() == (1020, 17)
    stalls.check_invariants()


@given(st.lists(st.tuples(LENGTHS, TIMES), max_size=400), LENGTHS, LENGTHS)
def test_patience_follows_from_what_was_seen(seen: list[tuple[int, float]], one: int, other: int) -> None:
    """A second at least, three times the slowest for each byte at most, and more for the longer of two unknown ones."""
    stalls = Stalls()
    for length, took_s in seen:
        stalls.note(length, took_s)
    slowest = max((took_s for _, took_s in seen), default=0.0)
    start = Stalls().patience_s(one)
    assert FLOOR_S <= stalls.patience_s(one) <= max(FLOOR_S, start, 3 * slowest * max(1, 2 * one))
    short, long = sorted((one, other))
    known = {length.bit_length() for length, _ in seen}
    if not known & {short.bit_length(), long.bit_length()}:
        assert stalls.patience_s(short) <= stalls.patience_s(long)
    stalls.check_invariants()


@given(st.floats(0.001, 5), st.floats(1e6, 1e9), st.lists(LENGTHS, min_size=1, max_size=5), LENGTHS)
def test_an_ordinary_get_is_not_raced(latency_s: float, rate: float, lengths: list[int], length: int) -> None:
    """Where each GET takes a latency and a rate, none of any length stalls, however little is known of its own."""
    stalls = Stalls()
    for each in lengths * 20:
        stalls.note(each, latency_s + each / rate)
    assert latency_s + length / rate <= stalls.patience_s(length)


@given(st.lists(st.booleans(), max_size=2000))
def test_no_more_than_five_in_a_hundred(steps: list[bool]) -> None:
    """Whatever the order of answers and stalls, races are at most eight and a twentieth of the answers."""
    stalls = Stalls()
    granted = 0
    for is_answer in steps:
        if is_answer:
            stalls.note(MIB, 0.1)
        else:
            granted += stalls.grant()
    assert granted == stalls.statistics().granted <= 8 + sum(steps) / 20
    stalls.check_invariants()
