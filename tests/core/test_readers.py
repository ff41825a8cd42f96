"""Whose time is counted, who has most, and what it costs."""

import pytest

from s3mount.core.prices import cost_usd
from s3mount.core.readers import PAUSE_S, ReaderSeconds, ReaderTime
from s3mount.core.tops import Share, Tops


def test_a_reader_reads_through_short_pauses() -> None:
    """The time of a reader runs while it has anything open and through short pauses, and in no longer one."""
    time = ReaderTime()
    time.opened(1, 7, 0.0)
    time.opened(1, 7, 1.0)
    time.closed(1, 2.0)
    assert time.seconds(3.0) == {7: ReaderSeconds(3.0, 0.0)}
    time.closed(1, 4.0)
    assert time.seconds(100.0)[7].total == 4.0
    time.opened(1, 7, 4.0 + PAUSE_S)
    time.closed(1, 5.0 + PAUSE_S)
    assert time.seconds(100.0)[7].total == 5.0 + PAUSE_S
    time.opened(1, 7, 1000.0)
    time.closed(1, 1001.0)
    assert time.seconds(2000.0)[7].total == 6.0 + PAUSE_S
    time.check_invariants()


def test_calls_side_by_side_are_one_wait() -> None:
    """A reader of whose calls several wait at once waits once; two readers wait each for themselves."""
    time = ReaderTime()
    time.waits(1, 7, 0.0)
    time.waits(1, 7, 1.0)
    time.goes_on(1, 2.0)
    assert time.seconds(3.0) == {7: ReaderSeconds(3.0, 3.0)}
    time.goes_on(1, 4.0)
    time.waits(2, 7, 10.0)
    time.goes_on(2, 11.0)
    time.check_invariants()
    assert time.seconds(50.0) == {7: ReaderSeconds(5.0, 5.0)}


def test_many_readers_and_groups_are_bounded() -> None:
    """However many come, no time is lost: what was forgotten is under group 0."""
    time = ReaderTime()
    for number in range(1, 10_001):
        time.opened(number, number, float(number))
        time.closed(number, number + 0.5)
    found = time.seconds(20_000.0)
    assert len(found) <= 257
    assert sum(each.total for each in found.values()) == 5000.0
    assert found[0].total > 4000.0


def test_a_close_too_many_changes_nothing() -> None:
    """A handle that an earlier daemon gave out may be closed without having been opened."""
    time = ReaderTime()
    time.closed(1, 5.0)
    time.opened(1, 7, 6.0)
    time.closed(1, 7.0)
    time.closed(1, 8.0)
    assert time.seconds(9.0) == {7: ReaderSeconds(1.0, 0.0)}
    time.check_invariants()


def test_the_largest_stay() -> None:
    """Of a hundred thousand names the few with most bytes are known exactly, and not many others are kept."""
    tops: Tops[str] = Tops(100)
    for number in range(100_000):
        tops.add(f"small-{number}", 1)
        tops.add(f"large-{number % 10}", 1000)
    tops.check_invariants()
    assert tops.largest(10) == [(f"large-{number}", Share(10_000_000, 10_000)) for number in range(10)]
    assert len(tops.largest(100_000)) <= 200


def test_what_requests_cost() -> None:
    """A million GETs cost 40 cents, a million LISTs 5 dollars, DELETE nothing; an unknown kind is an error."""
    assert cost_usd({"get": 1_000_000}) == pytest.approx(0.40)
    assert cost_usd({"list": 1_000_000, "delete": 1_000_000}) == pytest.approx(5.0)
    with pytest.raises(KeyError):
        cost_usd({"nonsense": 1})
