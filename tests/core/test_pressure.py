"""When memory is short, and what goes first: a rule of two marks and a clock."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3mount.core.pressure import CALM_S, MAX_NARROWING, PressureRule, Step, Use
from s3mount.units import GIB, MIB

LIMIT = 1000 * MIB
FULL, BETWEEN, EMPTY = Use(950 * MIB, LIMIT), Use(880 * MIB, LIMIT), Use(800 * MIB, LIMIT)


def test_the_marks() -> None:
    """A tenth of the limit is kept free, at most 1 GiB; memory is no longer short at one and a half times that."""
    assert (EMPTY.high, EMPTY.low) == (900 * MIB, 850 * MIB)
    assert Use(0, 64 * GIB).high == 63 * GIB
    assert [use.fullness for use in (Use(LIMIT, LIMIT), Use(900 * MIB, LIMIT), Use(850 * MIB, LIMIT))] == [1, 0, -0.5]


def test_the_steps_of_one_look() -> None:
    """Speculation goes first and the windows are halved; the caches go only if that was not enough, and they matter."""
    rule = PressureRule()
    assert rule.look(FULL, 0.0) is Step.SPECULATION
    assert rule.narrowing == 1
    assert rule.after_speculation(EMPTY, GIB) is None
    assert rule.after_speculation(BETWEEN, GIB) is Step.CACHES
    assert rule.after_speculation(FULL, 12 * MIB) is None


def test_between_the_marks_nothing_changes() -> None:
    """What is narrow stays so, and what is wide, too."""
    rule = PressureRule()
    assert rule.look(BETWEEN, 0.0) is None
    assert not rule.is_short
    rule.look(FULL, 1.0)
    assert rule.look(BETWEEN, 100.0) is None
    assert rule.is_short
    assert rule.narrowing == 1


def test_the_windows_open_one_by_one() -> None:
    """Ten calm seconds double the windows; ten more of them when they are whole, and memory is not short any more."""
    rule = PressureRule()
    for now in (0.0, 1.0):
        rule.look(FULL, now)
    steps = [(now, step) for now in range(2, 60) if (step := rule.look(EMPTY, float(now)))]
    assert steps == [(12, Step.WIDEN), (22, Step.WIDEN), (32, Step.END)]
    assert not rule.is_short


def test_a_calm_that_is_interrupted_begins_anew() -> None:
    """Nine calm seconds, one between the marks, nine more: nothing is doubled."""
    rule = PressureRule()
    rule.look(FULL, 0.0)
    assert [rule.look(use, now) for now, use in ((1.0, EMPTY), (10.0, EMPTY), (10.5, BETWEEN), (12.0, EMPTY))] == [
        None
    ] * 4
    assert rule.look(EMPTY, 12.0 + CALM_S) is Step.WIDEN


@given(st.lists(st.tuples(st.integers(0, 1100), st.floats(0, 20)), max_size=60))
def test_any_history(looks: list[tuple[int, float]]) -> None:
    """Whatever is used: something goes exactly above the high mark, nothing is doubled above the low one, the begin
    and the end take turns with the marks, and the windows are never narrower than the least.
    """
    rule = PressureRule()
    now = 0.0
    for used_mib, passed_s in looks:
        now += passed_s
        use = Use(used_mib * MIB, LIMIT)
        was_short, narrowing = rule.is_short, rule.narrowing
        step = rule.look(use, now)
        rule.check_invariants()
        assert (step is Step.SPECULATION) == (use.used > use.high)
        if step in (Step.WIDEN, Step.END):
            assert use.used <= use.low
        assert rule.is_short == ((was_short or step is Step.SPECULATION) and step is not Step.END)
        expected = {Step.SPECULATION: min(narrowing + 1, MAX_NARROWING), Step.WIDEN: narrowing - 1}
        assert rule.narrowing == expected.get(step, narrowing)  # type: ignore[arg-type]


def test_content_may_take_half_of_the_room() -> None:
    """From one look to the next it grows by half of what is left below the high mark, never beyond the halved total,
    and a 32nd of the total is always there.
    """
    rule = PressureRule()
    assert rule.may_hold(Use(700 * MIB, LIMIT), 50 * MIB, GIB) == 150 * MIB
    assert rule.may_hold(Use(100 * MIB, LIMIT), 500 * MIB, 640 * MIB) == 640 * MIB
    assert rule.may_hold(FULL, 0, 640 * MIB) == 20 * MIB
    rule.look(FULL, 0.0)
    assert rule.may_hold(Use(100 * MIB, LIMIT), 500 * MIB, 640 * MIB) == 320 * MIB


def test_check_invariants_finds_narrow_windows() -> None:
    """Windows that are narrow though memory is not short are found."""
    rule = PressureRule()
    rule.narrowing = 1
    with pytest.raises(ValueError, match="halved"):
        rule.check_invariants()
